"""A conversation played again, request by request, to see what a policy makes of it: nothing is sent, nothing is stored.

A client resends its whole history before each of the model's steps. So one saved body stands for all the requests that led to it, and a
file of saved bodies, one a line, is played as it is. What each request shares with the one before it, item by item from the front, a
provider would have had in its cache: that is where a policy's steps cost, and it is counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core import jsonspan
from app.core.jsonspan import Slice
from app.core.view import EntryCache, raw_bytes, size_of
from app.edge.preview import Trial
from app.formats import FORMATS
from app.formats.base import Format
from app.formats.reading import Opened, Reader, open_body
from app.request import Ask, Outcome
from app.settings import Settings

CACHE_READ, CACHE_WRITE = 0.1, 1.25
"""What a token costs that the cache has, and one that it gets, in tokens without a cache: the usual list prices."""

_KNOWN = EntryCache()
"""Items are counted once, however often they are sent."""


@dataclass(slots=True)
class Bill:
    """What a row of requests costs where there is a prompt cache, in tokens at the price without one. `breaks`: requests that did not go on
    from where the one before ended."""

    cost: float = 0.0
    tokens: int = 0
    breaks: int = 0
    _last: list[bytes] = field(default_factory=list)

    def add(self, items: Sequence[Slice], counts: Sequence[int]) -> float:
        """The next request: its parts as sent, the tokens of each. Returns the share of it that was cached."""
        now = [raw_bytes(item) for item in items]
        same = next((at for at, (one, other) in enumerate(zip(now, self._last, strict=False)) if one != other), None)
        shared = min(len(now), len(self._last)) if same is None else same
        self.breaks += shared < len(self._last)
        cached, whole = sum(counts[:shared]), sum(counts)
        self.cost += cached * CACHE_READ + (whole - cached) * CACHE_WRITE
        self.tokens += whole
        self._last = now
        return cached / whole if whole else 0.0


async def replay_bodies(
    settings: Settings, given: Iterable[tuple[str, bytes]], policy: str | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each request that these bodies (path, body) stand for, and a sum: counts, tokens, relative cost.

    A body that would not be looked at is told in the sum, under `not_looked_at`.
    """
    trial = Trial(settings)
    direct, through = Bill(), Bill()
    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    bodies = list(given)
    for path, body in bodies:
        ask = trial.ask(path, body, policy)
        if isinstance(ask, str):
            refused.append(ask)
            continue
        led = requests_of(FORMATS[ask.format], body) if len(bodies) == 1 else iter((body,))
        for asked in (trial.ask(path, request, policy) for request in led):
            if isinstance(asked, Ask):
                rows.append(_row(len(rows) + 1, asked, await trial.decide(asked), direct, through))
    total: dict[str, Any] = {
        "requests": len(rows), "compactions": sum(row["outcome"] == "compacted" for row in rows),
        "prefix_breaks": through.breaks, "tokens": direct.tokens, "tokens_sent_on": through.tokens,
    }  # fmt: skip
    if direct.cost:
        total["cost"] = (
            f"{through.cost / direct.cost:.2f} of the direct one (estimate: cache reads {CACHE_READ:.0%}, writes {CACHE_WRITE:.0%})"
        )
    if refused:
        total["not_looked_at"] = f"{len(refused)}: {refused[0]}"
    if trial.warnings:
        total["warnings"] = "; ".join(dict.fromkeys(trial.warnings))
    return rows, total


def _row(number: int, ask: Ask, outcome: Outcome, direct: Bill, through: Bill) -> dict[str, Any]:
    asked = _counted(ask, ask.opened)
    direct.add(*asked)
    sent = _counted(ask, open_body(FORMATS[ask.format], outcome.body)) if outcome.changed else asked
    cached = through.add(*sent)
    return {
        "request": number, "items": len(ask.opened.raws), "tokens": sum(asked[1]), "sent_on": sum(sent[1]), "outcome": outcome.result,
        "strategy": outcome.strategy, "level": outcome.level, "cached": round(cached, 4), "reason": outcome.reason,
    }  # fmt: skip


def _counted(ask: Ask, opened: Opened) -> tuple[list[Slice], list[int]]:
    """The parts of a body and the tokens of each by the local count: what stands around the history, then its items."""
    reader = Reader(FORMATS[ask.format], ask.model.encoding, _KNOWN)
    entries = reader.entries(opened.raws)
    reader.count(opened.raws, entries)
    fixed = reader.fixed(opened)
    reader.count_fixed(opened, fixed)
    return [b"", *opened.raws], [fixed.tokens, *(entry.tokens for entry in entries)]


_COLUMNS = {
    "request": ">7", "items": ">5", "tokens": ">9,", "sent_on": ">9,", "outcome": "<9", "strategy": "<20", "level": ">5", "cached": ">6.0%",
    "reason": "",
}  # fmt: skip
"""Key of a row -> how it is written."""


def table(rows: Sequence[dict[str, Any]], total: dict[str, Any]) -> Iterator[str]:
    """Rows and sum as lines of text."""
    yield "  ".join(f"{key:{form.rstrip(',%').removesuffix('.0')}}" for key, form in _COLUMNS.items())
    for row in rows:
        shown = {**row, "level": row["level"] or ""}
        yield "  ".join(f"{shown[key]:{form}}" for key, form in _COLUMNS.items()).rstrip()
    yield ""
    for key, value in total.items():
        told = f"{value:,}" if isinstance(value, int) else value
        yield f"{key.replace('_', ' ') + ':':<20}{told}"


def requests_of(form: Format, body: bytes) -> Iterator[bytes]:
    """The requests that led to this one, each as a body, the body itself last unless the model has spoken last.

    Raises NotCompactable for a body that can't be looked into.
    """
    opened = open_body(form, body)
    roles = [form.facts(jsonspan.value(raw)).role for raw in opened.raws]
    sizes = [size_of(raw) for raw in opened.raws]
    for at in range(1, len(roles)):
        if roles[at] == "assistant" and roles[at - 1] in ("user", "tool"):
            yield jsonspan.splice(body, form.history, range(at), sizes)
    if not roles or roles[-1] != "assistant":
        yield body
