"""What a strategy wants, and what comes of it.

A `Plan` speaks of the view that it was made on: one contiguous cut with a note in its place, and/or places to clear. Applied, it
gives another view, whose pieces say where every item comes from: that list, up to the last piece that anything happened to, is the
`Checkpoint`. So plans compose: one made on a replayed view becomes one checkpoint over the client's own prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec

from app.core import jsonspan
from app.core.jsonspan import Slice
from app.core.view import Clearing, Edited, Entry, Note, Piece, View, origin
from app.errors import NotCompactable

NoteKind = Literal["omitted", "summary", ""]


@dataclass(frozen=True, slots=True)
class Clear:
    """A place to clear: item of the view, ordinal of the result (of the call, with `inputs`) inside it."""

    item: int
    ordinal: int
    inputs: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The wish of a strategy: cut items [start, stop) of the view, put a note of this kind there, clear these places.

    A plan that wants nothing does not exist: a strategy returns None instead. Items in the cut whose facts say `stays` survive it,
    after the note.
    """

    strategy: str
    start: int = 0
    stop: int = 0
    note: NoteKind = ""
    clear: tuple[Clear, ...] = ()
    bare: tuple[int, ...] = ()
    """items whose reasoning goes: its signatures would not hold behind what changes before them"""
    continuation: bool = False
    """the cut takes the whole tail: the conversation then ends on a fixed user item that says to go on"""
    instead: tuple[int | Note, ...] = ()
    """what else stands in the cut's place: new items, and items of the view (by position) that stay after all, in their order"""
    because: str = ""
    """why it is not what was asked for (a fallback), a short word for the log"""

    @property
    def cuts(self) -> bool:
        return self.stop > self.start

    @property
    def given_back(self) -> frozenset[int]:
        """Items of the view (by position) that the cut takes and `instead` gives back."""
        return frozenset(own for own in self.instead if isinstance(own, int))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Checkpoint:
    """What replaces the first `covered` items of a client's conversation. Immutable, content-addressed, the same on every replica."""

    covered: int
    pieces: tuple[Piece, ...]
    strategy: str
    level: int
    archive: str = ""
    """address of the newest archive, "" if there is none"""
    number: int = 1
    """compactions that went into it"""

    def encode(self) -> bytes:
        """A JSON text; runs of untouched items are written as [first, last+1]."""
        packed: list[Any] = []
        for piece in self.pieces:
            if isinstance(piece, int):
                if packed and isinstance(packed[-1], list) and packed[-1][1] == piece:
                    packed[-1][1] = piece + 1
                else:
                    packed.append([piece, piece + 1])
            elif isinstance(piece, Note):
                packed.append({"note": piece.raw.decode()})
            else:
                cleared = [[c.ordinal, c.text, c.inputs] for c in piece.cleared]
                edited = {"index": piece.index, "cleared": cleared, "lead": piece.lead, "bare": piece.bare}
                packed.append(edited | {"mute": True} if piece.mute else edited)
        return jsonspan.dump(
            {"v": 1, "covered": self.covered, "pieces": packed, "strategy": self.strategy, "level": self.level,
             "archive": self.archive, "number": self.number}
        )  # fmt: skip

    @classmethod
    def decode(cls, value: bytes) -> Checkpoint | None:
        """None for anything that this version did not write (another version's record, garbage)."""
        try:
            record = msgspec.convert(jsonspan.value(value), _Record)
            pieces = tuple(_unpacked(record))
        except (NotCompactable, msgspec.ValidationError, ValueError):
            return None
        return cls(record.covered, pieces, record.strategy, record.level, record.archive, record.number)


class _Record(msgspec.Struct):
    v: Literal[1]
    covered: Annotated[int, msgspec.Meta(ge=1)]
    pieces: list[tuple[int, int] | dict[str, Any]]
    strategy: str
    level: int
    archive: str
    number: int


class _Note(msgspec.Struct):
    note: str


class _Edited(msgspec.Struct):
    index: int
    cleared: list[tuple[int, str, bool]]
    lead: str
    bare: bool
    mute: bool = False


def _unpacked(record: _Record) -> Iterator[Piece]:
    """The pieces of a record. Raises ValueError where they are not in the order of the client's items."""
    ahead = 0
    for packed in record.pieces:
        if isinstance(packed, tuple):
            start, stop = packed
        elif "note" in packed:
            yield Note(msgspec.convert(packed, _Note).note.encode())
            continue
        else:
            edited = msgspec.convert(packed, _Edited)
            start, stop = edited.index, edited.index + 1
        if not ahead <= start < stop <= record.covered:
            raise ValueError("pieces out of order")
        ahead = stop
        if isinstance(packed, tuple):
            yield from range(start, stop)
        else:
            yield Edited(
                start, tuple(Clearing(*cleared) for cleared in edited.cleared), edited.lead, edited.bare, edited.mute
            )


Rewrite = Callable[[Slice, Edited], bytes]
"""The bytes of an item with its clearings and lead written into it."""
Read = Callable[[Sequence[Slice]], list[Entry]]


