"""How many tokens a request has, and who says so.

Counting locally is the expensive step, so it is avoided while it can't matter: a text never has more tokens than bytes, hence "counts of
known items plus bytes of unknown ones" below the trigger proves that nothing need be tokenised. Items are counted once and remembered;
large amounts are counted in a thread. Where the provider has reported its own figure for a prefix of this very conversation, the local
count is put on its scale: by what this session has seen of the model, and where that is little yet, by what earlier ones have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core import tokens
from app.core.recent import Recent
from app.core.view import View, size_of
from app.formats.reading import Opened, Reader
from app.records import Session, UsageMark
from app.registry import Model
from app.threads import in_thread

COUNT_INLINE = 8 << 10
"""Bytes that are tokenised on the event loop (half a millisecond); more goes to a thread."""
COUNT_ALWAYS = 4 << 10
"""Up to so many unknown bytes are counted even where they can't matter, for an honest figure."""
REFERENCE_BYTES = 60
"""The least JSON that a reference to a picture or a file takes."""
LARGEST_RATIO = 2
"""No provider counts a text as more than so many times the local count; only used where it is not worth looking closer."""


USAGE_MARKS, MODELS = 8, 3
"""Reported prefixes that a session remembers of a model, and of so many models; parallel branches of one session share them."""
UNSEEN, RATIO_OFF = 300, 0.3
"""By how much the usual values may be off: tokens that are in no text, share of the model's usual ratio."""
NOISE, NOISE_SHARE = 10, 0.005
"""By how much one report may be off the scale of its session, tokens and share: no two texts have quite the same ratio."""
SURE, LEARNT_OFF = 0.01, 0.03
"""A session's ratio is learnt once it is off by no more than the first (standard error, share); another session's ratio of the same model
may be off that by the second: they speak of other things."""
LEARNT = 4_096
"""Ratios that are remembered."""
NEAR = 0.25
"""How far from the threshold a local count may be off, as a share of it: tokenisers of other families differ so much."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From local counts to a provider's: `ratio` of its tokens for each of ours, and `unseen` of ours on top, which are in no text (its own
    words about tools, media that it counts otherwise; less than nothing where it counts less). `source` is the rung."""

    source: str
    ratio: float
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Input tokens of one request: the local counts of system and tools (`head`), of the items of the client's own body and of those that
    would be forwarded, and the scale that they are on. `exact` says that every item was counted."""

    scale: Scale
    head: int
    client: int
    view: int
    exact: bool

    @property
    def source(self) -> str:
        return self.scale.source

    @property
    def ratio(self) -> float:
        return self.scale.ratio

    @property
    def fixed(self) -> int:
        """Local tokens besides the items'."""
        return self.head + self.scale.unseen

    @property
    def before(self) -> int:
        return self._scaled(self.client)

    @property
    def now(self) -> int:
        return self._scaled(self.view)

    def of(self, view: View) -> int:
        """The same scale for another view of the same request."""
        return self._scaled(local(view))

    def _scaled(self, items: int) -> int:
        return max(1, int((items + self.fixed) * self.ratio))

    def near(self, trigger: int) -> bool:
        """Could a better count decide otherwise?"""
        counted = self.exact and self.source in ("tiktoken", "approximate")
        return counted and trigger * (1 - NEAR) <= self.now <= trigger * (1 + NEAR)

    def told(self, now: int, source: str = "") -> Estimate:
        """The same request, where somebody who knows better says what would be forwarded."""
        ratio = self.ratio * now / self.now
        return replace(self, scale=replace(self.scale, ratio=ratio, source=source or self.source))


