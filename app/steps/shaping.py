"""What a policy takes out of every request, compacted or not: results that are too long, and what earlier turns need not show any more.

A function of the conversation alone (and of where its current turn begins), so the same history gives the same bytes on every request and
replica without anything being stored. Applied to the view after the replay, before anything is counted. What would break a request is not
done here either: a shape that adds a violation is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from sys import getsizeof

import xxhash

from app.core import rules
from app.core.notes import cut_result, left_out_result
from app.core.plan import rebuilt
from app.core.recent import K, Recent, V
from app.core.view import Clearing, Edited, Note, Piece, View, origin
from app.formats.reading import result_key
from app.request import Context
from app.settings import Policy
from app.steps.earlier_turns import EarlierTurns
from app.steps.thinking import earlier_reasoning

SHORT_RESULT = 200
"""Tokens that `compact_tool_results` leaves of a result of an earlier turn."""
SHORTENED_BYTES, REMEMBERED = 8 << 20, 10_000
"""What is remembered of shortened results, and the items about which a question is remembered."""
REWRITES_RESULTS = frozenset({"no_tool_results", "compact_tool_results", "messages_only"})

Address = Callable[[str], str]
"""Where a result can be read, by a key that depends on its content."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A result that `max_tool_result_tokens` cut: item of the client's history, its ordinal there, the key that its archive is named by."""

    index: int
    ordinal: int
    key: str


Shortened = tuple[tuple[Clearing, ...], tuple[tuple[int, str], ...]]
"""Clearings of one item, and (ordinal, key) of those that need an archive."""


def _bytes_of(_: tuple[object, ...], shortened: Shortened) -> int:
    """Measured, with its key."""
    return 780 + sum(300 + getsizeof(clearing.text) for clearing in shortened[0])


def shapes(policy: Policy) -> bool:
    """Does this policy shape requests at all?"""
    return policy.history_mode != "full" or policy.max_tool_result_tokens is not None


@dataclass(slots=True)
class Shaping:
    """One for all requests: results come back with every request, and to tokenise them each time would be dear."""

    _shortened: Recent[tuple[object, ...], Shortened] = field(
        default_factory=lambda: Recent(SHORTENED_BYTES, _bytes_of)
    )
    _known: Recent[bytes, bool] = field(default_factory=lambda: Recent(REMEMBERED))

    def shape(self, context: Context, address: Address, count: Callable[[str], int]) -> tuple[View, list[Cut]]:
        """The shaped view, and what was cut by `max_tool_result_tokens`; `count` counts tokens of a text. Slow where items are new."""
        view, reader = context.view, context.reader
        shape = _Shape(self, context, address, count)
        pieces = shape.pieces()
        if pieces == view.pieces:
            return view, []
        shaped = rebuilt(context.client, pieces, view.covered, reader.rewrite, reader.entries)
        # Clearing and baring keep every item, call and result in its place.
        if shape.removes and rules.violations(shaped.facts) - rules.violations(view.facts):
            return view, []
        return shaped, shape.cuts

    def shortened(self, key: tuple[object, ...], work: Callable[[], Shortened]) -> Shortened:
        """What `work` says, remembered under this key."""
        return _remembered(self._shortened, key, work)

    def known(self, key: bytes, work: Callable[[], bool]) -> bool:
        """The same for a question about one item."""
        return _remembered(self._known, key, work)


def _remembered(recent: Recent[K, V], key: K, work: Callable[[], V]) -> V:
    found = recent.get(key)
    if found is None:
        found = work()
        recent.put(key, found)
    return found


