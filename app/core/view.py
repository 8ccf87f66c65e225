"""A conversation seen over the raw slices of its own body.

Rules and strategies see `Facts` only: what a format says about one item, neutral between wire formats. An item's facts depend
on that item alone, so they are kept by the hash of its bytes: clients resend their whole history with every request, and all
but the newest items have been read, fingerprinted and counted before.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from sys import getsizeof
from typing import Literal

import xxhash

from app.core.jsonspan import Path, Slice
from app.core.recent import Recent

ITEM_BYTES, REWRITTEN_BYTES, CHAIN_BYTES = 48 << 20, 8 << 20, 6 << 20
"""What one process remembers of items (80,000 of the usual kind), of how some are rewritten, and of chains."""
PARTS = 32
"""What is remembered of items lies in so many tables: one for all would be of megabytes, and leave a gap of that size behind in memory
each time it is made anew."""
ENTRY, MARK, CITED, LINK = 480, 140, 160, 66
"""Bytes that an entry takes with its key, and more for each call or result in it, besides their names, for each source or citation, and
for each link of a chain with its place; all measured."""
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call inside an item. `id` is "" where the wire has none (Gemini): then calls and results pair by name and order."""

    id: str
    tool: str
    path: Path
    size: int
    clearable: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A tool result inside an item; `path` leads to its content, `size` is that content in bytes. `tool` may be "" here:
    most formats name the tool only in the call."""

    id: str
    tool: str
    path: Path
    size: int
    clearable: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a rule or a strategy ever knows of an item.

    reasoning   what follows in this turn depends on it (thinking blocks, reasoning items, reasoning_content)
    late        its reasoning is not the first thing in it: the model's turn can't begin there (A30)
    alone       an item of reasoning only, which the provider wants followed by what it led to (Responses)
    pinned      must stay where it is, with its neighbours: no cut may contain it (unknown kinds, compaction items)
    restarts    the provider reads nothing that stands before it (its own compaction)
    stays       survives a cut in its place, whatever its neighbours do (system and developer messages in mid-history)
    carried     may leave, but what it says has to be repeated in the note (standing instructions that have no other legal place)
    opens_turn  a user request: user role, something besides tool results in it, no tool results
    note        written by compactd
    sources     what can be cited in it, by kind, in order (documents, search results)
    cites       what its citations point to: (kind, how many of these come before it in the whole conversation)
    """

    role: Role
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    reasoning: bool = False
    late: bool = False
    alone: bool = False
    pinned: bool = False
    restarts: bool = False
    stays: bool = False
    carried: bool = False
    opens_turn: bool = False
    note: bool = False
    sources: tuple[str, ...] = ()
    cites: tuple[tuple[str, int], ...] = ()


class Entry:
    """What is known of one item's bytes: facts, fingerprint (16 bytes), tokens (-1 until counted), the tokens of its media, which its bytes
    don't bound, and whether reasoning can be read in it."""

    __slots__ = ("facts", "fingerprint", "media", "thinks", "tokens")

    def __init__(
        self, facts: Facts, fingerprint: bytes, tokens: int = -1, media: int = 0, thinks: bool = False
    ) -> None:
        self.facts = facts
        self.fingerprint = fingerprint
        self.tokens = tokens
        self.media = media
        self.thinks = thinks


