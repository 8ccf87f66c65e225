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

from app.core.view import View, size_of
from app.formats.reading import Opened, Reader
from app.ports import Session
from app.registry import Model

COUNT_INLINE = 8 << 10
"""Bytes that are tokenised on the event loop (half a millisecond); more goes to a thread."""
COUNT_ALWAYS = 4 << 10
"""Up to so many unknown bytes are counted even where they can't matter, for an honest figure."""
REFERENCE_TOKENS, REFERENCE_BYTES = 3_000, 60
"""What a picture that the body only refers to may cost, and the least JSON that such a reference takes."""
LARGEST_RATIO = 2
"""No provider counts a text as more than so many times the local count; only used where it is not worth looking closer."""


NEAR = 0.25
"""How far from the threshold a local count may be off, as a share of it: tokenisers of other families differ so much."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Input tokens of one request. `ratio` puts local counts on the scale of `source`; `exact` says that every item was counted."""

    source: str
    ratio: float
    fixed: int
    before: int
    now: int
    exact: bool

    def near(self, trigger: int) -> bool:
        """Could a better count decide otherwise?"""
        return self.source == "tiktoken" and self.exact and trigger * (1 - NEAR) <= self.now <= trigger * (1 + NEAR)

    def scaled(self, factor: float) -> Estimate:
        """The same request, where the count has turned out to be off by so much."""
        return replace(
            self, ratio=self.ratio * factor, before=int(self.before * factor), now=int(self.now * factor)
        )

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


async def estimate(
    reader: Reader, opened: Opened, client: View, view: View, scale: tuple[str, float], trigger: int
) -> Estimate:
    """Count what has to be counted. `client` is the view of the client's own body, `view` the one that would be forwarded; `scale` as
    `scale_of` gives it."""
    fixed = reader.fixed(opened)
    unknown = [(raw, entry) for raw, entry in zip(client.raws, client.entries, strict=True) if entry.tokens < 0]
    fixed_bytes = 0 if fixed.tokens >= 0 else sum(map(size_of, opened.fields.raw.values()))
    unknown_bytes = fixed_bytes + sum(size_of(raw) for raw, _ in unknown)
    exact = unknown_bytes <= COUNT_ALWAYS or bound(opened, client) * LARGEST_RATIO >= trigger
    source, ratio = scale
    if exact:
        await fill(reader, client)
        await _run(fixed_bytes, reader.count_fixed, opened, fixed)
        await fill(reader, view)
    elif source != "usage":
        source = "approximate"
    base = fixed.tokens if fixed.tokens >= 0 else fixed_bytes // 4
    return Estimate(source, ratio, base, int((local(client) + base) * ratio), int((local(view) + base) * ratio), exact)


def scale_of(chain: Sequence[bytes], session: Session | None, model: Model) -> tuple[str, float]:
    """The rung and the ratio of reported to local tokens: of the longest prefix that a provider has reported on, else of this session so
    far, else what is known of the model's tokeniser."""
    if session and session.usages:
        depth = {link: at for at, link in enumerate(chain)}
        known = [mark for mark in session.usages if mark.chain in depth and mark.local > 0]
        if known:
            mark = max(known, key=lambda mark: depth[mark.chain])
            return "usage", mark.reported / mark.local
    return "tiktoken", session.ratio if session and session.ratio > 0 else model.fact("token_ratio", 1.0)


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
