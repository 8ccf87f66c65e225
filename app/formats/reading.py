"""Reading a body through a format: raw slices, entries, counts.

One `Reader` per format and encoding. It touches only what it has not seen before: known items are found by the hash of their bytes.
Reading (facts, fingerprints) is cheap and runs where it is called; counting is not and has a method of its own, so that the caller can
put large amounts into a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec
import xxhash
from msgspec import UNSET, Raw

from app.core import jsonspan, tokens
from app.core.jsonspan import Slice
from app.core.view import Edited, Entry, EntryCache, Facts, known_entries, raw_bytes
from app.errors import NotCompactable
from app.formats.base import Format, Part
from app.formats.media import MediaCost

ITEM_OVERHEAD = 4
"""Tokens that a provider adds around one item (roles, separators); source: the OpenAI cookbook's counting recipe."""
LARGE, VALUES = 8 << 20, 1_000_000
"""Bytes of a body from which on its JSON values are counted before anything is parsed, and how many there may be: parsed they take some
thirty times their bytes."""
USUAL = MediaCost()
"""What a model charges of which nothing is known."""


class Fields(Mapping[str, Any]):
    """A body's top-level fields, each parsed when it is first looked at."""

    def __init__(self, raw: dict[str, Slice]) -> None:
        self.raw = raw
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._parsed:
            self._parsed[key] = jsonspan.value(self.raw[key])
        return self._parsed[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)


@dataclass(frozen=True, slots=True)
class Opened:
    """A body looked into: the raw items of its history (none for a history given as one string) and its other fields."""

    body: bytes
    raws: list[Slice]
    fields: Fields

    @property
    def last(self) -> Any:
        """The parsed last item, None if there is none."""
        return jsonspan.value(self.raws[-1]) if self.raws else None

    @property
    def model(self) -> str:
        """The model that the body names, "" if it names none; always text that can be written down (half a surrogate pair can't)."""
        named = self.fields.get("model")
        return named.encode("utf-8", "replace").decode() if isinstance(named, str) else ""


@cache
def _envelope(history: str, fields: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    members: list[Any] = [(history, list[Raw] | str, UNSET), *((key, Raw, UNSET) for key in fields)]
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", members))


def open_body(form: Format, body: bytes) -> Opened:
    """Find the history's items and the fields that the format asks for, in one pass.

    Raises NotCompactable: not_json, not_utf8, no_history, duplicate_key, too_many_items.
    """
    if len(body) > LARGE:
        bound_values(body)
    try:
        envelope = _envelope(form.history, form.fields).decode(body)
    except msgspec.ValidationError:
        raise NotCompactable("no_history") from None
    except (msgspec.DecodeError, RecursionError):
        return _open_slowly(form, body)
    history = getattr(envelope, form.history)
    if history is UNSET:
        raise NotCompactable("no_history")
    found = {key: raw for key in form.fields if (raw := getattr(envelope, key)) is not UNSET}
    return Opened(body, [] if isinstance(history, str) else history, Fields(found))


def bound_values(body: bytes) -> None:
    """To be asked before much of a body is parsed, and not more often: it takes longer than finding the body's items. Raises
    NotCompactable("too_many_items")."""
    if jsonspan.more_values_than(VALUES, body):
        raise NotCompactable("too_many_items")


def model_in(body: bytes) -> str:
    """The model that a body names whose history can't be read, "" if none can be seen."""
    try:
        named = _named.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return ""
    return Opened(body, [], Fields({} if named is UNSET else {"model": named})).model


_named: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct("Named", [("model", Raw, UNSET)]))


def _open_slowly(form: Format, body: bytes) -> Opened:
    spans = jsonspan.members(body)
    if form.history not in spans:
        raise NotCompactable("no_history")
    start, stop = spans[form.history]
    first = body[start : start + 1]
    if first not in (b"[", b'"'):
        raise NotCompactable("no_history")
    raws: list[Slice] = [body[a:b] for a, b in jsonspan.elements(body, start, stop)] if first == b"[" else []
    return Opened(body, raws, Fields({key: body[slice(*spans[key])] for key in form.fields if key in spans}))


