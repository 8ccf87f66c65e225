"""Where things lie in a JSON text, and how to change one of them without touching the others.

A body is never parsed and dumped: that would rewrite numbers, escapes, key order and duplicate keys, and break provider
caches. msgspec finds the raw slices (C speed, no objects built); the few positions between them are then plain arithmetic,
because only whitespace and commas can stand there. Bodies that msgspec refuses though a provider may take them (a lone
surrogate escape) go the slower way through the standard library's scanner; what that one refuses too is not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from app.errors import NotCompactable

Slice = Raw | bytes
Path = tuple[str | int, ...]
Edit = tuple[Path, bytes]
"""A place inside a JSON value and the JSON text that shall stand there."""
Span = tuple[int, int]

# Possessive (`*+`): what could go back would remember every step on its way, a hundred bytes for each of the text.
_SEPARATORS = re.compile(rb"[ \t\r\n,]*+")
_KEY = re.compile(rb'[ \t\r\n,]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_STRING = re.compile(rb'"[^"]*+"?')
_BETWEEN = re.compile(r"[ \t\r\n,:]*+")
_MARKS = b",[{"
"""What stands ahead of values: never fewer than those, but for the first."""
_OTHERS = bytes(byte for byte in range(256) if byte not in _MARKS + b'"')
_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def value(raw: Slice) -> Any:
    """The parsed value, for looking at only. Raises NotCompactable("not_json")."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError):
        raise NotCompactable("not_json") from None


def dump(thing: Any, ordered: bool = False) -> bytes:
    """A new JSON text for something that compactd itself writes; `ordered` sorts keys, so that equal values give equal texts."""
    try:
        return msgspec.json.encode(thing, order="sorted" if ordered else None)
    except (UnicodeEncodeError, msgspec.EncodeError):  # a lone surrogate: only escapes can carry it
        return json.dumps(thing, separators=(",", ":"), sort_keys=ordered).encode()


def more_values_than(most: int, raw: bytes) -> bool:
    """Does a JSON text hold more values? Parsed they would take some thirty times their bytes. True or False for what is no JSON."""
    if len(raw) <= most or sum(map(raw.count, _MARKS)) <= most:
        return False
    # In strings they are none: these go, first what they escape, then all but quotes and marks, so that little is left to go through.
    text = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS).replace(b'""', b"")
    # Of two strings one at least has a comma behind it, so there need not be more.
    return sum(map(_STRING.sub(b"", text, 2 * most + 4).count, _MARKS)) > most


def readable(raw: bytes) -> None:
    """Raises NotCompactable("not_utf8") for what no provider can read: msgspec passes over the inside of strings that it skips."""
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise NotCompactable("not_utf8") from None


def members(raw: bytes) -> dict[str, Span]:
    """Key -> (start, stop) of its value, for one JSON object. Raises NotCompactable("duplicate_key" | "not_json")."""
    try:
        slices = _object.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _scanned_members(raw)
    spans: dict[str, Span] = {}
    at = raw.index(b"{") + 1
    while (found := _KEY.match(raw, at)) and (key := json.loads(found[1])) in slices and key not in spans:
        start = found.end()
        at = start + len(memoryview(slices[key]))
        spans[key] = (start, at)
    # The last of two equal keys is what msgspec gives: with the wrong length the walk does not arrive at the end.
    if len(spans) != len(slices) or raw[at:].strip() != b"}":
        raise NotCompactable("duplicate_key")
    return spans


def elements(raw: bytes, start: int = 0, stop: int | None = None) -> list[Span]:
    """(start, stop) of each element of the JSON array that `raw[start:stop]` is, as positions in `raw`."""
    stop = len(raw) if stop is None else stop
    try:
        slices = _array.decode(raw[start:stop] if start or stop < len(raw) else raw)
    except (msgspec.DecodeError, RecursionError):
        return _scanned_elements(raw, start, stop)
    return _walk(raw, start, [len(memoryview(content)) for content in slices])


def _walk(raw: bytes, start: int, sizes: Iterable[int]) -> list[Span]:
    """Spans of an array's elements whose lengths are known: between them stand only whitespace and commas."""
    spans, skip = [], _SEPARATORS.match
    at = raw.index(b"[", start) + 1
    for size in sizes:
        found = skip(raw, at)
        start = found.end() if found else at
        at = start + size
        spans.append((start, at))
    return spans


def before(at: int) -> int:
    """A last step into an array: a new element ahead of the one at this index, behind the last where there is none."""
    return -1 - at


FRONT = before(0)
"""… ahead of all others."""
REMOVED = b""
"""The text of an array element or of an object's member that shall go."""


def edit(raw: bytes, edits: Iterable[Edit]) -> bytes:
    """`raw` with new JSON texts at the given paths; everything else stays byte for byte.

    A last step that names a missing key adds it at the end of its object; `before` adds to an array, `REMOVED` takes from arrays and
    objects. Raises NotCompactable for other missing places, and for a text that is not UTF-8.
    """
    grouped: dict[str | int, list[Edit]] = {}
    for path, text in edits:
        if not path:
            return text
        grouped.setdefault(path[0], []).append((path[1:], text))
    if not grouped:
        return raw
    readable(raw)
    if isinstance(next(iter(grouped)), int):
        return _edited_array(raw, grouped)
    spans = members(raw)
    changes: list[tuple[int, int, bytes]] = []
    gone = [key for key in spans if grouped.get(key) == [((), REMOVED)]]
    if gone:
        left = [edit_ for key, edits_ in grouped.items() if key not in gone for edit_ in _under(key, edits_)]
        return edit(_without_members(raw, spans, frozenset(gone)), left)
    for step, inner in grouped.items():
        if step in spans:
            start, stop = spans[str(step)]
            changes.append((start, stop, edit(raw[start:stop], inner)))
        elif inner[0][0] == ():
            end = raw.rindex(b"}")
            changes.append((end, end, (b"," if spans else b"") + json.dumps(step).encode() + b":" + inner[0][1]))
        else:
            raise NotCompactable("edit_misses")
    return _replaced(raw, changes)


