"""What is the memory store's own: bounds and the clock. The rest is in the contract."""

from __future__ import annotations

import tracemalloc

from app.edge.stores import MemoryStore, StoreOptions
from app.edge.stores.base import PER_ANCHOR
from app.records import Archive, Found, Session, SessionChange, StoredCheckpoint, UsageMark
from tests.contract.test_stores import checkpoint, links


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_checkpoints_are_bounded_by_count_and_what_is_used_stays() -> None:
    store = MemoryStore(max_items=10)
    chains = [links(3, name=f"c{n}") for n in range(30)]
    for chain in chains:
        await store.put_checkpoint("t", checkpoint(chain, 3))
        assert (await store.lookup("t", chains[0], "")).checkpoint
    alive = [number for number, chain in enumerate(chains) if (await store.lookup("t", chain, "")).checkpoint]
    assert alive == [0, *range(21, 30)]


async def test_of_many_branches_of_one_beginning_what_is_used_stays() -> None:
    store = MemoryStore()
    chains = [links(6, name=f"branch {n}", same=4) for n in range(100)]
    for chain in chains:
        await store.put_checkpoint("t", checkpoint(chain, 5))
        assert (await store.lookup("t", chains[0], "")).checkpoint
    alive = [number for number, chain in enumerate(chains) if (await store.lookup("t", chain, "")).checkpoint]
    assert alive == [0, *range(100 - PER_ANCHOR + 1, 100)]


async def test_checkpoints_and_archives_are_bounded_by_bytes() -> None:
    store = MemoryStore(StoreOptions(max_bytes=160_000))
    chains = [links(3, name=f"c{n}") for n in range(10)]
    for number, chain in enumerate(chains):
        await store.put_checkpoint("t", checkpoint(chain, 3, bytes(10_000)))
        await store.put_archive(Archive(f"a{number}", "", "t", "s", 1.0, "", bytes(10_000)))
    assert [bool((await store.lookup("t", chain, "")).checkpoint) for chain in chains] == [False] * 5 + [True] * 5
    assert len((await store.archives())[0]) == 4


async def test_what_is_kept_takes_what_it_is_booked_with() -> None:
    """Within a third: the bound of bytes is one of memory."""
    chains = [links(40, name=f"c{n}") for n in range(300)]
    marks = [
        tuple(UsageMark(f"{n:08}{at:08}".encode(), 1_000 + at, 2_000 + n, f"{n}-model") for at in range(8))
        for n in range(300)
    ]
    store = MemoryStore(StoreOptions(max_bytes=1 << 30))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n, chain in enumerate(chains):
            store.replace_checkpoint(f"tenant {n}", checkpoint(chain, 33, bytes(2_000)))
        checkpoints = tracemalloc.get_traced_memory()[0] - before
        for n in range(300):
            store.replace_session(Session(f"session {n}", f"tenant {n}", last_archive=f"{n}" * 40, usages=marks[n]))
            await store.acquire(f"summary tenant {n} policy {n:032}", 5)
        others = tracemalloc.get_traced_memory()[0] - before - checkpoints
    finally:
        tracemalloc.stop()
    booked = store._checkpoints.bytes + store._anchors.bytes
    assert booked * 2 / 3 < checkpoints < booked * 4 / 3
    assert others < (store._sessions.bytes + store._leases.bytes) * 4 / 3


async def test_the_clock_decides_every_life() -> None:
    clock = Clock()
    options = StoreOptions(session_ttl=10, checkpoint_ttl=20, archive_ttl=30, clock=clock)
    store, chain = MemoryStore(options), links(5)
    await store.put_checkpoint("t", checkpoint(chain, 5))
    await store.update_session("t", "s", SessionChange(add={"requests": 1}))
    await store.put_archive(Archive("a", "", "t", "s", clock.now, "", b"{}"))
    lease = await store.acquire("l", 5)
    clock.now += 5
    assert lease
    assert await store.acquire("l", 5)
    clock.now += 5
    assert await store.get_session("s") is None
    clock.now += 9
    assert (await store.lookup("t", chain, "s")).checkpoint
    clock.now += 11
    assert (await store.lookup("t", chain, "s")).checkpoint
    assert await store.get_archive("a") is None
    clock.now += 20
    assert await store.lookup("t", chain, "s") == Found()


async def test_what_guarded_learns_replaces_what_was_there() -> None:
    store, chain = MemoryStore(), links(5)
    await store.put_checkpoint("t", checkpoint(chain, 5, b"ours"))
    store.replace_checkpoint("t", checkpoint(chain, 5, b"theirs"))
    assert (await store.lookup("t", chain, "")).checkpoint == checkpoint(chain, 5, b"theirs")
    store.replace_checkpoint("t", StoredCheckpoint.of(chain, 5, b"", quarantined=True))
    assert store.is_quarantined("t", chain[4])
    assert await store.lookup("t", chain, "") == Found(None, 5)
    store.forget_checkpoint("t", chain[4])
    assert await store.lookup("t", chain, "") == Found()
