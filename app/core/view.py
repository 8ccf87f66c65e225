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
from typing import Literal

import xxhash

from app.core.jsonspan import Path, Slice

MOST_MARKS, USUAL_NAME = 500, 40
"""Calls and results of one item, and the length of their names, up to which its facts are remembered: half a megabyte at worst."""
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
    """Entries by the hash of the item's bytes, bounded: two generations, the elder is dropped when the younger is full.

    The hash is seeded with a secret of this process, so that nobody can make two items collide on purpose.
    """

    def __init__(self, generation: int = 40_000) -> None:
        self._generation = generation
        self._young: dict[bytes, Entry] = {}
        self._old: dict[bytes, Entry] = {}
        self._seeds: dict[str, int] = {}

    def seed(self, kind: str) -> int:
        """The hash seed for items of this kind (format and encoding); kinds never share entries."""
        if kind not in self._seeds:
            self._seeds[kind] = secrets.randbits(63)
        return self._seeds[kind]

    def get(self, digest: bytes) -> Entry | None:
        entry = self._young.get(digest)
        if entry is None:
            entry = self._old.get(digest)
            if entry is not None:
                self.put(digest, entry)
        return entry

    def put(self, digest: bytes, entry: Entry) -> None:
        if _large(entry.facts):
            return
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, {}
        self._young[digest] = entry


def _large(facts: Facts) -> bool:
    """Is this more than one would remember? Whoever sends requests chooses the names and how many there are."""
    marks: tuple[Call | Result, ...] = (*facts.calls, *facts.results)
    return bool(marks) and (
        len(marks) > MOST_MARKS or sum(len(mark.id) + len(mark.tool) for mark in marks) > MOST_MARKS * USUAL_NAME
    )


def known_entries(raws: Sequence[Slice], seed: int, cache: EntryCache) -> tuple[list[Entry | None], list[bytes]]:
    """The entry of each raw item, None where it was not seen before, and the digests of all."""
    digest_of, get = xxhash.xxh3_128_digest, cache.get
    digests = [digest_of(raw, seed) for raw in raws]
    return [get(digest) for digest in digests], digests


def chain(tenant: str, format_name: str, entries: Sequence[Entry]) -> list[bytes]:
    """Chain hashes: element i stands for the first i+1 items of this tenant's conversation in this format."""
    return _linked(blake2b(f"{tenant}\0{format_name}".encode(), digest_size=16).digest(), entries)


def _linked(link: bytes, entries: Sequence[Entry]) -> list[bytes]:
    """The links that follow this one."""
    links = []
    for entry in entries:
        link = blake2b(link + entry.fingerprint, digest_size=16).digest()
        links.append(link)
    return links


class Chains:
    """Chains, with what was linked last time of histories that have only grown since. Bounded."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._last: dict[tuple[object, ...], tuple[list[Entry], list[bytes]]] = {}

    def chain(self, tenant: str, format_name: str, entries: list[Entry]) -> list[bytes]:
        # Many conversations begin with the same instructions: the first few items tell them apart.
        key = (tenant, format_name, *map(id, entries[:4]))
        known, links = self._last.get(key, ((), []))
        if not known or known != entries[: len(known)]:
            links = chain(tenant, format_name, entries)
        elif len(known) < len(entries):
            links = [*links, *_linked(links[-1], entries[len(known) :])]
        else:
            return links
        if len(self._last) >= self._most:
            self._last.clear()
        self._last[key] = (entries, links)
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
    def tokens(self) -> int:
        """Local count of all items, tokens."""
        return sum(entry.tokens for entry in self.entries)

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