class Reader:
    """Entries and counts for one format and encoding, and for models that charge the same for media."""

    def __init__(self, form: Format, encoding: str, cache: EntryCache, media: MediaCost = USUAL) -> None:
        self.format = form
        self.encoding = encoding
        self.media = media
        self.reference = media.reference
        self._cache = cache
        self._seed = cache.seed(f"{form.name} {encoding} {media}")
        self._fixed_seed = cache.seed(f"{form.name} {encoding} fixed")

    def entries(self, raws: Sequence[Slice]) -> list[Entry]:
        """Facts and fingerprints of items. Raises NotCompactable for an item that can't be parsed."""
        found, digests = known_entries(raws, self._seed, self._cache)
        return self.read(raws, found, digests)

    def known(self, raws: Sequence[Slice]) -> tuple[list[Entry | None], list[bytes]]:
        """What is there without reading anything, and the digests for `read`."""
        return known_entries(raws, self._seed, self._cache)

    def read(self, raws: Sequence[Slice], found: Sequence[Entry | None], digests: Sequence[bytes]) -> list[Entry]:
        entries = []
        for raw, entry, digest in zip(raws, found, digests, strict=True):
            if entry is None:
                entry = self._read(raw)
                self._cache.put(digest, entry)
            entries.append(entry)
        return entries

    def _read(self, raw: Slice) -> Entry:
        item = jsonspan.value(raw)
        parts = [*self.format.parts(item)]
        media = sum(map(self.media.of, parts))
        thinks = any(part.kind == "reasoning" for part in parts)
        return Entry(self.format.facts(item), fingerprint(self.format.canonical(item)), media=media, thinks=thinks)

    def count(self, raws: Sequence[Slice], entries: Sequence[Entry]) -> None:
        """Fill in the tokens of entries that have none yet. Slow: about 15 MB of text a second."""
        for raw, entry in zip(raws, entries, strict=True):
            if entry.tokens < 0:
                entry.tokens = ITEM_OVERHEAD + self.tokens_of(self.format.parts(jsonspan.value(raw)))

    def tokens_of(self, parts: Iterable[Part]) -> int:
        return sum(
            self.media.of(part) or tokens.count(part.text, self.encoding) + (len(part.name) + 3) // 4 for part in parts
        )

    def fixed(self, opened: Opened) -> Entry:
        """What the model reads besides the conversation, as an entry whose tokens may still have to be counted."""
        hasher = xxhash.xxh3_128(seed=self._fixed_seed)
        for key in self.format.counted:
            hasher.update(opened.fields.raw.get(key, b"\0"))
        digest = hasher.digest()
        entry = self._cache.get(digest)
        if entry is None:
            entry = Entry(Facts("system"), b"")
            self._cache.put(digest, entry)
        return entry

    def count_fixed(self, opened: Opened, entry: Entry) -> None:
        if entry.tokens < 0:
            entry.tokens = self.tokens_of(self.format.fixed(opened.fields))

    def rewrite(self, raw: Slice, piece: Edited) -> bytes:
        """The bytes of an item with its clearings and lead written into it; the rest of it stays as it was.

        Remembered (bounded), since the same history comes back with every request.
        """
        key = (xxhash.xxh3_128_digest(raw, self._seed), piece)
        text = self._cache.rewritten.get(key)
        if text is None:
            item = jsonspan.value(raw)
            # What goes as a whole is not cleared first.
            edits = self.format.clear(item, [done for done in piece.cleared if not (piece.mute and done.inputs)])
            if piece.mute:
                edits += self.format.without_calls(item) or []
            if piece.bare:
                edits += self.format.without_reasoning(item)
            if piece.lead:
                edits += self.format.lead(item, piece.lead)
            text = jsonspan.edit(raw_bytes(raw), edits)
            self._cache.rewritten.put(key, text)
        return text

    def parts(self, raw: Slice) -> tuple[Part, ...]:
        """An item's readable stretches."""
        return tuple(self.format.parts(jsonspan.value(raw)))

    def results(self, raw: Slice) -> list[str]:
        """The text of each tool result in an item, by ordinal."""
        item = jsonspan.value(raw)
        results = self.format.facts(item).results
        if len(results) == 1:
            return ["\n".join(part.text for part in self.format.parts(item) if part.kind == "result")]
        return [_text_at(item, result.path) for result in results]

    def text(self, raw: Slice) -> str:
        """An item's plain texts, for repeating them in a note."""
        return "\n".join(
            part.text for part in self.format.parts(jsonspan.value(raw)) if part.kind == "text" and part.text
        )


def _text_at(item: Any, path: jsonspan.Path) -> str:
    """What stands at a result's path, as text."""
    for step in path:
        try:
            item = item[step]
        except (KeyError, IndexError, TypeError):
            return ""
    if isinstance(item, dict) and len(item) == 1:  # most clients wrap one text in an object
        item = next(iter(item.values()))
    if isinstance(item, str):
        return item
    if isinstance(item, list):
        return "\n".join(
            str(block["text"]) for block in item if isinstance(block, dict) and isinstance(block.get("text"), str)
        )
    return jsonspan.dump(item).decode() if item is not None else ""


def result_key(text: str) -> str:
    """A name for a tool result that depends on its content alone."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()


def fingerprint(canonical: Any) -> bytes:
    """16 bytes for an item's canonical value: key order and spelling of numbers and escapes don't matter."""
    return blake2b(jsonspan.dump(canonical, ordered=True), digest_size=16).digest()
