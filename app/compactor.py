"""One request's story.

Read it, replay what an earlier request settled, count, and if it is still too long: plan, fill, apply, gate, archive, save. Every way out
has a named outcome and reason. Whatever goes wrong on the way, the client's own bytes go upstream: `decide` never raises. The steps are
`app.steps`, a file each; what they work on is pure, and the world is reached through the ports of `app.ports`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from app.core import jsonspan, rules
from app.errors import NotCompactable
from app.ports import NULL_TRACER, ArchiveSink, Counter, Recorder, SharedStore, Summarizer, Tracer
from app.request import Ask, Context, Outcome
from app.steps import counting
from app.steps.archiving import Archivist
from app.steps.attempt import Attempt
from app.steps.eligibility import ineligible, least_tokens, trigger_tokens
from app.steps.filling import Filler
from app.steps.keeping import Keeper
from app.steps.leasing import Leasing
from app.steps.outcomes import outcome_of, passed_uncounted, upstream_body
from app.steps.preparing import Preparer
from app.steps.rewriting import Rewriter
from app.steps.shaping import shapes
from app.steps.standing import StandingRules
from app.steps.viewing import Viewer


class Compactor:
    def __init__(
        self,
        store: SharedStore,
        summarizer: Summarizer,
        recorder: Recorder,
        public_base: str,
        counter: Counter | None = None,
        archives: ArchiveSink | None = None,
        tracer: Tracer = NULL_TRACER,
    ) -> None:
        self._counter = counter
        self._recorder = recorder
        self._tracer = tracer
        self._viewer = Viewer()
        self._keeper = Keeper(store, recorder)
        self._archivist = Archivist(store, recorder, public_base, archives)
        self._standing = StandingRules(self._archivist)
        self._filler = Filler(summarizer, Leasing(store, self._keeper.has_moved_on))
        self._rewriter = Rewriter(self._filler, self._keeper, recorder)
        self._preparer = Preparer(self._rewriter, self._filler, self._keeper, self._archivist, self._standing, recorder)
        self._running: dict[int, asyncio.Task[Outcome]] = {}  # by the id of the opened body, which the task holds

    async def decide(self, ask: Ask, overflowed: bool = False) -> Outcome:
        """What to forward for this request. Never raises, except for cancellation.

        `overflowed`: the provider has just said that it is too long, whatever our count says.
        """
        try:
            return await self._decide(ask, overflowed)
        except NotCompactable as refusal:
            return Outcome(ask.opened.body, "passed", refusal.reason)
        except RecursionError:
            return Outcome(ask.opened.body, "passed", "too_deep")
        except Exception as fault:
            self._recorder.fault("decide", fault)
            return Outcome(ask.opened.body, "failed", "internal_error")

    async def _decide(self, ask: Ask, overflowed: bool = False, again: bool = False) -> Outcome:
        policy, reader = ask.policy, self._viewer.reader(ask)
        reason = "mode_off" if policy.mode == "off" else reader.format.refusal(ask.opened.fields, ask.opened.last)
        if reason:
            return Outcome(ask.opened.body, "passed", reason)
        least = least_tokens(policy, ask.model.context_window)
        # A request that can't come near the trigger needs no count and no look into the store: nothing can apply to it.
        quick = policy.compact_first_request and not overflowed and not shapes(policy)
        if quick and counting.cannot_reach(least, ask.opened, reader.reference):
            return passed_uncounted(ask, len(ask.opened.body) // 4)
        view = await self._viewer.view(ask, reader)
        if quick and counting.upper_bound(ask.opened, view) * counting.LARGEST_RATIO < least:
            return passed_uncounted(ask, counting.rough_count(ask.opened, view))

        context = self._viewer.context(ask, reader, view)
        context.overflowed, context.again = overflowed, again
        await self._keeper.find(context)
        await self._standing.apply(context)
        trigger = trigger_tokens(context)
        with self._tracer.span("count") as span:
            await self._count(context, least, trigger)
            span.tell(tokens=context.counted.now, trigger=trigger, count_source=context.counted.source)
        if context.counted.now < trigger and not overflowed:
            self._preparer.prepare_if_near(context)
            return outcome_of(context, "below_threshold")
        reason = ineligible(context)
        if reason:
            return outcome_of(context, reason)
        compaction = self._compact(context, trigger)
        return await (compaction if again else self._run_to_end(ask, compaction))

    async def _count(self, context: Context, least: int, trigger: int) -> None:
        """Locally, on the scale of what the provider has reported so far; where that can't decide, by the provider itself."""
        ask = context.ask
        learnt = self._keeper.ratios.of(ask.tenant, ask.upstream, ask.model)
        scale = counting.scale_of(context.chain, context.found.session, ask.model, learnt)
        # After an overflow the trigger says nothing: then everything is counted, and is at least the window, as the provider says.
        floor = 0 if context.overflowed else least
        counted = await counting.estimate(context.reader, ask.opened, context.client, context.view, scale, floor)
        context.estimate = counted
        if context.overflowed:
            if counted.now < ask.model.context_window:
                context.estimate = counted.told(ask.model.context_window)
        elif self._counter is not None and counted.near(trigger):
            told = await self._counter.count(ask, *upstream_body(context))
            if told is not None:
                context.estimate = counted.told(told, "provider")

    async def _run_to_end(self, ask: Ask, compaction: Coroutine[Any, Any, Outcome]) -> Outcome:
        """A compaction is finished and kept though its client leaves: it will be back, here or at another replica."""
        task = self._running[id(ask.opened)] = asyncio.create_task(compaction)
        task.add_done_callback(partial(self._finished, id(ask.opened)))
        return await asyncio.shield(task)

    def running(self, ask: Ask) -> asyncio.Task[Outcome] | None:
        """What goes on for this request; it holds the request's body."""
        return self._running.get(id(ask.opened))

    def _finished(self, request: int, task: asyncio.Task[Outcome]) -> None:
        del self._running[request]
        if not task.cancelled():
            task.exception()  # whoever still waits gets it as well

    async def _compact(self, context: Context, trigger: int) -> Outcome:
        """A new compaction; other replicas that need the same one wait until it is stored."""
        try:
            return await self._compacted(context, trigger)
        finally:
            await self._filler.release(context)

    async def _compacted(self, context: Context, trigger: int) -> Outcome:
        """Plan, fill, apply, gate, archive, save; or take what was prepared."""
        # A body that can't be spliced is found out before a summary is paid for.
        jsonspan.readable(context.ask.opened.body)
        jsonspan.members(context.ask.opened.body)
        level = rules.level(context.view.facts)
        draft = None
        with self._tracer.span("plan", strategy=context.ask.policy.strategy, level=level) as span:
            attempt: Attempt | str | None = await self._preparer.prepared(context, level, trigger)
            if attempt is None:
                self._preparer.cancel(context)
                draft = self._archivist.draft(context)
                attempt = await self._rewriter.attempt(context, draft)
            span.tell(reason=attempt if isinstance(attempt, str) else "threshold")
        if isinstance(attempt, str):
            return outcome_of(context, attempt)
        covered = attempt.view.covered
        if attempt.settled_elsewhere or (
            draft and not await self._filler.first_to_write(context, "compaction", covered)
        ):
            return await self._decide(context.ask, again=True)
        if draft:
            address = await self._archivist.archive(context, draft, attempt) or ""
            draft, attempt = await self._rewriter.with_address(context, attempt, draft, address)
        view = await self._keeper.save(context, attempt, draft)
        if view is not attempt.view:  # another replica's
            view = await self._standing.applied(context, view)
        return outcome_of(replace(context, view=view), "threshold", new=True)

    # After the provider's answer

    async def reject(self, outcome: Outcome) -> None:
        """The provider refused what we made of this request: that checkpoint is never used again."""
        if outcome.context is not None:
            await self._keeper.quarantine(outcome.context)

    async def settle(self, outcome: Outcome, reported: int) -> None:
        """Remember what the provider reported for this prefix (`reported` input tokens, 0 if it did not tell)."""
        if outcome.context is not None:
            await self._keeper.settle(outcome.context, outcome, reported)
