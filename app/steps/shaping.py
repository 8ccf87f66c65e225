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

from app.core import jsonspan, rules
from app.core.notes import cut_result, left_out_result
from app.core.plan import rebuilt
from app.core.recent import K, Recent, V
from app.core.view import Clearing, Edited, Note, Piece, View, origin
from app.errors import NotCompactable
from app.formats.reading import result_key
from app.request import Context
from app.settings import Policy
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
    return 700 + sum(300 + getsizeof(clearing.text) for clearing in shortened[0])


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
    """One request's shape."""

    def __init__(self, shaping: Shaping, context: Context, address: Address, count: Callable[[str], int]) -> None:
        self._shaping, self._context, self._address, self._count = shaping, context, address, count
        self._view, self._facts = context.view, context.view.facts
        policy, bound = context.ask.policy, earlier_reasoning(context)
        self._cap = policy.max_tool_result_tokens
        self._mode = "full" if bound == "keep" and policy.history_mode in REWRITES_RESULTS else policy.history_mode
        self._strips = self._mode == "no_reasoning" or (bound == "strip" and self._mode in REWRITES_RESULTS)
        request = rules.current_turn(self._facts)
        self._start = rules.head_end(self._facts)
        # Without a request there is no telling what is earlier.
        self._stop = request if request < len(self._facts) else self._start
        self._pairing = rules.pair(self._facts) if self._mode in REWRITES_RESULTS else None
        self._ask = (context.ask.format, context.ask.model.encoding, self._cap, address(""))
        self.cuts: list[Cut] = []
        self.removes = False

    def pieces(self) -> list[Piece]:
        """Where the items of the shaped view come from."""
        gone: set[int] = set()
        mute: set[int] = set()
        if self._mode == "messages_only":
            gone, mute = self._traffic()
        elif self._mode == "no_reasoning":
            gone = self._lone()
        self.removes = bool(gone or mute)
        bare = (self._reasoning() if self._strips else set()) | self._freed(gone)
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
        earlier = self._start <= at < self._stop and self._pairing is not None
        mine = [
            ordinal
            for ordinal, result in enumerate(facts.results)
            if earlier and result.clearable and self._tool(at, ordinal) not in policy.exclude_tools
        ]
        if self._mode == "no_tool_results" and mine:
            left_out = tuple(Clearing(ordinal, left_out_result(self._tool(at, ordinal))) for ordinal in mine)
            rest = tuple(clearing for clearing in self._shortened(at, index, ()) if clearing.ordinal not in mine)
            return (*left_out, *rest)
        return self._shortened(at, index, tuple(mine) if self._mode == "compact_tool_results" else ())

    def _tool(self, at: int, ordinal: int) -> str:
        return self._pairing.tool(self._facts, (at, ordinal)) if self._pairing else ""

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

    # Reasoning

    def _reasoning(self) -> set[int]:
        """Items of earlier turns that lose their reasoning and stay."""
        keeps = self._context.quirk("keeps_reasoning")
        found = set()
        for at in range(self._start, self._stop):
            facts, entry = self._facts[at], self._view.entries[at]
            if (facts.reasoning or entry.thinks) and not facts.alone and not (keeps and facts.calls):
                found.add(at)
        return found

    def _lone(self) -> set[int]:
        """Items of nothing but reasoning, in earlier turns, that what they led to can be without."""
        keeps = self._context.quirk("keeps_reasoning")
        gone: set[int] = set()
        at = self._start
        while at < self._stop:
            first = at
            while at < self._stop and self._facts[at].alone and not self._facts[at].pinned:
                at += 1
            if at == first:
                at += 1
                continue
            led_to = self._led_to(at)
            calls = any(self._facts[after].calls for after in led_to)
            if led_to and not (keeps and calls) and all(map(self._is_free, led_to)):
                gone |= set(range(first, at))
        return gone

    def _led_to(self, at: int) -> list[int]:
        """What the model went on to say in one answer, from this item on up to its next reasoning."""
        found = []
        while at < len(self._facts) and self._facts[at].role == "assistant" and not self._facts[at].alone:
            found.append(at)
            at += 1
        return found

    def _told(self) -> list[tuple[int, int]]:
        """Of each item: where the answer ends that the model goes on with there, and how many items on the way can't be told apart from
        their reasoning. In one pass: an answer may have hundreds of calls."""
        told: list[tuple[int, int]] = []
        end, bound = len(self._facts), 0
        for at in range(len(self._facts) - 1, -1, -1):
            if self._facts[at].role != "assistant" or self._facts[at].alone:
                end, bound = at, 0
            else:
                bound += not self._is_free(at)
            told.append((end, bound))
        return told[::-1]

    def _freed(self, gone: set[int]) -> set[int]:
        """Items that came with reasoning that goes, and must not name it any more (R12)."""
        lone = [
            at for at in gone if self._facts[at].alone and not (at + 1 < len(self._facts) and self._facts[at + 1].alone)
        ]
        return {after for at in lone for after in self._led_to(at + 1)} - gone

    def _is_free(self, at: int) -> bool:
        """Can this item be told apart from the reasoning that it came with?"""
        if self._facts[at].pinned:
            return False
        raw, form = self._view.raws[at], self._context.reader.format

        def free() -> bool:
            try:
                form.without_reasoning(jsonspan.value(raw))
            except NotCompactable:
                return False
            return True

        return self._asked(b"free", at, free)

    # Tool traffic

    def _traffic(self) -> tuple[set[int], set[int]]:
        """Items of finished rounds of earlier turns (calls, results, the reasoning that led to them), and those of them that stay without
        their calls, for what they say.

        A round stays as it is where a call was never answered, where something is pinned, and where the user said something beside it.
        """
        assert self._pairing is not None
        facts = self._facts
        open_calls = {item for item, _ in self._pairing.unanswered}
        excluded = self._context.ask.policy.exclude_tools
        told = self._told()
        gone: set[int] = set()
        mute: set[int] = set()
        for items in _rounds(self._pairing):
            tools = {self._tool(at, ordinal) for at in items for ordinal in range(len(facts[at].results))}
            stays = any(not self._start <= at < self._stop or facts[at].pinned for at in items)
            if stays or not open_calls.isdisjoint(items) or not tools.isdisjoint(excluded):
                continue
            spoken = {at for at in items if self._says_more(at)}
            # What the model said in the same answer is told apart from the reasoning that goes.
            end, bound = told[min(items)]
            bound -= sum(not self._is_free(at) for at in items if at < end)
            if any(facts[at].results for at in spoken) or bound:
                continue
            heard = {at for at in spoken if self._can_be_mute(at)}
            mute |= heard
            gone |= items - heard
        for at in sorted(gone):
            while at > self._start and facts[at - 1].alone and not facts[at - 1].pinned:
                at -= 1
                gone.add(at)
        return gone, mute

    def _says_more(self, at: int) -> bool:
        """Is there a text in this item besides calls and results?"""
        raw, reader = self._view.raws[at], self._context.reader
        return self._asked(b"text", at, lambda: bool(reader.text(raw)))

    def _can_be_mute(self, at: int) -> bool:
        """May this item stand without its calls, next to the model's next one?"""
        raw, form = self._view.raws[at], self._context.reader.format
        alternating = self._context.quirk("alternating_roles")
        return not alternating and self._asked(b"mute", at, lambda: form.without_calls(jsonspan.value(raw)) is not None)

    def _asked(self, what: bytes, at: int, work: Callable[[], bool]) -> bool:
        digest = xxhash.xxh3_128_digest(self._view.raws[at])
        return self._shaping.known(what + self._context.ask.format.encode() + digest, work)


def _edited(piece: int | Edited, cleared: tuple[Clearing, ...], bare: bool, mute: bool) -> Piece:
    """The piece with that done to it too; what a compaction cleared stays as that left it."""
    if isinstance(piece, int):
        return Edited(piece, cleared, bare=bare, mute=mute) if cleared or bare or mute else piece
    before = {(done.ordinal, done.inputs) for done in piece.cleared}
    new = tuple(clearing for clearing in cleared if (clearing.ordinal, clearing.inputs) not in before)
    return replace(piece, cleared=(*piece.cleared, *new), bare=piece.bare or bare, mute=piece.mute or mute)


def _rounds(pairing: rules.Pairing) -> list[set[int]]:
    """Items that calls and results hold together, in groups."""
    group_of: dict[int, set[int]] = {}
    for (result, _), (call, _) in pairing.call_of.items():
        less, more = sorted((group_of.get(result, {result}), group_of.get(call, {call})), key=len)
        more |= less
        for at in less | {result, call}:  # the smaller into the larger: one call may have thousands of results
            group_of[at] = more
    return list({id(group): group for group in group_of.values()}.values())
