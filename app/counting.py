"""How many tokens a request has, and who says so.

Counting locally is the expensive step, so it is avoided while it can't matter: a text never has more tokens than bytes, hence "counts of
known items plus bytes of unknown ones" below the trigger proves that nothing need be tokenised. Items are counted once and remembered;
large amounts are counted in a thread. Where the provider has reported its own figure for a prefix of this very conversation, the local
count is put on its scale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.view import View, size_of
from app.formats.reading import Opened, Reader
from app.ports import Session

COUNT_INLINE = 8 << 10
"""Bytes that are tokenised on the event loop (half a millisecond); more goes to a thread."""
COUNT_ALWAYS = 4 << 10
"""Up to so many unknown bytes are counted even where they can't matter, for an honest figure."""
REFERENCES = (b'url"', b"file_id", b"ile_uri", b"ileUri")
"""Traces of media that are not in the body: their tokens are not bounded by its bytes."""
REFERENCE_TOKENS = 3_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Input tokens of one request. `ratio` puts local counts on the scale of `source`; `exact` says that every item was counted."""

    source: str
    ratio: float
    fixed: int
    before: int
    now: int
    exact: bool

    def of(self, view: View) -> int:
        """The same scale for another view of the same request."""
        return int((local(view) + self.fixed) * self.ratio)


def local(view: View) -> int:
    """Local tokens of a view's items; those that were not counted at a quarter of their bytes."""
    pairs = zip(view.raws, view.entries, strict=True)
    return sum(entry.tokens if entry.tokens >= 0 else size_of(raw) // 4 for raw, entry in pairs)


def most_tokens(opened: Opened) -> int:
    """More tokens than this body can't have: a byte each, and what lies elsewhere."""
    return len(opened.body) + _elsewhere(opened)


def _elsewhere(opened: Opened) -> int:
    """A generous figure for media that the body only refers to."""
    return sum(opened.body.count(trace) for trace in REFERENCES) * REFERENCE_TOKENS


async def estimate(
    reader: Reader,
    opened: Opened,
    client: View,
    view: View,
    chain: Sequence[bytes],
    session: Session | None,
    trigger: int,
) -> Estimate:
    """Count what has to be counted. `client` is the view of the client's own body, `view` the one that would be forwarded."""
    fixed = reader.fixed(opened)
    unknown = [(raw, entry) for raw, entry in zip(client.raws, client.entries, strict=True) if entry.tokens < 0]
    fixed_bytes = 0 if fixed.tokens >= 0 else sum(map(size_of, opened.fields.raw.values()))
    unknown_bytes = fixed_bytes + sum(size_of(raw) for raw, _ in unknown)
    known = max(0, fixed.tokens) + sum(entry.tokens for entry in client.entries if entry.tokens >= 0)
    exact = unknown_bytes <= COUNT_ALWAYS or known + unknown_bytes + _elsewhere(opened) >= trigger
    source, ratio = _scale(chain, session)
    if exact:
        await fill(reader, client)
        await _run(fixed_bytes, reader.count_fixed, opened, fixed)
        await fill(reader, view)
    elif source != "usage":
        source = "approximate"
    base = fixed.tokens if fixed.tokens >= 0 else fixed_bytes // 4
    return Estimate(source, ratio, base, int((local(client) + base) * ratio), int((local(view) + base) * ratio), exact)


def _scale(chain: Sequence[bytes], session: Session | None) -> tuple[str, float]:
    """The rung and the ratio of reported to local tokens: of the longest prefix that a provider has reported on."""
    if session and session.usages:
        depth = {link: at for at, link in enumerate(chain)}
        known = [mark for mark in session.usages if mark.chain in depth and mark.local > 0]
        if known:
            mark = max(known, key=lambda mark: depth[mark.chain])
            return "usage", mark.reported / mark.local
    return "tiktoken", session.ratio if session and session.ratio > 0 else 1.0


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
