"""One request's story.

Read it (view, chain), replay what an earlier request settled (checkpoint), count, and if it is still too long: plan, apply, gate, archive,
save. Every way out has a named outcome and reason. Whatever goes wrong on the way, the client's own bytes go upstream: `decide` never
raises. The world is reached through the ports of `app.ports`; what the steps work on is pure.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Literal

from app import counting
from app.archive import Draft, draft_archive
from app.core import jsonspan, rules
from app.core.notes import CLEARED_INPUT, cleared_result, omitted_note
from app.core.plan import Checkpoint, Clear, Plan, apply, checkpoint_of, left, replay
from app.core.view import EntryCache, View, chain, origin, raw_bytes, size_of
from app.counting import Estimate
from app.errors import NotCompactable, StoreFailed
from app.formats import FORMATS
from app.formats.reading import Opened, Reader
from app.ports import Compaction, Found, Recorder, Session, SessionChange, SharedStore, StoredCheckpoint, UsageMark, anchor_of
from app.registry import Model
from app.settings import Policy
from app.strategies import STRATEGIES
from app.strategies.base import Goal

Result = Literal["passed", "replayed", "compacted", "observed", "declined", "failed"]
MAX_REJECTIONS = 3
"""After so many refusals by the provider, a session gets no new plan."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that carries a conversation, as the edge hands it over. `session` is the client's own name for it, or ""."""

    opened: Opened
    format: str
    upstream: str
    model: Model
    policy: Policy
    tenant: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: the body to forward, and why. Token figures are on the scale that `source` names."""

    body: bytes
    result: Result
    reason: str
    strategy: str = ""
    level: int = 0
    before: int = 0
    after: int = 0
    source: str = ""
    session: str = ""
    compactions: int = 0
    archive: str = ""
    context: Context | None = None

    @property
    def changed(self) -> bool:
        """Does the provider get something else than the client sent?"""
        return self.context is not None and self.body is not self.context.ask.opened.body

    def undone(self, reason: str) -> Outcome:
        """The client's own request instead, after all."""
        assert self.context is not None
        body = self.context.ask.opened.body
        return replace(self, body=body, result="failed", reason=reason, after=self.before, archive="")


@dataclass(slots=True)
class Context:
    """What a request has gathered on its way, kept for what comes after the provider's answer."""

    ask: Ask
    reader: Reader
    client: View
    view: View
    chain: list[bytes]
    session: str
    found: Found = field(default_factory=Found)
    checkpoint: Checkpoint | None = None
    store_failed: bool = False
    estimate: Estimate | None = None


