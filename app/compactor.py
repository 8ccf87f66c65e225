"""One request's story.

Read it, replay what an earlier request settled, count, and if it is still too long: plan, fill, apply, gate, archive, save. Every way
out has
a named outcome and reason. Whatever goes wrong on the way, the client's own bytes go upstream: `decide` never raises. What the steps work
on is pure; the world is reached through the ports of `app.ports`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from app.core import jsonspan, rules, tokens
from app.core.view import Chains, EntryCache, View, raw_bytes, size_of
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.media import media_cost
from app.formats.reading import Reader
from app.ports import UNTRACED, ArchiveSink, Counter, Recorder, SharedStore, Summarizer, Tracer
from app.request import Ask, Context, Outcome, Result
from app.steps import counting
from app.steps.archiving import Archivist
from app.steps.attempt import Attempt
from app.steps.keeping import Keeper
from app.steps.preparing import Preparer
from app.steps.rewriting import Rewriter
from app.steps.shaping import Shaping, shapes
from app.steps.thinking import asked

MAX_REJECTIONS = 3
"""After so many refusals by the provider, a session gets no new plan, and its requests no shape."""
READ_INLINE = 512 << 10
"""Up to here unknown items are read on the event loop (some milliseconds); more goes to a thread."""
PASSING = frozenset({"below_threshold", "nothing_before_turn", "first_request"})
"""Reasons why a request simply passes; all others decline a compaction that was due."""


class Compactor:
    def __init__(
        self,
        store: SharedStore,
        summarizer: Summarizer,
        recorder: Recorder,
        public_base: str,
        counter: Counter | None = None,
        archives: ArchiveSink | None = None,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._tracer = tracer
        self._keeper = Keeper(store, recorder)
        self._archivist = Archivist(store, recorder, public_base, archives)
        self._rewriter = Rewriter(summarizer, self._keeper, recorder)
        self._preparer = Preparer(self._rewriter, self._keeper, self._archivist, recorder)
        self._counter = counter
        self._recorder = recorder
        self._shaping = Shaping()
        self._cache = EntryCache()
        self._chains = Chains()
        self._readers: dict[tuple[str, str, frozenset[str]], Reader] = {}
        self._running: set[asyncio.Task[Outcome]] = set()

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
        reader, policy = self._reader(ask), ask.policy
        window = ask.model.context_window
        least = min(
            filter(None, (policy.trigger_tokens(window), policy.idle_tokens(window), policy.prepare_tokens(window)))
        )
        reason = "mode_off" if policy.mode == "off" else reader.format.refusal(ask.opened.fields, ask.opened.last)
        if reason:
            return Outcome(ask.opened.body, "passed", reason)
        quick = policy.compact_first_request and not overflowed and not shapes(policy)
        if quick and counting.tiny(ask.opened, least, reader.reference):
            return self._short(ask, len(ask.opened.body) // 4)
        view = await self._look(ask, reader)
        if quick and counting.bound(ask.opened, view) * counting.LARGEST_RATIO < least:
            return self._short(ask, counting.roughly(ask.opened, view))

        context = self._context(ask, reader, view)
        context.again = again
        await self._keeper.find(context)
        if self._shapes(context):
            await self._shape(context)
        learnt = self._keeper.ratios.of(ask.tenant, ask.upstream, ask.model)
        scale = counting.scale_of(context.chain, context.found.session, ask.model, learnt)
        with self._tracer.span("count") as span:
            # After an overflow the trigger says nothing: then everything is counted.
            context.estimate = await counting.estimate(
                reader, ask.opened, view, context.view, scale, 0 if overflowed else least
            )
            trigger = self._trigger(context)
            if not overflowed and context.counted.near(trigger):
                await self._ask_provider(context)
            span.tell(tokens=context.counted.now, trigger=trigger, count_source=context.counted.source)
        context.overflowed = overflowed
        if overflowed:
            self._believe(context)
        elif context.counted.now < trigger:
            self._preparer.consider(context)
            return self._forward(context, "below_threshold")
        reason = self._may_not(context)
        if reason:
            return self._forward(context, reason)
        return await self._to_the_end(self._compact(context, trigger))

    async def _shape(self, context: Context) -> None:
        """What the policy takes out of every request."""
        encoding = context.ask.model.encoding
        new = sum(
            size_of(raw) for raw, entry in zip(context.view.raws, context.view.entries, strict=True) if entry.tokens < 0
        )
        work = (
            context, lambda key: self._archivist.result_address(context, key), lambda text: tokens.count(text, encoding)
        )  # fmt: skip
        shaped, cuts = (
            await asyncio.to_thread(self._shaping.shape, *work)
            if new > counting.COUNT_INLINE
            else self._shaping.shape(*work)
        )
        context.unshaped, context.view = context.view, shaped
        await self._archivist.archive_results(context, cuts)

    def _shapes(self, context: Context) -> bool:
        return shapes(context.ask.policy) and not self._rejected(context)

    async def _standing(self, context: Context, view: View) -> View:
        """A view that a checkpoint has just given, as the standing rules leave it; counted."""
        if not self._shapes(context):
            return view
        replayed = replace(context, view=view)
        await self._shape(replayed)
        await counting.fill(context.reader, replayed.view)
        return replayed.view

    async def _ask_provider(self, context: Context) -> None:
        """Where the local figure can't decide: the provider's own count of what would be forwarded."""
        if self._counter is None:
            return
        counted = await self._counter.count(context.ask, *_upstream(context))
        if counted is not None:
            context.estimate = context.counted.told(counted, "provider")

    async def _to_the_end(self, compaction: Coroutine[Any, Any, Outcome]) -> Outcome:
        """A compaction is finished and kept though its client leaves: it will be back, here or at another replica."""
        task = asyncio.create_task(compaction)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Outcome]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits gets it as well

    async def _compact(self, context: Context, trigger: int) -> Outcome:
        """A new compaction; other replicas that need the same one wait until it is stored."""
        try:
            return await self._compacted(context, trigger)
        finally:
            await self._rewriter.settled(context)

    async def _compacted(self, context: Context, trigger: int) -> Outcome:
        """Plan, fill, apply, gate, archive, save; or take what was prepared."""
        # A body that can't be spliced is found out before a summary is paid for.
        jsonspan.readable(context.ask.opened.body)
        jsonspan.members(context.ask.opened.body)
        level = rules.level(context.view.facts)
        draft = None
        with self._tracer.span("plan", strategy=context.ask.policy.strategy, level=level) as span:
            attempt: Attempt | str | None = await self._preparer.take(context, level, trigger, self._standing)
            if attempt is None:
                self._preparer.drop(context)
                draft = self._archivist.draft(context)
                attempt = await self._rewriter.attempt(context, draft)
            span.tell(reason=attempt if isinstance(attempt, str) else "threshold")
        if isinstance(attempt, str):
            return self._forward(context, attempt)
        if attempt.settled_elsewhere or (draft and not await self._rewriter.alone(context, "compaction", attempt)):
            return await self._decide(context.ask, again=True)
        if draft:
            address = await self._archivist.archive(context, draft, attempt) or ""
            draft, attempt = await self._rewriter.readdressed(context, attempt, draft, address)
        view = await self._keeper.save(context, attempt, draft)
        if view is not attempt.view:  # another replica's
            view = await self._standing(context, view)
        return self._forward(replace(context, view=view), "threshold", new=True)

    def _trigger(self, context: Context) -> int:
        """Tokens from which on this request is to be compacted; lower where the provider's cache has gone cold anyway."""
        policy, window, session = context.ask.policy, context.ask.model.context_window, context.found.session
        idle = policy.idle_tokens(window)
        rested = session is not None and time.time() - session.updated > policy.cache_ttl
        return idle if idle is not None and rested else policy.trigger_tokens(window)

    # Looking

    def _reader(self, ask: Ask) -> Reader:
        """Models that count alike share one."""
        model = ask.model
        key = (ask.format, model.encoding, model.quirks)
        reader = self._readers.get(key)
        if reader is None:
            media = media_cost(model.fact)
            others = (
                other for (*kind, _), other in self._readers.items() if kind == [*key[:2]] and other.media == media
            )
            reader = next(others, None) or Reader(FORMATS[ask.format], model.encoding, self._cache, media)
            self._readers[key] = reader
        return reader

    def _short(self, ask: Ask, about: int) -> Outcome:
        """Nothing can apply to a request that can't come near the trigger: no count, no look into the store."""
        body = ask.opened.body
        return Outcome(
            body, "passed", "below_threshold", before=about, after=about, source="approximate", session=ask.session
        )

    async def _look(self, ask: Ask, reader: Reader) -> View:
        """The client's own view. Large bodies that were never seen are read in a thread."""
        raws = ask.opened.raws
        if not raws:
            raise NotCompactable("no_history")
        found, digests = reader.known(raws)
        new = sum(size_of(raw) for raw, entry in zip(raws, found, strict=True) if entry is None)
        if new > READ_INLINE:
            entries = await asyncio.to_thread(reader.read, raws, found, digests)
        else:
            entries = reader.read(raws, found, digests)
        return View(raws, entries)

    def _context(self, ask: Ask, reader: Reader, view: View) -> Context:
        # What an observing policy settles must never be replayed by one that is on.
        links = self._chains.chain(
            ask.tenant + (" observe" if ask.policy.mode == "observe" else ""), ask.format, view.entries
        )
        first = next((at for at, entry in enumerate(view.entries) if entry.facts.role != "system"), len(view) - 1)
        return Context(ask, reader, view, view, links, ask.session or links[first].hex()[:24])

    # Whether

    def _may_not(self, context: Context) -> str:
        """Why no new compaction may be made, "" if it may."""
        policy, session, facts = context.ask.policy, context.found.session, context.view.facts
        if len(context.client) < policy.min_messages_before_compaction:
            return "too_few_messages"
        if session is None and not policy.compact_first_request and not context.store_failed:
            return "first_request"
        most = policy.max_compactions_per_session
        if most is not None and (session.compactions if session else 0) >= most:
            return "max_compactions"
        if self._rejected(context):
            return "rejected_before"
        request, level = rules.current_turn(facts), rules.level(facts)
        # Where the running turn may be folded, its request may have become part of a recap.
        if request >= len(facts) and (policy.protect_current_turn or level != 2):
            return "no_request"
        if level == 1 and request <= rules.head_end(facts):
            return "nothing_before_turn"
        return ""

    @staticmethod
    def _rejected(context: Context) -> bool:
        """Has a provider refused what we made of this session's requests too often?"""
        session = context.found.session
        return session is not None and session.rejections >= MAX_REJECTIONS

    def _believe(self, context: Context) -> None:
        """The provider's word against our count: what we counted is at least its window."""
        now, window = context.counted.now, context.ask.model.context_window
        if now < window:
            context.estimate = context.counted.told(window)

    # The way out

    def _forward(self, context: Context, reason: str, new: bool = False) -> Outcome:
        """The outcome for the context's view: its bytes, or the client's own where nothing was changed or may be."""
        view, body, checkpoint, session = (
            context.view,
            context.ask.opened.body,
            context.checkpoint,
            context.found.session,
        )
        beta = ""
        result: Result = (
            "compacted" if new else "replayed" if view.changed else "passed" if reason in PASSING else "declined"
        )
        observing = context.ask.policy.mode == "observe"
        if observing:
            result = "observed" if view.changed else result
        elif view.changed:
            body, beta = _upstream(context)
        if result in ("replayed", "observed") and reason == "below_threshold":
            reason = "checkpoint" if view.covered else "standing_rules"
        return Outcome(
            body, result, "store_unavailable" if context.store_failed else reason,
            strategy=checkpoint.strategy if checkpoint else "",
            level=checkpoint.level if checkpoint else 0,
            before=context.counted.before,
            after=context.counted.of(view) if new else context.counted.now if view.changed else context.counted.before,
            source=context.counted.source,
            session=context.session,
            compactions=(session.compactions if session else 0) + (new and not observing),
            archive=checkpoint.archive if checkpoint else "",
            beta=beta,
            context=context,
        )  # fmt: skip

    # After the provider's answer

    async def reject(self, outcome: Outcome) -> None:
        """The provider refused what we made of this request: that checkpoint is never used again."""
        if outcome.context is not None:
            await self._keeper.quarantine(outcome.context)

    async def settle(self, outcome: Outcome, reported: int) -> None:
        """Remember what the provider reported for this prefix (`reported` input tokens, 0 if it did not tell)."""
        if outcome.context is not None:
            await self._keeper.settle(outcome.context, outcome, reported)


def _upstream(context: Context) -> tuple[bytes, str]:
    """The body that goes upstream for the context's view, and what the beta header has to say for its sake."""
    return asked(context, _rendered(context)) if context.view.changed else (context.ask.opened.body, "")


def _rendered(context: Context) -> bytes:
    """The client's body with the view in the place of its history."""
    view = context.view
    pieces = [piece if isinstance(piece, int) else raw_bytes(view.raws[at]) for at, piece in enumerate(view.pieces)]
    sizes = [size_of(raw) for raw in context.client.raws]
    return jsonspan.splice(context.ask.opened.body, context.reader.format.history, pieces, sizes)