def replay(view: View, checkpoint: Checkpoint, rewrite: Rewrite, read: Read) -> View:
    """The client's own view with its first `covered` items replaced as the checkpoint says."""
    pieces: list[Piece] = [*checkpoint.pieces, *range(checkpoint.covered, len(view))]
    return _built(view, pieces, checkpoint.covered, rewrite, read)


def apply(
    client: View,
    view: View,
    plan: Plan,
    note: bytes | str,
    placeholder: Callable[[Clear], str],
    rewrite: Rewrite,
    read: Read,
    ending: bytes = b"",
) -> View:
    """The view that a plan wants. `client` is the view of the client's own body, `view` the one that the plan was made on.

    `note` is the JSON text of an item of its own, or a str: text that goes into the item that follows (alternating roles); ask `leads`
    first, ValueError where it may not. `placeholder` gives the text for a cleared place, `ending` is the item that a plan with
    `continuation` ends on (b"" for none).
    """
    if plan.cuts and isinstance(note, str) and note and not leads(view, plan):
        raise ValueError("no user request follows this cut")
    cleared: dict[int, list[Clearing]] = {}
    for place in plan.clear:
        cleared.setdefault(place.item, []).append(Clearing(place.ordinal, placeholder(place), place.inputs))
    bare = frozenset(plan.bare)
    pieces: list[Piece] = []
    covered = view.covered
    facts, gone = view.facts, gone_until(view, plan)
    lead = note if isinstance(note, str) and plan.cuts else ""

    def kept(at: int) -> Piece:
        return _edited(view.pieces[at], (), "", True) if at in bare else view.pieces[at]

    for at, piece in enumerate(view.pieces):
        if plan.cuts and at == plan.start:
            if isinstance(note, bytes) and note:
                pieces.append(Note(note))
            pieces += [own if isinstance(own, Note) else kept(own) for own in plan.instead]
        touched = plan.start <= at < gone
        if touched and (plan.instead or not facts[at].stays):
            covered = max(covered, origin(piece) + 1)
            continue
        if at in cleared or at in bare or (lead and at == plan.stop):
            piece = _edited(piece, tuple(cleared.get(at, ())), lead if at == plan.stop else "", at in bare)
            touched = True
        if touched:
            covered = max(covered, origin(piece) + 1)
        pieces.append(piece)
    if plan.continuation and ending:
        pieces.append(Note(ending))
    return replace(_built(client, pieces, covered, rewrite, read), shaped=view.shaped)


def gone_until(view: View, plan: Plan) -> int:
    """The end of what a cut changes: instructions at its end that stay where they are may be others in the next request."""
    stop, fixed = plan.stop, plan.instead or plan.continuation
    while not fixed and stop > plan.start and view.entries[stop - 1].facts.stays:
        stop -= 1
    return stop if stop > plan.start else plan.stop


def leads(view: View, plan: Plan) -> bool:
    """May a note go into the item that follows the cut? Only a plain user request takes one."""
    if plan.stop >= len(view):
        return False
    fact = view.entries[plan.stop].facts
    return fact.opens_turn and not fact.note and not fact.pinned


def checkpoint_of(view: View, strategy: str, level: int, archive: str, number: int) -> Checkpoint:
    """The checkpoint that would make this view again from the client's own."""
    pieces = tuple(piece for piece in view.pieces if origin(piece) < view.covered)
    return Checkpoint(view.covered, pieces, strategy, level, archive, number)


def rebuilt(client: View, pieces: list[Piece], covered: int, rewrite: Rewrite, read: Read) -> View:
    """A view made of other pieces, that nothing else happened to than the policy's standing rules."""
    return replace(_built(client, pieces, covered, rewrite, read), shaped=True)


def changed_items(before: View, after: View) -> list[int]:
    """Indices of the client's items that the `after` view no longer shows, or shows cleared, unlike the view `before`."""
    was = {origin(piece): piece for piece in before.pieces}
    now = {origin(piece): piece for piece in after.pieces}
    return sorted(index for index, piece in was.items() if index >= 0 and now.get(index) != piece)


def _edited(piece: Piece, cleared: tuple[Clearing, ...], lead: str, bare: bool) -> Edited:
    if isinstance(piece, Note):
        raise TypeError("a note is never edited")
    if isinstance(piece, int):
        return Edited(piece, cleared, lead, bare)
    again = {(c.ordinal, c.inputs): c for c in (*piece.cleared, *cleared)}
    return replace(piece, cleared=tuple(again.values()), lead=lead or piece.lead, bare=bare or piece.bare)


def _built(client: View, pieces: list[Piece], covered: int, rewrite: Rewrite, read: Read) -> View:
    raws: list[Slice] = []
    entries: list[Entry | None] = []
    fresh: list[Slice] = []
    for piece in pieces:
        if isinstance(piece, int):
            raws.append(client.raws[piece])
            entries.append(client.entries[piece])
            continue
        raw = piece.raw if isinstance(piece, Note) else rewrite(client.raws[piece.index], piece)
        raws.append(raw)
        entries.append(None)
        fresh.append(raw)
    known = iter(read(fresh))
    return View(raws, [entry or next(known) for entry in entries], pieces, covered)
