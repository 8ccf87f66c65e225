"""What is remembered of items, and how a prefix of a conversation gets its name."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import decode

from app.core import view as views
from app.core.view import (
    Call,
    Chains,
    Clearing,
    Edited,
    Entry,
    EntryCache,
    Facts,
    Note,
    Result,
    View,
    chain,
    known_entries,
    origin,
    raw_bytes,
    size_of,
)
from tests.items import ask, rule, says, view


def entries(*fingerprints: bytes) -> list[Entry]:
    return [Entry(ask(), fingerprint) for fingerprint in fingerprints]


# Chain hashes


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=6), st.data())
def test_a_link_stands_for_the_whole_prefix(prints: list[bytes], data: st.DataObject) -> None:
    links = chain("t", "f", entries(*prints))
    shorter = data.draw(st.integers(0, len(prints)))
    assert chain("t", "f", entries(*prints[:shorter])) == links[:shorter]
    if shorter:
        other = [b"\0" * 15 + b"!", *prints[1:]]
        assert prints[0] == other[0] or not set(chain("t", "f", entries(*other))) & set(links)
    assert len(set(links)) == len(links)
    assert all(len(link) == 16 for link in links)


def test_standing_instructions_at_the_head_count_and_what_they_say_does_not() -> None:
    def links(*items: tuple[Facts, bytes]) -> list[bytes]:
        return chain("t", "f", [Entry(facts, said * 16) for facts, said in items])

    one = links((rule(), b"1"), (rule(), b"2"), (ask(), b"3"), (rule(), b"4"))
    assert links((rule(), b"5"), (rule(), b"6"), (ask(), b"3"), (rule(), b"4")) == one
    assert links((rule(), b"1"), (rule(), b"2"), (ask(), b"3"), (rule(), b"5"))[:3] == one[:3]
    assert links((rule(), b"1"), (rule(), b"2"), (ask(), b"3"), (rule(), b"5"))[3] != one[3]
    assert not set(links((rule(), b"1"), (ask(), b"3"), (rule(), b"4"))[1:]) & set(one)
    assert not set(links((rule(), b"1"), (ask(), b"2"), (ask(), b"3"))[1:]) & set(one)


def test_tenants_and_formats_share_no_link() -> None:
    same = entries(b"1" * 16)
    links = [
        chain(*names, same)[0] for names in (("t", "f"), ("t", "g"), ("u", "f"), ("tf", ""), ("", "tf"), ("t\0", "f"))
    ]
    assert len(set(links[:5])) == 5


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), max_size=12))
def test_chains_that_are_remembered_are_the_same(steps: list[tuple[int, int, bool]]) -> None:
    """Histories that grow, shrink, branch, belong to others, or are read anew."""
    pool = [Entry(rule() if n < 2 else ask(), bytes([n]) * 16) for n in range(4)]
    chains = Chains(3 * views.ENTRY * 2)
    history: list[Entry] = pool[:1]
    for keep, added, other in steps:
        history = [*history[: max(1, keep)], *pool[:added]]
        if other:
            history = [Entry(entry.facts, entry.fingerprint) for entry in history]
        for tenant in ("t", "u")[: 1 + other]:
            assert chains.chain(tenant, "f", history) == chain(tenant, "f", history)


def test_a_history_that_has_grown_is_only_linked_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[int] = []
    known = views._linked
    monkeypatch.setattr(views, "_linked", lambda link, new, head: linked.append(len(new)) or known(link, new, head))
    chains, history = Chains(), entries(*(bytes([n]) * 16 for n in range(20)))
    for size in (10, 10, 12, 20):
        chains.chain("t", "f", history[:size])
    assert linked == [10, 2, 8]


# Remembered entries


def test_an_entry_is_found_by_its_bytes_and_kind() -> None:
    cache = EntryCache()
    seed = cache.seed("chat o200k")
    assert cache.seed("chat o200k") == seed != cache.seed("chat cl100k")
    raws: list[Any] = [b'{"a":1}', b'{"a": 1}']
    found, digests = known_entries(raws, seed, cache)
    assert found == [None, None]
    entry = Entry(ask(), b"")
    cache.put(digests[0], entry)
    assert known_entries(raws, seed, cache)[0] == [entry, None]
    assert known_entries(raws, cache.seed("other"), cache)[0] == [None, None]
    assert known_entries([decode(b'[{"a":1}]', type=list[Raw])[0]], seed, cache)[0] == [entry]


def test_seeds_are_this_processs_own() -> None:
    assert EntryCache().seed("chat") != EntryCache().seed("chat")


def test_the_cache_is_bounded_and_keeps_what_is_used() -> None:
    cache = EntryCache(6 * views.ENTRY, parts=1)
    used = Entry(ask(), b"used")
    cache.put(b"used", used)
    for n in range(30):
        cache.put(b"%d" % n, Entry(ask(), b""))
        assert cache.get(b"used") is used
    assert cache.get(b"1") is None
    assert cache.get(b"29") is not None
    assert len(cache) <= 6


def test_all_parts_of_the_cache_are_in_use() -> None:
    cache = EntryCache(1_000 * views.ENTRY)
    for n in range(5_000):
        digest = xxhash.xxh3_128_digest(n.to_bytes(4, "big"), 7)
        cache.put(digest, Entry(ask(), digest))
        assert cache.get(digest) is not None
    assert 960 <= len(cache) <= 1_000


@pytest.mark.parametrize("shape", ["says", "calls", "results", "names", "cites", "chains", "rewritten"])
def test_what_is_remembered_takes_what_it_is_booked_with(shape: str) -> None:
    """Clients choose what is in an item. Within a third, so that the bound of a cache is the bound of its memory."""
    made, cache, chains = 300, EntryCache(1 << 30), Chains(1 << 30)
    known = entries(*(n.to_bytes(16, "big") for n in range(200)))

    def entry(n: int) -> Entry:
        name = f"{n:030}"
        calls = {
            "calls": [Call(f"call_{name}{at}", f"tool{n}", ("tool_calls", at), 9) for at in range(20)],
            "names": [Call("i" * 5_000 + name, "t" * 5_000 + name, (at,), 9) for at in range(3)],
        }.get(shape, [])
        results = [Result(f"call_{name}{at}", "", ("content", at), 1_000 + n) for at in range(20)]
        cites = [("".join(("document", str(n))), 1_000 + at) for at in range(20)]
        return Entry(
            Facts("user", tuple(calls), tuple(results if shape == "results" else ()), cites=tuple(cites if shape == "cites" else ())),
            n.to_bytes(16, "big"), 1_000 + n,
        )  # fmt: skip

    chains.chain("warm", "up", known)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(made):
            if shape == "chains":
                chains.chain(f"tenant {n}", "f", list(known))
            elif shape == "rewritten":
                cleared = tuple(Clearing(at, f"cleared {n} " * 10) for at in range(5))
                cache.rewritten.put(
                    (n.to_bytes(16, "big"), Edited(1_000 + n, cleared, f"lead {n}" * 99)), b"%09d" % n * 99
                )
            else:
                cache.put(n.to_bytes(16, "big"), entry(n))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    booked = {"chains": chains._last.bytes, "rewritten": cache.rewritten.bytes}.get(
        shape, sum(part.bytes for part in cache._parts)
    )
    assert booked * 2 / 3 < taken < booked * 4 / 3


# Views


def test_a_view_of_a_clients_own_items_is_their_indices() -> None:
    own = view(ask(), says(), tokens=[3, 4])
    assert own.pieces == [0, 1]
    assert (len(own), own.tokens, own.changed, own.covered) == (2, 7, False, 0)
    assert own.facts == [ask(), says()]
    assert View(own.raws, own.entries, covered=1).changed
    assert View(own.raws, own.entries, shaped=True).changed


@pytest.mark.parametrize(("piece", "index"), [(4, 4), (Edited(2), 2), (Note(b"{}"), -1)])
def test_where_a_piece_comes_from(piece: Any, index: int) -> None:
    assert origin(piece) == index


@given(st.recursive(st.integers() | st.text(), st.lists, max_leaves=4))
def test_slices_of_both_kinds_are_alike(value: Any) -> None:
    text = json.dumps(value).encode()
    raw = decode(b"[" + text + b"]", type=list[Raw])[0]
    assert raw_bytes(raw) == raw_bytes(text) == text
    assert size_of(raw) == size_of(text) == len(text)
