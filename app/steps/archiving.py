"""The archives (`app.archive`) of what requests lose: named before anything is written, so that a note can say where, and stored once
they are.

A sink may fail, be slow or give out addresses of its own: none of it ever fails a request.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from app.archive import Draft, InStore, draft_archive, draft_of_result, usable
from app.core import jsonspan
from app.core.plan import changed_items
from app.core.recent import Recent
from app.ports import ArchiveSink, Recorder, SharedStore
from app.records import Archive
from app.request import Context
from app.steps.attempt import Attempt
from app.steps.shaping import Cut
from app.threads import in_thread

SINK_SECONDS = 15
"""How long an archive may take to be written. A request waits for it: its recap must not name what is not there."""
RETRY_SECONDS = 60
REMEMBERED = 2_000
"""Results that are remembered as archived."""


class Archivist:
    def __init__(
        self, store: SharedStore, recorder: Recorder, public_base: str, sink: ArchiveSink | None = None
    ) -> None:
        self._sink = sink or InStore(store)
        # Where an address has to be known before anything is written.
        self._shelf: ArchiveSink = InStore(store) if self._sink.addresses else self._sink
        self._recorder = recorder
        self._base = public_base
        self._cut: Recent[str, float] = Recent(REMEMBERED)
        """results that were archived, and when one is due that could not be"""

    def draft(self, context: Context) -> Draft | None:
        """Name and address of the archive to be, None where the policy wants none."""
        if not context.ask.policy.archive_history or context.ask.policy.mode == "observe":
            return None
        number = (context.checkpoint.number if context.checkpoint else 0) + 1
        return draft_archive(self._base, context.ask.tenant, context.session, context.chain, number)

    async def archive(self, context: Context, draft: Draft, attempt: Attempt) -> str | None:
        """Store what leaves. The address that it can be read at, "" if nobody told any; None: it could not be stored."""
        ask, before = context.ask, context.checkpoint.archive if context.checkpoint else ""
        # What a standing rule took out before is only archived once a checkpoint covers it: until then it comes with every request.
        gone = changed_items(context.unshaped or context.view, attempt.view)
        items = [(index, context.client.raws[index]) for index in gone if index < attempt.view.covered]
        record = await in_thread(
            len(ask.opened.body),
            draft.filled,
            items,
            before,
            attempt.strategy,
            attempt.level,
            ask.format,
            ask.model.name,
        )
        told = await self._put(self._sink, record)
        return draft.address if told is not None and not self._sink.addresses else told

    async def _put(self, sink: ArchiveSink, record: Archive) -> str | None:
        """The address that the sink gave it ("" for none), None where it failed: whatever a sink does, no request fails with it."""
        try:
            async with asyncio.timeout(SINK_SECONDS):
                told = await sink.put(record)
        except Exception as fault:
            self._recorder.archived(sink.name, type(fault).__name__)
            return None
        self._recorder.archived(sink.name, "ok")
        return told if told and usable(told) else ""

    # Results that are cut by a standing rule

    def result_address(self, context: Context, key: str) -> str:
        policy = context.ask.policy
        if not policy.archive_history:
            return ""
        return draft_of_result(self._base, context.ask.tenant, context.session, key).address

    async def archive_results(self, context: Context, cuts: Sequence[Cut]) -> None:
        """Store the items whose results were cut, each once. One that could not be stored is tried again, but not with every request: its
        address stands in the request all the same, or the prefix would change."""
        ask = context.ask
        if not ask.policy.archive_history or ask.policy.mode == "observe":
            return
        now = time.monotonic()
        due = [cut for cut in cuts if (self._cut.get(f"{ask.tenant} {cut.key}") or 0.0) <= now]
        for cut in due:
            self._cut.put(f"{ask.tenant} {cut.key}", now + RETRY_SECONDS)
        if due:
            items = await in_thread(len(ask.opened.body), _alone, context, due)
            await asyncio.gather(*(self._archive_result(context, *pair) for pair in zip(due, items, strict=True)))

    async def _archive_result(self, context: Context, cut: Cut, item: bytes) -> None:
        ask = context.ask
        draft = draft_of_result(self._base, ask.tenant, context.session, cut.key)
        items = [(cut.index, item)]
        record = await in_thread(
            len(item), draft.filled, items, "", "max_tool_result_tokens", 0, ask.format, ask.model.name
        )
        if await self._put(self._shelf, record) is not None:
            self._cut.put(f"{ask.tenant} {cut.key}", math.inf)


def _alone(context: Context, cuts: Sequence[Cut]) -> list[bytes]:
    """The item of each result, without the others that came in the same message: those have archives of their own, or are not cut."""
    client, items = context.client, {}
    found = []
    for cut in cuts:
        if cut.index not in items:
            items[cut.index] = jsonspan.value(client.raws[cut.index])
        item = items[cut.index]
        key, *inner = client.entries[cut.index].facts.results[cut.ordinal].path
        block = inner[0] if inner else None
        found.append(jsonspan.dump({**item, key: [item[key][block]]} if isinstance(block, int) else item))
    return found