class Compactor:
    def __init__(self, store: SharedStore, recorder: Recorder, public_base: str) -> None:
        self._store = store
        self._recorder = recorder
        self._base = public_base
        self._cache = EntryCache()
        self._readers: dict[tuple[str, str], Reader] = {}
        self._checkpoints: dict[bytes, Checkpoint] = {}

    # The story

    async def decide(self, ask: Ask) -> Outcome:
        """What to forward for this request. Never raises, except for cancellation."""
        try:
            return await self._decide(ask)
        except NotCompactable as refusal:
            return Outcome(ask.opened.body, "passed", refusal.reason)
        except Exception as fault:
            self._recorder.fault("decide", fault)
            return Outcome(ask.opened.body, "failed", "internal_error")

    async def _decide(self, ask: Ask) -> Outcome:
        reader, policy = self._reader(ask), ask.policy
        trigger = policy.trigger_tokens(ask.model.context_window)
        reason = "mode_off" if policy.mode == "off" else reader.format.refusal(ask.opened.fields, ask.opened.last)
        if reason:
            return Outcome(ask.opened.body, "passed", reason)
        if policy.compact_first_request and counting.most_tokens(ask.opened) < trigger:
            about = len(ask.opened.body) // 4
            return Outcome(
                ask.opened.body, "passed", "below_threshold", before=about, after=about, source="approximate"
            )

        context = await self._look(ask, reader)
        context.found = await self._find(context)
        self._replay(context)
        estimate = await counting.estimate(
            reader, ask.opened, context.client, context.view, context.chain, context.found.session, trigger
        )
        context.estimate = estimate
        if estimate.now < trigger:
            return self._forward(context, estimate, "below_threshold")
        reason = self._may_not(context)
        if reason:
            return self._forward(context, estimate, reason)
        return await self._compact(context, estimate)

    async def _compact(self, context: Context, estimate: Estimate) -> Outcome:
        """Plan, apply, gate, archive, save."""
        ask, policy = context.ask, context.ask.policy
        level = rules.level(context.view.facts)
        plan = STRATEGIES[policy.strategy].plan(context.view, self._goal(context, estimate, level))
        if plan is None:
            return self._forward(context, estimate, "nothing_to_compact")
        number = (context.checkpoint.number if context.checkpoint else 0) + 1
        draft = draft_archive(ask.tenant, context.session, context.chain, number) if policy.archive_history else None
        after = self._applied(context, plan, draft)
        reason = await self._gate(context, plan, after, estimate)
        if reason:
            return self._forward(context, estimate, reason)
        archive = await self._archive(context, draft, after, plan, level) if draft else ""
        if draft and not archive:
            after = self._applied(context, plan, None)
            await counting.fill(context.reader, after)
        saved = await self._save(context, after, plan, level, archive, number, estimate)
        return self._forward(
            replace(context, view=saved), estimate, "threshold", compacted=plan.strategy, level=level, archive=archive
        )

    # Steps 3 and 4: look, find, replay

    def _reader(self, ask: Ask) -> Reader:
        key = (ask.format, ask.model.encoding)
        if key not in self._readers:
            self._readers[key] = Reader(FORMATS[ask.format], ask.model.encoding, self._cache)
        return self._readers[key]

    async def _look(self, ask: Ask, reader: Reader) -> Context:
        """The client's own view. Large bodies that were never seen are read in a thread."""
        if not ask.opened.raws:
            raise NotCompactable("no_history")
        raws = ask.opened.raws
        found, digests = reader.known(raws)
        new = sum(size_of(raw) for raw, entry in zip(raws, found, strict=True) if entry is None)
        if new > READ_INLINE:
            entries = await asyncio.to_thread(reader.read, raws, found, digests)
        else:
            entries = reader.read(raws, found, digests)
        view = View(raws, entries)
        # What an observing policy settles must never be replayed by one that is on.
        links = chain(ask.tenant + (" observe" if ask.policy.mode == "observe" else ""), ask.format, entries)
        first = next((at for at, entry in enumerate(entries) if entry.facts.role != "system"), len(entries) - 1)
        return Context(ask, reader, view, view, links, ask.session or links[first].hex()[:24])

    async def _find(self, context: Context) -> Found:
        try:
            found = await self._store.lookup(context.ask.tenant, context.chain, context.session)
            context.store_failed = self._store.degraded
        except StoreFailed:
            context.store_failed = True
            found = Found()
        return found

    def _replay(self, context: Context) -> None:
        stored = context.found.checkpoint
        if stored is None:
            return
        checkpoint = self._checkpoints.get(stored.key) or Checkpoint.decode(stored.value)
        if checkpoint is None or checkpoint.covered > len(context.client):
            return
        if len(self._checkpoints) > 2_000:
            self._checkpoints.clear()
        self._checkpoints[stored.key] = checkpoint
        context.view = replay(context.client, checkpoint, context.reader.rewrite, context.reader.entries)
        context.checkpoint = checkpoint

    # Step 6: whether and what

    def _may_not(self, context: Context) -> str:
        """Why no new compaction may be made, "" if it may."""
        policy, session, view = context.ask.policy, context.found.session, context.view
        if len(context.client) < policy.min_messages_before_compaction:
            return "too_few_messages"
        if session is None and not policy.compact_first_request and not context.store_failed:
            return "first_request"
        if (
            session
            and policy.max_compactions_per_session is not None
            and session.compactions >= policy.max_compactions_per_session
        ):
            return "max_compactions"
        if session and session.rejections >= MAX_REJECTIONS:
            return "rejected_before"
        if rules.level(view.facts) == 1 and rules.current_turn(view.facts) <= rules.head_end(view.facts):
            return "nothing_before_turn"
        if rules.current_turn(view.facts) >= len(view):
            return "no_request"
        return ""

    def _goal(self, context: Context, estimate: Estimate, level: int) -> Goal:
        policy = context.ask.policy
        target = policy.target_tokens(context.ask.model.context_window)
        return Goal(
            tokens=context.view.tokens,
            target=max(0, int(target / estimate.ratio) - estimate.fixed),
            level=level,
            keep_recent_messages=policy.keep_recent_messages,
            keep_recent_tool_results=policy.keep_recent_tool_results,
            clear_tool_inputs=policy.clear_tool_inputs,
            exclude_tools=frozenset(policy.exclude_tools),
            notice=policy.sliding_window_include_truncation_notice,
        )

    # Step 8: apply, gate, archive, save

    def _applied(self, context: Context, plan: Plan, draft: Draft | None) -> View:
        address = draft.address(self._base) if draft else ""
        view, reader = context.view, context.reader
        pairing = rules.pair(view.facts)

        def placeholder(place: Clear) -> str:
            if place.inputs:
                return CLEARED_INPUT
            result = view.entries[place.item].facts.results[place.ordinal]
            return cleared_result(pairing.tool(view.facts, (place.item, place.ordinal)), result.size, address)

        note: bytes | str = b""
        if plan.cuts and plan.note:
            text = omitted_note(*self._removed(context, plan))
            note = text if "alternating_roles" in context.ask.model.quirks else reader.format.note(text)
        return apply(context.client, view, plan, note, placeholder, reader.rewrite, reader.entries)

    def _removed(self, context: Context, plan: Plan) -> tuple[int, list[str]]:
        """How many of the client's items stand no more before the cut's end, earlier cuts included, and the texts that these obliged us to
        repeat."""
        client, view = context.client, context.view
        end = next((origin(piece) for piece in view.pieces[plan.stop :] if origin(piece) >= 0), len(client))
        kept = {
            origin(piece)
            for at, piece in enumerate(view.pieces)
            if not plan.start <= at < plan.stop or view.entries[at].facts.stays
        }
        gone = [index for index in range(end) if index not in kept]
        carried = [context.reader.text(client.raws[index]) for index in gone if client.entries[index].facts.carried]
        return len(gone), carried

    async def _gate(self, context: Context, plan: Plan, after: View, estimate: Estimate) -> str:
        """Why the plan must be dropped, "" if it may go out: no violation that the client's own request does not have, and worth it."""
        if rules.violations(after.facts) - rules.violations(context.client.facts):
            self._recorder.fault("gate", None)
            return "would_violate"
        if context.found.quarantined >= after.covered > 0:
            return "quarantined"
        await counting.fill(context.reader, after)
        freed = (context.view.tokens - after.tokens) * estimate.ratio
        if freed <= 0:
            return "no_gain"
        policy, window = context.ask.policy, context.ask.model.context_window
        if freed < policy.clear_at_least_tokens(window):
            return "gain_too_small"
        # Where the target is out of reach, every request is above the trigger; steps still have to be large and rare.
        excess = estimate.now - policy.target_tokens(window)
        return "gain_too_small" if policy.clear_at_least and freed < excess * LEAST_SHARE_OF_EXCESS else ""

    async def _archive(self, context: Context, draft: Draft, after: View, plan: Plan, level: int) -> str:
        """The address under which the items that leave can be read, "" if they could not be stored."""
        before = context.checkpoint.archive if context.checkpoint else ""
        gone = left(context.view, after)
        items = [(index, context.client.raws[index]) for index in gone]
        ask = context.ask
        record = await asyncio.to_thread(draft.filled, items, before, plan.strategy, level, ask.format, ask.model.name)
        try:
            await self._store.put_archive(record)
        except StoreFailed as fault:
            self._recorder.archived("store", type(fault).__name__)
            return ""
        self._recorder.archived("store", "ok")
        return draft.address(self._base)

    async def _save(
        self, context: Context, after: View, plan: Plan, level: int, archive: str, number: int, estimate: Estimate
    ) -> View:
        """Keep the checkpoint and the record; if another replica settled this prefix first, its outcome counts."""
        ask = context.ask
        checkpoint = checkpoint_of(after, plan.strategy, level, archive, number)
        key = context.chain[checkpoint.covered - 1]
        stored = StoredCheckpoint(
            key, anchor_of(context.chain, checkpoint.covered), checkpoint.covered, checkpoint.encode()
        )
        scale = estimate.ratio
        record = Compaction(
            id=key.hex(), tenant=ask.tenant, session=context.session, created=time.time(), format=ask.format, model=ask.model.name,
            strategy=plan.strategy, level=level, tokens_before=estimate.before,
            tokens_after=int((after.tokens + estimate.fixed) * scale), count_source=estimate.source, archive=archive,
        )  # fmt: skip
        change = SessionChange(
            add={"compactions": 1},
            put={
                "strategy": plan.strategy,
                "level": level,
                "last_archive": archive,
                "format": ask.format,
                "model": ask.model.name,
            },
        )
        try:
            ours = await self._store.put_checkpoint(ask.tenant, stored)
            if ours:
                await asyncio.gather(
                    self._store.put_compaction(record), self._store.update_session(ask.tenant, context.session, change)
                )
                context.checkpoint = checkpoint
                return after
            found = await self._store.lookup(ask.tenant, context.chain[: checkpoint.covered], context.session)
        except StoreFailed:
            context.store_failed = True
            return after
        theirs = Checkpoint.decode(found.checkpoint.value) if found.checkpoint and found.checkpoint.key == key else None
        if theirs is None:
            return after
        context.checkpoint = theirs
        view = replay(context.client, theirs, context.reader.rewrite, context.reader.entries)
        await counting.fill(context.reader, view)
        return view

    # The ways out

    def _forward(
        self, context: Context, estimate: Estimate, reason: str, compacted: str = "", level: int = 0, archive: str = ""
    ) -> Outcome:
        view, body, checkpoint = context.view, context.ask.opened.body, context.checkpoint
        result: Result = "compacted" if compacted else "replayed" if view.changed else "passed"
        if result == "passed" and reason != "below_threshold":
            result = "passed" if reason in PASSING else "declined"
        if context.ask.policy.mode == "observe":
            result = "observed" if view.changed or result != "passed" else result
        elif view.changed:
            pieces = [
                piece if isinstance(piece, int) else raw_bytes(view.raws[at]) for at, piece in enumerate(view.pieces)
            ]
            body = jsonspan.splice(body, context.reader.format.history, pieces)
        if reason == "below_threshold" and result == "replayed":
            reason = "checkpoint"
        if context.store_failed:
            reason = "store_unavailable"
        return Outcome(
            body, result, reason,
            strategy=compacted or (checkpoint.strategy if checkpoint else ""),
            level=level or (checkpoint.level if checkpoint else 0),
            before=estimate.before,
            after=estimate.of(view),
            source=estimate.source,
            session=context.session,
            compactions=(context.found.session.compactions if context.found.session else 0) + bool(compacted),
            archive=archive or (checkpoint.archive if checkpoint else ""),
            context=context,
        )  # fmt: skip

    # After the provider's answer

    async def reject(self, outcome: Outcome) -> None:
        """The provider refused what we made of this request: never use that checkpoint again."""
        context = outcome.context
        if context is None or context.checkpoint is None:
            return
        key = context.chain[context.checkpoint.covered - 1]
        self._checkpoints.pop(key, None)
        try:
            await self._store.quarantine(context.ask.tenant, key)
            await self._store.update_session(context.ask.tenant, context.session, SessionChange(add={"rejections": 1}))
        except StoreFailed:
            pass

    async def settle(self, outcome: Outcome, reported: int) -> None:
        """Remember what the provider reported for this prefix (`reported` input tokens, 0 if it did not tell)."""
        context = outcome.context
        if context is None or context.store_failed:
            return
        session = context.found.session or Session(context.session, context.ask.tenant)
        put: dict[str, object] = {"format": context.ask.format, "model": context.ask.model.name}
        estimate = context.estimate
        local = 0 if estimate is None else estimate.fixed + (context.view if outcome.changed else context.client).tokens
        if reported > 0 and local > 0 and estimate and estimate.exact:
            mark = UsageMark(context.chain[-1], local, reported)
            put["usages"] = (mark, *(old for old in session.usages if old.chain != mark.chain))[:USAGE_MARKS]
            put["ratio"] = reported / local
        change = SessionChange(add={"requests": 1, "tokens_cleared": max(0, outcome.before - outcome.after)}, put=put)
        try:
            await self._store.update_session(context.ask.tenant, context.session, change)
        except StoreFailed:
            pass


READ_INLINE = 512 << 10
"""Up to here unknown items are read on the event loop (some milliseconds); more goes to a thread."""
LEAST_SHARE_OF_EXCESS = 0.25
USAGE_MARKS = 8
PASSING = frozenset({"nothing_before_turn", "first_request"})
