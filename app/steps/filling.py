"""Where a recap's text comes from: no model at all, or a model asked once per prefix.

A summary is expensive, so nobody makes one twice. Requests of this process that wait for the same prefix share one flight, and one
that landed is remembered. Other replicas are kept waiting by a lease, which is given back only when what came of the summary is stored:
then they find that. Nobody waits longer than `summary_timeout`, and for a holder that died not even that long (`app.steps.leasing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from app.core import tokens
from app.core.plan import Clear, Plan
from app.core.transcript import Part, Seen
from app.core.view import Edited, Facts, View, origin
from app.errors import SummaryFailed
from app.ports import Summarizer, Summary, SummaryJob
from app.request import Context
from app.steps.leasing import Leasing
from app.summaries.extractive import Cleared, Condensed, condense
from app.summaries.requests import kept_requests
from app.summaries.values import kept_values
from app.threads import in_thread

SETTLED = "settled_elsewhere"
"""The reason of a SummaryFailed that is none: another replica has made this compaction meanwhile."""
GRACE_SECONDS = 20
"""How long a lease outlives its flight at most: time to archive and to store."""
WRITING_SECONDS = 10
"""How long a request waits for another one that archives and stores the same compaction."""
LEAST_RECAP = 600
"""Tokens that a recap without a model gets even where the target leaves no room."""
FINISHED_KEPT = 64
"""Finished flights that are remembered for clients that left and come back."""


class Filler:
    def __init__(self, summarizer: Summarizer, leases: Leasing) -> None:
        self._summarizer = summarizer
        self._leases = leases
        self._flights: dict[str, asyncio.Task[Summary]] = {}

    async def extracted(self, context: Context, items: Sequence[Seen], room: int) -> Summary:
        """A summary without a model of these items alone, of at most `room` local tokens. Raises SummaryFailed("nothing_to_say")."""
        told = await in_thread(_size(context), _condense, context, items, range(len(items)), (), room)
        if not told.summary.strip():
            raise SummaryFailed("nothing_to_say")
        return Summary(told.summary)

    async def condensed(self, context: Context, view: View, plan: Plan, room: int) -> tuple[Summary, dict[Clear, str]]:
        """The summary that needs no model and what stays of each cleared result, together at most `room` local tokens.

        Raises SummaryFailed("nothing_to_say") where a summary is wanted and there is nothing for it.
        """
        told = await in_thread(_size(context), _condensed, context, view, plan, room)
        places = [place for place in plan.clear if not place.inputs]
        if plan.cuts and plan.note == "summary" and not told.summary.strip():
            raise SummaryFailed("nothing_to_say")
        return Summary(told.summary), dict(zip(places, told.results, strict=True))

    async def asked(
        self, context: Context, items: Sequence[Seen], leaving: int, covered: int, room: int, about: str = ""
    ) -> Summary:
        """The model's summary, with what the policy wants repeated verbatim as far as `room` (local tokens) allows. Raises SummaryFailed.

        `about` tells apart several summaries that reach as far (a strategy of the operator's may ask for any). Whoever calls this calls
        `release` in the end.
        """
        name = f"summary {context.ask.tenant} {context.ask.policy.name} {context.chain[covered - 1].hex()}{about}"
        context.flights.append(name)
        flight = self._flights.get(name)
        if flight is None:
            self._forget_finished()
            flight = asyncio.create_task(self._summarize_once(context, items, leaving, room, name))
            flight.add_done_callback(partial(self._flight_done, name))
            self._flights[name] = flight
        return await asyncio.shield(flight)

    async def release(self, context: Context) -> None:
        """What came of this request's summaries is stored, or nothing will be: other replicas may go on."""
        for name in context.flights:
            flight = self._flights.get(name)
            if flight is None or flight.done():  # one that goes on needs its lease
                await self._leases.release(name)
        context.flights.clear()

    async def first_to_write(self, context: Context, what: str, covered: int) -> bool:
        """Wait until nobody else is writing `what` about the first `covered` items; False: it has been written meanwhile.

        Ends with `release`. Whoever has waited for long goes on all the same.
        """
        name = f"{what} {context.ask.tenant} {context.chain[covered - 1].hex()}"
        try:
            async with asyncio.timeout(WRITING_SECONDS):
                first = await self._leases.hold(context, name, GRACE_SECONDS)
        except TimeoutError:
            return True
        if first:
            context.flights.append(name)
        return first

    async def _summarize_once(
        self, context: Context, items: Sequence[Seen], leaving: int, room: int, name: str
    ) -> Summary:
        seconds = context.ask.policy.summary_timeout
        try:
            async with asyncio.timeout(seconds):
                if not await self._leases.hold(context, name, seconds + GRACE_SECONDS):
                    raise SummaryFailed(SETTLED)
                summary = await self._summarizer.summarize(
                    SummaryJob(context.ask, items, leaving, context.counted.ratio)
                )
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        return summary.with_appended(await in_thread(_size(context), _verbatim, context, items, summary.text, room))

    def _flight_done(self, name: str, flight: asyncio.Task[Summary]) -> None:
        """A flight that failed is no use to anybody who comes later; one that nobody waits for may fail in silence."""
        if flight.cancelled() or flight.exception() is not None:
            self._flights.pop(name, None)

    def _forget_finished(self) -> None:
        finished = [name for name, flight in self._flights.items() if flight.done()]
        for name in finished[: max(0, len(finished) - FINISHED_KEPT)]:
            del self._flights[name]


def _size(context: Context) -> int:
    return len(context.ask.opened.body)


def seen(context: Context, view: View, places: Iterable[int]) -> list[Seen]:
    """Items of a view for a summariser: the client's originals, not the placeholders of earlier stages; our own earlier notes."""
    reader, items = context.reader, []
    for at in places:
        facts, piece = view.entries[at].facts, view.pieces[at]
        index = origin(piece)
        if isinstance(piece, Edited) and piece.lead:
            items.append(Seen(Facts("user", note=True), (Part("text", piece.lead),), -1))
        if not facts.stays:
            raw = context.client.raws[index] if index >= 0 else view.raws[at]
            items.append(Seen(facts, reader.parts(raw), index))
    return items


def _condensed(context: Context, view: View, plan: Plan, room: int) -> Condensed:
    """Everything is shown: what leaves, what is cleared, and what stays and therefore need not be repeated."""
    history: list[Seen] = []
    leaving: list[int] = []
    where: dict[int, int] = {}
    for at in range(len(view)):
        shown = seen(context, view, [at])
        where[at] = len(history)
        if plan.start <= at < plan.stop and plan.note == "summary":
            leaving += range(len(history), len(history) + len(shown))
        history += shown
    cleared = []
    for place in plan.clear:
        if not place.inputs:
            index = origin(view.pieces[place.item])
            text = context.reader.results(context.client.raws[index])[place.ordinal]
            cleared.append(Cleared(min(where[place.item], len(history) - 1), text))
    return _condense(context, history, leaving, cleared, room)


def _condense(
    context: Context, history: Sequence[Seen], leaving: Sequence[int], cleared: Sequence[Cleared], room: int
) -> Condensed:
    policy = context.ask.policy
    return condense(
        history, leaving, cleared, room,
        keep_user_messages=policy.keep_user_messages, keep_values=policy.keep_values, count=_counter(context),
    )  # fmt: skip


def _verbatim(context: Context, items: Sequence[Seen], summary: str, room: int) -> str:
    """Exact values and earlier requests, which a model's own words tend to lose, in what its summary leaves of the room."""
    policy, count = context.ask.policy, _counter(context)
    values = requests = ""
    left = room - count(summary)
    if (limit := min(policy.keep_values, left // 4)) > 0:
        values = kept_values(items, limit, count)
    if (limit := min(policy.keep_user_messages, left - count(values))) > 0:
        requests = kept_requests(items, limit, count)
    return "\n\n".join(section for section in (requests, values) if section)


def _counter(context: Context) -> Callable[[str], int]:
    encoding = context.ask.model.encoding
    return lambda text: tokens.count(text, encoding)