def _under(step: str | int, edits: Iterable[Edit]) -> Iterable[Edit]:
    return (((step, *path), text) for path, text in edits)


def _without_members(raw: bytes, spans: dict[str, Span], gone: frozenset[str]) -> bytes:
    """The object without some of its members; each of the others keeps its bytes and what stands before it."""
    at = raw.index(b"{") + 1
    kept = []
    for key, (_, stop) in spans.items():
        if key not in gone:
            kept.append(raw[at:stop])
        at = stop
    if kept:
        kept[0] = kept[0].lstrip(b" \t\r\n,")
    return b"{" + b"".join(kept) + raw[at:]


def _edited_array(raw: bytes, grouped: dict[str | int, list[Edit]]) -> bytes:
    spans = elements(raw)
    size = len(spans)
    if any(not isinstance(step, int) or not before(size) <= step < size for step in grouped):
        raise NotCompactable("edit_misses")
    texts = [edit(raw[a:b], grouped[at]) if at in grouped else raw[a:b] for at, (a, b) in enumerate(spans)]
    added = [[text for _, text in grouped.get(before(at), ())] for at in range(size + 1)]
    if REMOVED in texts or not spans:
        # The elements' own bytes stay; what stood between them can't all stay.
        new = [*(text for at in range(size) for text in (*added[at], texts[at])), *added[size]]
        return b"[" + b",".join(text for text in new if text != REMOVED) + b"]"
    changes = [(*span, b",".join([*added[at], texts[at]])) for at, span in enumerate(spans)]
    end = spans[-1][1]
    return _replaced(raw, [*changes, (end, end, b"".join(b"," + text for text in added[size]))])


def splice(raw: bytes, key: str, pieces: Sequence[int | bytes], sizes: Sequence[int]) -> bytes:
    """The body with the array under `key` made of `pieces`: an index keeps that element's bytes, bytes are a new element.

    `sizes` are the lengths of the array's elements, as reading the body gave them. Neighbours that stay neighbours are copied in one
    slice with what stands between them, and so is what stands before the first element and behind the last.
    """
    start, stop = members(raw)[key]
    readable(raw[:start])
    readable(raw[stop:])
    spans = _walk(raw, start, sizes)
    if raw[spans[-1][1] : stop].strip() != b"]":
        raise NotCompactable("duplicate_key")
    out: list[bytes] = []
    run: list[int] = []

    def flush() -> None:
        if run:
            out.append(raw[spans[run[0]][0] : spans[run[-1]][1]])
            run.clear()

    for piece in pieces:
        if isinstance(piece, int):
            if run and piece != run[-1] + 1:
                flush()
            run.append(piece)
        else:
            flush()
            out.append(piece)
    flush()
    return b"".join((raw[: spans[0][0]], b",".join(out), raw[spans[-1][1] :]))


def _replaced(raw: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    out, at = [], 0
    for start, stop, text in sorted(changes, key=lambda change: change[:2]):
        out += [raw[at:start], text]
        at = stop
    return b"".join([*out, raw[at:]])


# The slow way: positions from the standard library's scanner, which takes lone surrogate escapes.

_scanner = json.JSONDecoder()


class _Text:
    """A whole JSON text as str, known to be sound, with the way back to byte positions."""

    def __init__(self, raw: bytes) -> None:
        try:
            self.text = raw.decode()
        except UnicodeDecodeError:
            raise NotCompactable("not_utf8") from None
        try:
            json.loads(self.text)  # from here on between values there is nothing but white space, commas and colons
        except (ValueError, RecursionError):
            raise NotCompactable("not_json") from None
        self._ascii = len(self.text) == len(raw)
        self._last = (0, 0)

    def bytes_at(self, position: int) -> int:
        """Byte position of a character position; asked in rising order, so the whole costs one pass."""
        if self._ascii:
            return position
        chars, at = self._last
        at += len(self.text[chars:position].encode())
        self._last = (position, at)
        return at

    def inside(self, opening: str) -> int:
        """Where the first key or element stands, or the end. Raises NotCompactable if something else than `opening` begins here."""
        at = self.skip(0)
        if self.text[at] != opening:
            raise NotCompactable("not_json")
        return self.skip(at + 1)

    def skip(self, position: int) -> int:
        found = _BETWEEN.match(self.text, position)
        return found.end() if found else position

    def end_of_value(self, position: int) -> int:
        return _scanner.raw_decode(self.text, position)[1]


def _scanned_members(raw: bytes) -> dict[str, Span]:
    text = _Text(raw)
    spans: dict[str, Span] = {}
    at = text.inside("{")
    while text.text[at] != "}":
        end = text.end_of_value(at)
        key = json.loads(text.text[at:end])
        if key in spans:
            raise NotCompactable("duplicate_key")
        start = text.skip(end)
        stop = text.end_of_value(start)
        spans[key] = (text.bytes_at(start), text.bytes_at(stop))
        at = text.skip(stop)
    return spans


def _scanned_elements(raw: bytes, start: int, stop: int) -> list[Span]:
    text = _Text(raw[start:stop])
    spans = []
    at = text.inside("[")
    while text.text[at] != "]":
        end = text.end_of_value(at)
        spans.append((start + text.bytes_at(at), start + text.bytes_at(end)))
        at = text.skip(end)
    return spans
