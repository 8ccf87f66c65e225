"""How many tokens a request has, and who says so.

Counting locally is the expensive step, so it is avoided while it can't matter: a text never has more tokens than bytes, hence "counts of
known items plus bytes of unknown ones" below the trigger proves that nothing need be tokenised. Items are counted once and remembered;
large amounts are counted in a thread. Where the provider has reported its own figure for a prefix of this very conversation, the local
count is put on its scale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core import tokens
from app.core.view import View, size_of
from app.formats.reading import Opened, Reader
from app.ports import Session, UsageMark
from app.registry import Model

COUNT_INLINE = 8 << 10
"""Bytes that are tokenised on the event loop (half a millisecond); more goes to a thread."""
COUNT_ALWAYS = 4 << 10
"""Up to so many unknown bytes are counted even where they can't matter, for an honest figure."""
REFERENCE_TOKENS, REFERENCE_BYTES = 3_000, 60
"""What a picture that the body only refers to may cost, and the least JSON that such a reference takes."""
LARGEST_RATIO = 2
"""No provider counts a text as more than so many times the local count; only used where it is not worth looking closer."""


USAGE_MARKS, MODELS = 8, 3
"""Reported prefixes that a session remembers of a model, and of so many models; parallel branches of one session share them."""
NEAR = 0.25
"""How far from the threshold a local count may be off, as a share of it: tokenisers of other families differ so much."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What a provider counts where we count so many: `reported` for `local` tokens, and `ratio` for each token more or less. `source` is
    the rung."""

    source: str
    ratio: float
    reported: int = 0
    local: int = 0

    def of(self, local: int) -> float:
        return max(1.0, self.reported + (local - self.local) * self.ratio)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Input tokens of one request. `ratio` puts local counts on the scale of `source`: of the fixed part, of the items of the client's own
    body, of those that would be forwarded. `exact` says that every item was counted."""

    source: str
    ratio: float
    fixed: int
    client: int
    view: int
    exact: bool

    @property
    def before(self) -> int:
        return int((self.client + self.fixed) * self.ratio)

    @property
    def now(self) -> int:
        return int((self.view + self.fixed) * self.ratio)

    def near(self, trigger: int) -> bool:
        """Could a better count decide otherwise?"""
        local = self.source in ("tiktoken", "approximate") and self.exact
        return local and trigger * (1 - NEAR) <= self.now <= trigger * (1 + NEAR)

    def told(self, now: int, source: str = "") -> Estimate:
        """The same request, where somebody who knows better says what would be forwarded."""
        return replace(self, ratio=now / max(1, self.view + self.fixed), source=source or self.source)

    def of(self, view: View) -> int:
        """The same scale for another view of the same request."""
        return int((local(view) + self.fixed) * self.ratio)


def local(view: View) -> int:
    """Local tokens of a view's items; those that were not counted at a quarter of their bytes."""
    pairs = zip(view.raws, view.entries, strict=True)
    return sum(entry.tokens if entry.tokens >= 0 else size_of(raw) // 4 for raw, entry in pairs)


def tiny(opened: Opened, trigger: int) -> bool:
    """Proof without reading: a token takes at least a byte, and what lies elsewhere takes a reference."""
    return len(opened.body) * REFERENCE_TOKENS // REFERENCE_BYTES < trigger


def bound(opened: Opened, view: View) -> int:
    """The local count of this request is not above: counts of known items, bytes of the others, media at their figure."""
    pairs = zip(view.raws, view.entries, strict=True)
    items = sum(entry.tokens if entry.tokens >= 0 else size_of(raw) + entry.media for raw, entry in pairs)
    return items + sum(map(size_of, opened.fields.raw.values()))


def roughly(opened: Opened, view: View) -> int:
    """An honest guess where nothing is tokenised: counts of known items, a quarter of all other bytes."""
    return local(view) + sum(map(size_of, opened.fields.raw.values())) // 4


async def estimate(reader: Reader, opened: Opened, client: View, view: View, scale: Scale, trigger: int) -> Estimate:
    """Count what has to be counted. `client` is the view of the client's own body, `view` the one that would be forwarded; `scale` as
    `scale_of` gives it."""
    fixed = reader.fixed(opened)
    unknown = [(raw, entry) for raw, entry in zip(client.raws, client.entries, strict=True) if entry.tokens < 0]
    fixed_bytes = 0 if fixed.tokens >= 0 else sum(map(size_of, opened.fields.raw.values()))
    unknown_bytes = fixed_bytes + sum(size_of(raw) for raw, _ in unknown)
    exact = unknown_bytes <= COUNT_ALWAYS or bound(opened, client) * LARGEST_RATIO >= trigger
    source = scale.source
    if exact:
        await fill(reader, client)
        await _run(fixed_bytes, reader.count_fixed, opened, fixed)
        await fill(reader, view)
    if source == "tiktoken":
        source = tokens.source(reader.encoding) if exact else "approximate"
    base = fixed.tokens if fixed.tokens >= 0 else fixed_bytes // 4
    forwarded = local(view)
    ratio = scale.of(forwarded + base) / max(1, forwarded + base)
    return Estimate(source, ratio, base, local(client), forwarded, exact)


def scale_of(chain: Sequence[bytes], session: Session | None, model: Model) -> Scale:
    """From the longest prefix of this conversation that the model's provider has reported on, else from what this session has seen of the
    model so far, else from what is known of its tokeniser."""
    marks = [mark for mark in session.usages if mark.model == model.name and mark.local > 0] if session else []
    if not marks:
        return Scale("tiktoken", model.fact("token_ratio", 1.0))
    known = {mark.chain: mark for mark in reversed(marks)}
    mark = next((known[link] for link in reversed(chain) if link in known), None)
    if mark is None:
        return Scale("tiktoken", marks[0].reported / marks[0].local)
    return Scale(mark.source, _slope(mark, marks), mark.reported, mark.local)


def _slope(mark: UsageMark, marks: Sequence[UsageMark]) -> float:
    """Reported tokens for a local one more."""
    return mark.reported / mark.local


def remembered(mark: UsageMark, marks: Sequence[UsageMark]) -> tuple[UsageMark, ...]:
    """A session's marks, newest first, with one more: a model keeps its latest, whatever other models the session uses in between."""
    kept: list[UsageMark] = [mark]
    for old in marks:
        same = [one for one in kept if one.model == old.model]
        if len(same) < USAGE_MARKS and all(one.chain != old.chain for one in same):
            kept.append(old)
    return tuple(kept[: USAGE_MARKS * MODELS])


async def fill(reader: Reader, view: View) -> None:
    """Count the items of a view that have no count yet."""
    todo = [(raw, entry) for raw, entry in zip(view.raws, view.entries, strict=True) if entry.tokens < 0]
    if todo:
        raws, entries = [raw for raw, _ in todo], [entry for _, entry in todo]
        await _run(sum(map(size_of, raws)), reader.count, raws, entries)


async def _run(size: int, work: Callable[..., None], *args: Any) -> None:
    if size <= COUNT_INLINE:
        work(*args)
    else:
        await asyncio.to_thread(work, *args)