def local(view: View) -> int:
    """Local tokens of a view's items that are read; those that were not counted at a quarter of their bytes."""
    counts = [entry.tokens for entry in view.read]
    if min(counts, default=0) < 0:
        raws = view.raws[len(view) - len(counts) :]
        counts = [count if count >= 0 else size_of(raw) // 4 for count, raw in zip(counts, raws, strict=True)]
    return sum(counts)


def cannot_reach(tokens: int, opened: Opened, reference: int) -> bool:
    """Proof without reading: a token takes at least a byte, and what lies elsewhere takes a reference, for at most so many tokens."""
    return len(opened.body) * max(1, reference // REFERENCE_BYTES) < tokens


def upper_bound(opened: Opened, view: View) -> int:
    """The local count of this request is not above: counts of known items, bytes of the others, media at their figure."""
    pairs = zip(view.raws, view.entries, strict=True)
    items = sum(entry.tokens if entry.tokens >= 0 else size_of(raw) + entry.media for raw, entry in pairs)
    return items + sum(map(size_of, opened.fields.raw.values()))


def rough_count(opened: Opened, view: View) -> int:
    """An honest guess where nothing is tokenised: counts of known items, a quarter of all other bytes."""
    return local(view) + sum(map(size_of, opened.fields.raw.values())) // 4


async def estimate(reader: Reader, opened: Opened, client: View, view: View, scale: Scale, trigger: int) -> Estimate:
    """Count what has to be counted. `client` is the view of the client's own body, `view` the one that would be forwarded; `scale` as
    `scale_of` gives it."""
    fixed = reader.fixed(opened)
    unknown = [(raw, entry) for raw, entry in zip(client.raws, client.entries, strict=True) if entry.tokens < 0]
    fixed_bytes = 0 if fixed.tokens >= 0 else sum(map(size_of, opened.fields.raw.values()))
    unknown_bytes = fixed_bytes + sum(size_of(raw) for raw, _ in unknown)
    exact = unknown_bytes <= COUNT_ALWAYS or upper_bound(opened, client) * LARGEST_RATIO >= trigger
    if exact:
        await fill(reader, client)
        await _run(fixed_bytes, reader.count_fixed, opened, fixed)
        await fill(reader, view)
    if scale.source == "tiktoken":
        scale = replace(scale, source=tokens.source(reader.encoding) if exact else "approximate")
    head = fixed.tokens if fixed.tokens >= 0 else fixed_bytes // 4
    return Estimate(scale, head, local(client), local(view), exact)


@dataclass(frozen=True, slots=True)
class Fit:
    """What marks say of a model: reported = (local + `unseen`) x `ratio`; `error` is the ratio's standard error, as a share of it."""

    unseen: float
    ratio: float
    error: float


def fitted(marks: Sequence[UsageMark], usual: float, off: float = RATIO_OFF) -> Fit:
    """The least squares of the marks; the ratio is within a factor of two of the `usual` one.

    The first marks of a session say little: with little text, what is unseen looks like a higher ratio. So the usual values count as marks
    of a kind as well, each for as much as it is usually off by (`off`: that of the ratio, a share).
    """
    above = 1 / UNSEEN**2
    w, x, xx, y, xy = above, 0.0, 1 / (usual * off) ** 2, 0.0, 1 / (usual * off**2)
    for mark in marks:
        weight = 1 / (NOISE + NOISE_SHARE * mark.local) ** 2
        w += weight
        x += weight * mark.local
        xx += weight * mark.local**2
        y += weight * mark.reported
        xy += weight * mark.local * mark.reported
    spread = w * xx - x * x
    ratio = (w * xy - x * y) / spread
    error = math.sqrt(w / spread) / ratio if ratio > 0 else math.inf
    ratio = min(max(ratio, usual / LARGEST_RATIO), usual * LARGEST_RATIO)
    return Fit((y - x * ratio) / w / ratio, ratio, error)


class Ratios:
    """The ratios that a tenant's sessions have shown of each model so far, by upstream: a new session begins where they ended. Bounded, and
    this process's own: another replica soon learns the same."""

    def __init__(self) -> None:
        self._learnt: Recent[tuple[str, str, str], float] = Recent(LEARNT)

    def of(self, tenant: str, upstream: str, model: Model) -> float | None:
        """None: nothing was learnt yet."""
        return self._learnt.get((tenant, upstream, model.name))

    def learn(self, tenant: str, upstream: str, model: Model, marks: Sequence[UsageMark]) -> None:
        """From a session's marks, if they say enough. What others have shown does not count, so that no error feeds itself."""
        fit = fitted([mark for mark in marks if mark.model == model.name], _usual(model))
        if fit.error > SURE:
            return
        self._learnt.put((tenant, upstream, model.name), fit.ratio)


def scale_of(chain: Sequence[bytes], session: Session | None, model: Model, learnt: float | None = None) -> Scale:
    """From the longest prefix of this conversation that the model's provider has reported on, and from what this session has seen of the
    model so far; where there is nothing, from what other sessions have (`learnt`) or what is known of its tokeniser."""
    marks = [mark for mark in session.usages if mark.model == model.name] if session else []
    fit = fitted(marks, _usual(model)) if learnt is None else fitted(marks, learnt, LEARNT_OFF)
    known = {mark.chain: mark for mark in reversed(marks)}
    mark = next((known[link] for link in reversed(chain) if link in known), None) if known else None
    if mark is None:
        return Scale("tiktoken", fit.ratio, int(fit.unseen))
    return Scale(mark.source, fit.ratio, round(mark.reported / fit.ratio) - mark.local)


def _usual(model: Model) -> float:
    return model.fact("token_ratio", 1.0) or 1.0


def mark(link: bytes, model: Model, estimate: Estimate, forwarded: View, reported: int) -> UsageMark | None:
    """What to remember of a request: what its provider reported (tokens, 0 if it did not), else what it had counted when asked."""
    if reported <= 0 and estimate.source == "provider" and estimate.exact:
        return UsageMark(link, estimate.head + estimate.view, estimate.now, model.name, "provider")
    local_tokens = estimate.head + forwarded.tokens
    return (
        UsageMark(link, local_tokens, reported, model.name)
        if reported > 0 and local_tokens > 0 and estimate.exact
        else None
    )


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
        await in_thread(size, work, *args)
