"""Summaries made before they are needed, so that no user waits for one.

From `prepare_threshold` on, what a compaction would do now is worked out in the background while requests pass unchanged, and stored where
every replica finds it. When the trigger comes it is there, and only what was said since stays verbatim behind it. One preparation a
conversation; one that is no longer of use is cancelled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from app.core.recent import Recent
from app.errors import StoreFailed
from app.ports import Recorder
from app.records import home_of
from app.request import Context
from app.settings import EXTRACTIVE
from app.steps.archiving import Archivist
from app.steps.attempt import Attempt
from app.steps.filling import Filler
from app.steps.keeping import Keeper
from app.steps.rewriting import Rewriter
from app.steps.standing import StandingRules

AT_ONCE = 32
"""Preparations that one process works on at the same time."""
REMEMBERED = 4_096


class Preparer:
    def __init__(
        self,
        rewriter: Rewriter,
        filler: Filler,
        keeper: Keeper,
        archivist: Archivist,
        standing: StandingRules,
        recorder: Recorder,
    ) -> None:
        self._rewriter = rewriter
        self._filler = filler
        self._keeper = keeper
        self._archivist = archivist
        self._standing = standing
        self._recorder = recorder
        self._running: dict[str, asyncio.Task[None]] = {}
        self._done: Recent[str, int] = Recent(REMEMBERED)

    def prepare_if_near(self, context: Context) -> None:
        """Begin to prepare, if this request is near enough to its trigger and nobody has."""
        policy = context.ask.policy
        threshold = policy.prepare_tokens(context.ask.model.context_window)
        if threshold is None or context.counted.now < threshold or policy.mode != "on":
            return
        if policy.summary_model == EXTRACTIVE or policy.strategy not in ("summarize", "combined"):
            return
        name = self._name(context)
        # Once for what is covered now: a conversation that stays below its trigger for long is not prepared again and again.
        if name in self._running or self._done.get(name) == context.view.covered or len(self._running) >= AT_ONCE:
            return
        self._running[name] = task = asyncio.create_task(self._prepare(replace(context, flights=[]), name))
        task.add_done_callback(lambda _: self._running.pop(name, None))

    async def _prepare(self, context: Context, name: str) -> None:
        try:
            if await self._keeper.find_prepared(context) is None:
                draft = self._archivist.draft(context)
                attempt = await self._rewriter.attempt(context, draft)
                if isinstance(attempt, str) or attempt.settled_elsewhere:
                    return
                if draft and not await self._filler.first_to_write(context, "preparation", attempt.view.covered):
                    return
                if draft:
                    address = await self._archivist.archive(context, draft, attempt)
                    if address is None:
                        return
                    draft, attempt = await self._rewriter.with_address(context, attempt, draft, address)
                await self._keeper.put_prepared(context, attempt, draft)
                self._recorder.note("summary_prepared", strategy=attempt.strategy)
            self._done.put(name, context.view.covered)
        except StoreFailed:
            pass
        except Exception as fault:
            self._recorder.fault("prepare", fault)
        finally:
            await self._filler.release(context)

    async def prepared(self, context: Context, level: int, limit: int) -> Attempt | None:
        """What was prepared for this conversation, if with it the request stays below `limit` tokens."""
        if context.ask.policy.prepare_threshold is None:
            return None
        running = self._running.get(self._name(context))
        if running is not None:
            await asyncio.wait([running], timeout=context.ask.policy.summary_timeout)
        found = await self._keeper.find_prepared(context)
        if found is None:
            return None
        view = await self._standing.applied(context, found[0])
        return Attempt(view, (), level, prepared=found[1]) if context.counted.of(view) < limit else None

    def cancel(self, context: Context) -> None:
        """What is being prepared for this conversation is of no use any more."""
        running = self._running.get(self._name(context))
        if running is not None:
            running.cancel()

    @staticmethod
    def _name(context: Context) -> str:
        """Of this conversation, by its beginning: others may share the session."""
        home = home_of(context.chain, len(context.chain)).hex()
        return f"{context.ask.tenant} {context.ask.policy.name} {context.session} {home}"
