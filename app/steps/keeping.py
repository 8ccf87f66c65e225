"""What a request finds in the store and leaves there: checkpoints and sessions.

A store that fails costs a request nothing but what it would have told; the outcome then says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import xxhash

from app.archive import Draft
from app.core.plan import Checkpoint, checkpoint_of
from app.core.recent import Recent
from app.core.view import View
from app.errors import NotCompactable, StoreFailed
from app.ports import Recorder, SharedStore, Summary
from app.records import Compaction, Session, SessionChange, StoredCheckpoint
from app.request import Context, Outcome
from app.steps import counting
from app.steps.attempt import Attempt
from app.steps.replaying import Replayer


def _stored(context: Context, checkpoint: Checkpoint) -> StoredCheckpoint:
    return StoredCheckpoint.of(context.chain, checkpoint.covered, checkpoint.encode())


def _read(stored: StoredCheckpoint) -> Checkpoint | None:
    """None for what this version did not write, or not for this place."""
    found = Checkpoint.decode(stored.value)
    return found if found is not None and found.covered == stored.depth else None


def _spent(summaries: Sequence[Summary]) -> dict[str, Any]:
    """What summaries have cost."""
    return {
        "summary_input_tokens": sum(summary.input_tokens for summary in summaries),
        "summary_output_tokens": sum(summary.output_tokens for summary in summaries),
        "summary_cost": sum(summary.cost for summary in summaries),
    }


def _prepared(context: Context) -> str:
    return f"{context.ask.tenant} prepared {context.ask.policy.name}"


DECODED_BYTES, EXPANDED = 16 << 20, 2
"""What checkpoints take that are kept decoded, and how many times the bytes of its record one does, measured."""


class Keeper:
    def __init__(self, store: SharedStore, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder
        # With the digest of its record: two replicas that were cut off from their store may each have made one for the same prefix, and
        # then the store's counts.
        self._decoded: Recent[bytes, tuple[bytes, int, Checkpoint]] = Recent(
            DECODED_BYTES, lambda _, known: 1_000 + EXPANDED * known[1]
        )
        self._replayer = Replayer()
        self.ratios = counting.Ratios()

    # Before

    async def find(self, context: Context) -> None:
        """Look up checkpoint and session, and replay the checkpoint."""
        try:
            context.found = await self._store.lookup(context.ask.tenant, context.chain, context.session)
            context.store_failed = self._store.degraded
        except StoreFailed:
            context.store_failed = True
        stored = context.found.checkpoint
        checkpoint = self._decode(stored) if stored else None
        if checkpoint is not None and checkpoint.covered <= len(context.client):
            self._replay(context, checkpoint)

    def _replay(self, context: Context, checkpoint: Checkpoint) -> bool:
        """Replay it, unless it does not fit here."""
        view = self._fitting(context, checkpoint)
        if view is None:
            context.misfit = checkpoint.covered
            return False
        context.view, context.checkpoint = view, checkpoint
        return True

    def _fitting(self, context: Context, checkpoint: Checkpoint) -> View | None:
        protects = context.ask.policy.protect_current_turn
        return self._replayer.replay(checkpoint, context.chain, context.client, context.reader, protects)

    def _decode(self, stored: StoredCheckpoint) -> Checkpoint | None:
        record = xxhash.xxh3_128_digest(stored.value)
        known = self._decoded.get(stored.key)
        if known is not None and known[0] == record:
            return known[2]
        found = _read(stored)
        if found is not None:
            self._decoded.put(stored.key, (record, len(stored.value), found))
        return found

    async def has_moved_on(self, context: Context) -> bool:
        """Has somebody compacted, or prepared, more of this conversation since this request looked? Asked in vain once, it is no use to
        ask again."""
        if context.again:
            return False
        known = max(context.view.covered, context.misfit)
        if await self._is_deeper(context, context.ask.tenant, known):
            return True
        prepares = context.ask.policy.prepare_threshold is not None
        return prepares and await self._is_deeper(context, _prepared(context), max(known, context.passed_over))

    async def _is_deeper(self, context: Context, space: str, known: int) -> bool:
        stored = (await self._store.lookup(space, context.chain, context.session)).checkpoint
        return stored is not None and stored.depth > known and _read(stored) is not None

    # A new compaction

    async def save(self, context: Context, attempt: Attempt, draft: Draft | None) -> View:
        """Keep the checkpoint and its record. If another replica settled this prefix first, its outcome counts: the view of that.

        Raises NotCompactable("quarantined") if a provider has refused it meanwhile.
        """
        checkpoint = self._checkpoint(context, attempt, draft)
        stored = _stored(context, checkpoint)
        try:
            kept = await self._store.put_checkpoint(context.ask.tenant, stored)
            context.store_failed |= self._store.degraded
            if kept:
                context.checkpoint = checkpoint
                await self._record(context, attempt, stored.key, checkpoint.archive)
                return attempt.view
            context.found = await self._store.lookup(
                context.ask.tenant, context.chain[: checkpoint.covered], context.session
            )
        except StoreFailed:
            context.store_failed = True
        theirs = context.found.checkpoint
        settled = self._decode(theirs) if theirs and theirs.key == stored.key else None
        if context.found.quarantined >= checkpoint.covered:
            raise NotCompactable("quarantined")
        if settled is None or not self._replay(context, settled):
            context.checkpoint = checkpoint
            return attempt.view
        await counting.fill(context.reader, context.view)
        return context.view

    def _checkpoint(self, context: Context, attempt: Attempt, draft: Draft | None) -> Checkpoint:
        if attempt.prepared is not None:
            return attempt.prepared
        before = context.checkpoint
        # Where nothing could be archived now, what was archived earlier can still be found.
        archive = draft.address if draft else before.archive if before else ""
        return checkpoint_of(
            attempt.view, attempt.strategy, attempt.level, archive, (before.number if before else 0) + 1
        )

    # Prepared ahead: the same records in a space of their own, where no request's replay looks

    async def put_prepared(self, context: Context, attempt: Attempt, draft: Draft | None) -> None:
        checkpoint = self._checkpoint(context, attempt, draft)
        await self._store.put_checkpoint(_prepared(context), _stored(context, checkpoint))
        await self._store.update_session(
            context.ask.tenant, context.session, SessionChange(add=_spent(attempt.summaries))
        )

    async def find_prepared(self, context: Context) -> tuple[View, Checkpoint] | None:
        """The view that a prepared checkpoint gives, if there is one that reaches further than what is applied already."""
        try:
            found = await self._store.lookup(_prepared(context), context.chain, context.session)
        except StoreFailed:
            return None
        checkpoint = _read(found.checkpoint) if found.checkpoint else None
        context.passed_over = checkpoint.covered if checkpoint else 0
        least = max(context.view.covered, context.found.quarantined)
        if checkpoint is None or not least < checkpoint.covered <= len(context.client):
            return None
        view = self._fitting(context, checkpoint)
        if view is None:
            return None
        await counting.fill(context.reader, view)
        return view, checkpoint

    async def _record(self, context: Context, attempt: Attempt, key: bytes, archive: str) -> None:
        """The line for the console and the session's counters; losing them loses no message."""
        ask, spent = context.ask, _spent(attempt.summaries)
        record = Compaction(
            id=key.hex(), tenant=ask.tenant, session=context.session, created=time.time(), format=ask.format,
            model=ask.model.name, strategy=attempt.strategy, level=attempt.level, tokens_before=context.counted.now,
            tokens_after=context.counted.of(attempt.view), count_source=context.counted.source, archive=archive, **spent,
        )  # fmt: skip
        change = SessionChange(
            add={"compactions": int(ask.policy.mode != "observe"), **spent},
            put={
                "strategy": attempt.strategy, "level": attempt.level, "last_archive": archive, "format": ask.format,
                "model": ask.model.name,
            },
        )  # fmt: skip
        results = await asyncio.gather(
            self._store.put_compaction(record),
            self._store.update_session(ask.tenant, context.session, change),
            return_exceptions=True,
        )
        for failed in results:
            if isinstance(failed, BaseException) and not isinstance(failed, StoreFailed):
                raise failed

    async def spent(self, context: Context, summaries: Sequence[Summary]) -> None:
        """Count what summaries have cost that led to no compaction."""
        try:
            await self._store.update_session(context.ask.tenant, context.session, SessionChange(add=_spent(summaries)))
        except StoreFailed as fault:
            self._recorder.fault("spent", fault)

    # After the provider's answer

    async def quarantine(self, context: Context) -> None:
        checkpoint = context.checkpoint
        if checkpoint is None and not context.view.shaped:
            return
        try:
            if checkpoint is not None:
                self._decoded.pop(context.chain[checkpoint.covered - 1])
                await self._store.quarantine(context.ask.tenant, _stored(context, checkpoint))
            await self._store.update_session(context.ask.tenant, context.session, SessionChange(add={"rejections": 1}))
        except StoreFailed as fault:
            self._recorder.fault("quarantine", fault)

    async def settle(self, context: Context, outcome: Outcome, reported: int) -> None:
        estimate = context.estimate
        if context.store_failed or estimate is None:
            return
        session = context.found.session or Session(context.session, context.ask.tenant)
        put: dict[str, object] = {"format": context.ask.format, "model": context.ask.model.name}
        mark = counting.mark(
            context.chain[-1],
            context.ask.model,
            estimate,
            context.view if outcome.changed else context.client,
            reported,
        )
        if mark is not None:
            put["usages"] = usages = counting.remembered(mark, session.usages)
            self.ratios.learn(context.ask.tenant, context.ask.upstream, context.ask.model, usages)
            put["ratio"] = mark.reported / mark.local
        change = SessionChange(add={"requests": 1, "tokens_cleared": outcome.cleared}, put=put)
        try:
            await self._store.update_session(context.ask.tenant, context.session, change)
        except StoreFailed as fault:
            self._recorder.fault("settle", fault)