class EntryCache:
    """Entries by the hash of the item's bytes, and the items that were `rewritten`.

    The hash is seeded with a secret of this process, so that nobody can make two items collide on purpose.
    """

    def __init__(self, most: int = ITEM_BYTES, parts: int = PARTS) -> None:
        self._parts: list[Recent[bytes, Entry]] = [Recent(most // parts, _bytes_of) for _ in range(parts)]
        self.rewritten: Recent[tuple[bytes, Edited], bytes] = Recent(
            REWRITTEN_BYTES, lambda key, text: _bytes_of_edits(key[1]) + len(text)
        )
        self._seeds: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def get(self, digest: bytes) -> Entry | None:
        return self._parts[digest[0] % len(self._parts)].get(digest)

    def put(self, digest: bytes, entry: Entry) -> None:
        self._parts[digest[0] % len(self._parts)].put(digest, entry)

    def seed(self, kind: str) -> int:
        """The hash seed for items of this kind (format and encoding); kinds never share entries."""
        if kind not in self._seeds:
            self._seeds[kind] = secrets.randbits(63)
        return self._seeds[kind]


def _bytes_of(_: bytes, entry: Entry) -> int:
    """Whoever sends requests chooses the names in an item and how many there are."""
    facts = entry.facts
    size = ENTRY + CITED * (len(facts.sources) + len(facts.cites))
    marks: tuple[Call | Result, ...] = (*facts.calls, *facts.results)
    for mark in marks:
        size += MARK + getsizeof(mark.id) + getsizeof(mark.tool)
    return size


def _bytes_of_edits(piece: Edited) -> int:
    return ENTRY + getsizeof(piece.lead) + sum(MARK + getsizeof(done.text) for done in piece.cleared)


def known_entries(raws: Sequence[Slice], seed: int, cache: EntryCache) -> tuple[list[Entry | None], list[bytes]]:
    """The entry of each raw item, None where it was not seen before, and the digests of all."""
    digest_of, get = xxhash.xxh3_128_digest, cache.get
    digests = [digest_of(raw, seed) for raw in raws]
    return [get(digest) for digest in digests], digests


def chain(tenant: str, format_name: str, entries: Sequence[Entry]) -> list[bytes]:
    """Chain hashes: element i stands for the first i+1 items of this tenant's conversation in this format; of standing instructions at its
    head for their number alone."""
    return _linked(blake2b(f"{tenant}\0{format_name}".encode(), digest_size=16).digest(), entries, True)


def _linked(link: bytes, entries: Sequence[Entry], head: bool) -> list[bytes]:
    """The links that follow this one; `head` says that nothing but standing instructions stands before.

    What those say at the head tells no conversation from another: they stay as each request has them, no cut begins before them, and
    clients put the time into them.
    """
    links = []
    for entry in entries:
        head = head and entry.facts.role == "system"
        link = blake2b(link + (b"" if head else entry.fingerprint), digest_size=16).digest()
        links.append(link)
    return links


class Chains:
    """Chains, with what was linked last time of histories that have only grown since."""

    def __init__(self, most: int = CHAIN_BYTES) -> None:
        self._last: Recent[tuple[object, ...], tuple[list[Entry], list[bytes]]] = Recent(
            most, lambda _, linked: ENTRY + LINK * len(linked[1])
        )

    def chain(self, tenant: str, format_name: str, entries: list[Entry]) -> list[bytes]:
        # Many conversations begin with the same instructions: the first few items tell them apart.
        key = (tenant, format_name, *map(id, entries[:4]))
        known, links = self._last.get(key) or ([], [])
        if not known or known != entries[: len(known)]:
            links = chain(tenant, format_name, entries)
        elif len(known) < len(entries):
            head = all(entry.facts.role == "system" for entry in known)
            links = [*links, *_linked(links[-1], entries[len(known) :], head)]
        else:
            return links
        self._last.put(key, (entries, links))
        return links


@dataclass(frozen=True, slots=True)
class Clearing:
    """One cleared place of an item: the ordinal of its result (or call, with `inputs`) and the text that stands there now."""

    ordinal: int
    text: str
    inputs: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """An item of the client's history, by index, with clearings in it, with a note's text put ahead of its own (`lead`), without its
    reasoning (`bare`), or without its calls (`mute`)."""

    index: int
    cleared: tuple[Clearing, ...] = ()
    lead: str = ""
    bare: bool = False
    mute: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """An item that compactd wrote: its JSON text."""

    raw: bytes


Piece = int | Edited | Note
"""Where an item of a view comes from; a bare index is an item of the client's history, byte for byte."""


def origin(piece: Piece) -> int:
    """Index in the client's history, -1 for a note."""
    return piece if isinstance(piece, int) else piece.index if isinstance(piece, Edited) else -1


@dataclass(slots=True)
class View:
    """The conversation as it would be forwarded: `raws`, `entries` and `pieces` run in parallel.

    A view of the client's own body consists of bare indices. `covered` is how many of the client's items the applied checkpoint
    covers (0: none); `shaped` says that the policy's standing rules have taken something out.
    """

    raws: list[Slice]
    entries: list[Entry]
    pieces: list[Piece] = field(default_factory=list)
    covered: int = 0
    shaped: bool = False

    def __post_init__(self) -> None:
        if not self.pieces:
            self.pieces = list(range(len(self.raws)))

    def __len__(self) -> int:
        return len(self.raws)

    @property
    def facts(self) -> list[Facts]:
        return [entry.facts for entry in self.entries]

    @property
    def read(self) -> list[Entry]:
        """The entries of what the provider reads: all, or those from its own compaction on."""
        entries = self.entries
        restart = next((at for at in range(len(entries) - 1, 0, -1) if entries[at].facts.restarts), 0)
        return entries[restart:] if restart else entries

    @property
    def tokens(self) -> int:
        """Local count of all items that are read, tokens."""
        return sum(entry.tokens for entry in self.read)

    @property
    def changed(self) -> bool:
        """Is this something else than the client's own history?"""
        return self.covered > 0 or self.shaped


def raw_bytes(raw: Slice) -> bytes:
    """The slice as bytes of its own."""
    return raw if isinstance(raw, bytes) else bytes(raw)


def size_of(raw: Slice) -> int:
    """Length in bytes, without copying."""
    return len(raw) if isinstance(raw, bytes) else len(memoryview(raw))