class _Shape:
    """One request's shape: what its standing rules take out of each of its items."""

    def __init__(self, shaping: Shaping, context: Context, address: Address, count: Callable[[str], int]) -> None:
        self._shaping, self._context, self._address, self._count = shaping, context, address, count
        self._view, self._facts = context.view, context.view.facts
        policy, bound = context.ask.policy, earlier_reasoning(context)
        self._cap = policy.max_tool_result_tokens
        self._mode = "full" if bound == "keep" and policy.history_mode in REWRITES_RESULTS else policy.history_mode
        self._strips = self._mode == "no_reasoning" or (bound == "strip" and self._mode in REWRITES_RESULTS)
        self._pairing = rules.pair(self._facts) if self._mode in REWRITES_RESULTS else None
        self._earlier = EarlierTurns(context, self._pairing, shaping.known)
        self._ask = (context.ask.format, context.ask.model.encoding, self._cap, address(""))
        self.cuts: list[Cut] = []
        self.removes = False

    def pieces(self) -> list[Piece]:
        """Where the items of the shaped view come from."""
        gone: set[int] = set()
        mute: set[int] = set()
        if self._mode == "messages_only":
            gone, mute = self._earlier.traffic()
        elif self._mode == "no_reasoning":
            gone = self._earlier.lone_reasoning()
        self.removes = bool(gone or mute)
        bare = (self._earlier.reasoning() if self._strips else set()) | self._earlier.freed(gone)
        pieces: list[Piece] = []
        for at, piece in enumerate(self._view.pieces):
            if at in gone:
                continue
            facts = self._facts[at]
            if isinstance(piece, Note) or facts.pinned:
                pieces.append(piece)
                continue
            cleared = self._cleared(at, origin(piece)) if facts.results else ()
            pieces.append(_edited(piece, cleared, at in bare, at in mute))
        return pieces

    # Results

    def _cleared(self, at: int, index: int) -> tuple[Clearing, ...]:
        facts, policy = self._facts[at], self._context.ask.policy
        earlier = at in self._earlier and self._pairing is not None
        mine = [
            ordinal
            for ordinal, result in enumerate(facts.results)
            if earlier and result.clearable and self._earlier.tool(at, ordinal) not in policy.exclude_tools
        ]
        if self._mode == "no_tool_results" and mine:
            left_out = tuple(Clearing(ordinal, left_out_result(self._earlier.tool(at, ordinal))) for ordinal in mine)
            rest = tuple(clearing for clearing in self._shortened(at, index, ()) if clearing.ordinal not in mine)
            return (*left_out, *rest)
        return self._shortened(at, index, tuple(mine) if self._mode == "compact_tool_results" else ())

    def _shortened(self, at: int, index: int, short: tuple[int, ...]) -> tuple[Clearing, ...]:
        """Results that are too long, with their heads and tails; `short` are the ordinals of those that shall be short."""
        facts, entry = self._facts[at], self._view.entries[at]
        most = {
            ordinal: min(SHORT_RESULT if ordinal in short else result.size, self._cap or result.size)
            for ordinal, result in enumerate(facts.results)
        }
        # A token is a byte at least. What holds pictures besides its text stays: they could not be read anywhere else.
        long = [at for at, limit in most.items() if facts.results[at].clearable and facts.results[at].size > limit]
        if not long or entry.media:
            return ()
        key = (xxhash.xxh3_128_digest(self._context.client.raws[index]), short, self._ask)
        cleared, cuts = self._shaping.shortened(key, lambda: self._cut(index, {at: most[at] for at in long}))
        self.cuts += [Cut(index, ordinal, name) for ordinal, name in cuts]
        return cleared

    def _cut(self, index: int, most: dict[int, int]) -> Shortened:
        cleared, cuts = [], []
        texts = self._context.reader.results(self._context.client.raws[index])
        for ordinal, limit in most.items():
            text = texts[ordinal]
            total = self._count(text)
            capped = self._cap is not None and total > self._cap
            name = result_key(text)
            if total <= limit:
                continue
            short = cut_result(text, total, limit, self._address(name) if capped else "")
            if self._count(short) >= total:
                continue
            cleared.append(Clearing(ordinal, short))
            if capped:
                cuts.append((ordinal, name))
        return tuple(cleared), tuple(cuts)


def _edited(piece: int | Edited, cleared: tuple[Clearing, ...], bare: bool, mute: bool) -> Piece:
    """The piece with that done to it too; what a compaction cleared stays as that left it."""
    if isinstance(piece, int):
        return Edited(piece, cleared, bare=bare, mute=mute) if cleared or bare or mute else piece
    before = {(done.ordinal, done.inputs) for done in piece.cleared}
    new = tuple(clearing for clearing in cleared if (clearing.ordinal, clearing.inputs) not in before)
    return replace(piece, cleared=(*piece.cleared, *new), bare=piece.bare or bare, mute=piece.mute or mute)
