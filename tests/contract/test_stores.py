"""What every store promises, asked of each: memory, SQLite, Redis (alone, over TLS, behind a sentinel, a cluster, from an image), and the
guarded one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import multiprocessing
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.edge.stores import Guarded, StoreOptions, open_store
from app.edge.stores.base import PAGE
from app.edge.stores.sealing import Seal
from app.ports import Store
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, UsageMark
from tests.redis_server import ClusterOfThree, InImage, RedisServer, Replicated

TENANT = "tenant-a"
BRIEF = 0.4
"""Seconds to live, where a test waits for the end of a life."""


def links(length: int, *, name: str = "conversation", same: int = 0) -> list[bytes]:
    """Chain hashes of a conversation; conversations with different names share the first `same` items."""
    found, last = [], b""
    for index in range(length):
        item = f"{name if index >= same else 'shared'}-{index}"
        last = hashlib.blake2b(last + item.encode(), digest_size=16).digest()
        found.append(last)
    return found


def checkpoint(chain: list[bytes], depth: int, value: bytes = b"") -> StoredCheckpoint:
    return StoredCheckpoint.of(chain, depth, value or b"value at %d" % depth)


def archive(name: str, session: str = "s", created: float | None = None, **more: Any) -> Archive:
    values = {"tenant": TENANT, "previous": "", "document": b'{"items": []}'} | more
    return Archive(id=name, capability="c" * 32, session=session, created=created or time.time(), **values)


def compaction(name: str, session: str = "s", created: float | None = None) -> Compaction:
    return Compaction(
        id=name, tenant=TENANT, session=session, created=created or time.time(), format="gemini", model="m",
        strategy="combined", level=2, tokens_before=9_000, tokens_after=1_000, count_source="usage", archive="a",
        summary_input_tokens=3, summary_output_tokens=4, summary_cost=0.25,
    )  # fmt: skip


class Silent:
    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None:
        raise AssertionError(f"{op} failed")

    def note(self, event: str, **facts: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...


class Backend:
    """One place where stores keep their data; `open` gives another store object on it (memory: the same one)."""

    def __init__(self, url: str, guarded: bool = False, clients: Sequence[Any] = ()) -> None:
        self.url = url
        self.clients = clients
        self.guarded = guarded
        self.kind = url.partition("://")[0]
        self._opened: list[Store] = []

    def open(self, encryption_key: str = "", **options: Any) -> Store:
        if self.kind == "memory" and self._opened:
            return self._opened[0]
        lives = {"session_ttl": 1_000, "checkpoint_ttl": 1_000, "archive_ttl": 1_000, "timeout": 5.0}
        store = open_store(self.url, StoreOptions(seal=Seal.of(encryption_key), **(lives | options)))
        if self.guarded:
            store = Guarded(store, 5.0, Silent())
        self._opened.append(store)
        return store

    def at_rest(self) -> Iterator[bytes]:
        """All that lies there: the files' contents, or names and values of all keys."""
        if self.kind == "sqlite":
            yield from (file.read_bytes() for file in Path(self.url.removeprefix("sqlite:///")).parent.iterdir())
            return
        for client in self.clients:
            for key in client.scan_iter():
                yield key
                yield client.dump(key)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


REDIS = {
    "redis": "redis_server",
    "tls": "redis_tls",
    "sentinel": "redis_behind_sentinel",
    "cluster": "redis_cluster",
    "image": "redis_image",
}
"""Kind of Redis -> the fixture that has it."""


@pytest.fixture(params=["memory", "sqlite", *REDIS, "guarded"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    clients: Sequence[Any] = ()
    if request.param in REDIS:
        servers: RedisServer | Replicated | ClusterOfThree | InImage = request.getfixturevalue(REDIS[request.param])
        servers.flush()
        url, clients = servers.url, servers.clients
    else:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/data/store.db"
    backend = Backend(url, request.param == "guarded", clients)
    yield backend
    await backend.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


class TestCheckpoints:
    async def test_an_empty_store_finds_nothing(self, store: Store) -> None:
        assert await store.lookup(TENANT, links(5), "s") == Found()
        assert await store.lookup(TENANT, [], "s") == Found()

    async def test_what_was_put_is_found_whole(self, store: Store) -> None:
        chain = links(10)
        put = checkpoint(chain, 7, bytes(range(256)) * 40)
        assert await store.put_checkpoint(TENANT, put) is True
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == put

    async def test_an_empty_value_is_a_value(self, store: Store) -> None:
        chain = links(3)
        put = StoredCheckpoint.of(chain, 2, b"")
        await store.put_checkpoint(TENANT, put)
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == put

    @pytest.mark.parametrize("fresh", [False, True], ids=["same object", "another object"])
    async def test_every_depth_is_found_by_every_longer_conversation(self, backend: Backend, fresh: bool) -> None:
        chain = links(70)
        writer = backend.open()
        reader = backend.open() if fresh else writer
        for depth in range(1, 71):
            await writer.put_checkpoint(TENANT, checkpoint(chain, depth))
            for length in {depth, depth + 1, 70} - {71}:
                found = (await reader.lookup(TENANT, chain[:length], "s")).checkpoint
                assert found == checkpoint(chain, depth)
        for length in range(1, 71):
            found = (await reader.lookup(TENANT, chain[:length], "s")).checkpoint
            assert found == checkpoint(chain, length)

    async def test_the_deepest_match_wins_in_whatever_order_they_came(self, store: Store) -> None:
        chain = links(300)
        for depth in (40, 256, 3, 130, 100, 255):
            await store.put_checkpoint(TENANT, checkpoint(chain, depth))
        for length, depth in ((300, 256), (255, 255), (254, 130), (129, 100), (99, 40), (39, 3)):
            assert (await store.lookup(TENANT, chain[:length], "s")).checkpoint == checkpoint(chain, depth)
        assert (await store.lookup(TENANT, chain[:2], "s")).checkpoint is None

    async def test_a_branch_does_not_see_its_sibling(self, store: Store) -> None:
        left, right = links(12, name="left", same=9), links(12, name="right", same=9)
        assert left[8] == right[8]
        await store.put_checkpoint(TENANT, checkpoint(left, 11))
        await store.put_checkpoint(TENANT, checkpoint(left, 8))
        assert (await store.lookup(TENANT, left, "s")).checkpoint == checkpoint(left, 11)
        assert (await store.lookup(TENANT, right, "s")).checkpoint == checkpoint(left, 8)

    async def test_the_first_put_wins(self, backend: Backend) -> None:
        chain, first, second = links(6), backend.open(), backend.open()
        assert await first.put_checkpoint(TENANT, checkpoint(chain, 5, b"first"))
        assert not await second.put_checkpoint(TENANT, checkpoint(chain, 5, b"second"))
        assert not await first.put_checkpoint(TENANT, checkpoint(chain, 5, b"third"))
        for store in (first, second, backend.open()):
            assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 5, b"first")

    async def test_tenants_never_meet(self, store: Store) -> None:
        chain = links(6)
        await store.put_checkpoint("a", checkpoint(chain, 5, b"of a"))
        assert await store.lookup("b", chain, "s") == Found()
        assert await store.put_checkpoint("b", checkpoint(chain, 5, b"of b"))
        await store.quarantine("a", checkpoint(chain, 5))
        assert await store.lookup("b", chain, "s") == Found(checkpoint(chain, 5, b"of b"))
        assert await store.lookup("a", chain, "s") == Found(None, 5)

    async def test_names_that_run_together_are_different_tenants(self, store: Store) -> None:
        await store.update_session("ab", "c", SessionChange(add={"requests": 1}))
        assert (await store.lookup("a", links(1), "bc")).session is None
        assert (await store.lookup("", links(1), "abc")).session is None

    async def test_a_thousand_items(self, store: Store) -> None:
        chain = links(1_000)
        for depth in range(100, 1_000, 100):
            await store.put_checkpoint(TENANT, checkpoint(chain, depth))
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 900)

    async def test_many_siblings_under_one_anchor_stay_bounded_and_the_newest_is_found(self, store: Store) -> None:
        for number in range(100):
            chain = links(6, name=f"branch {number}", same=4)
            await store.put_checkpoint(TENANT, checkpoint(chain, 5))
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 5)
        oldest = links(6, name="branch 0", same=4)
        assert (await store.lookup(TENANT, oldest, "s")).checkpoint is None

    async def test_a_large_value(self, store: Store) -> None:
        chain = links(2)
        value = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(20_000))
        await store.put_checkpoint(TENANT, checkpoint(chain, 2, value))
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 2, value)


class TestQuarantine:
    @pytest.mark.parametrize("fresh", [False, True], ids=["same object", "another object"])
    async def test_it_is_not_handed_out_again_and_its_depth_is_told(self, backend: Backend, fresh: bool) -> None:
        chain, store = links(9), backend.open()
        for depth in (3, 6, 8):
            await store.put_checkpoint(TENANT, checkpoint(chain, depth))
        reader = backend.open() if fresh else store
        assert (await reader.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 8)
        await store.quarantine(TENANT, checkpoint(chain, 8))
        assert await reader.lookup(TENANT, chain, "s") == Found(checkpoint(chain, 6), 8)
        await store.quarantine(TENANT, checkpoint(chain, 6))
        assert await reader.lookup(TENANT, chain, "s") == Found(checkpoint(chain, 3), 8)
        assert await reader.lookup(TENANT, chain[:7], "s") == Found(checkpoint(chain, 3), 6)
        await store.quarantine(TENANT, checkpoint(chain, 3))
        assert await reader.lookup(TENANT, chain, "s") == Found(None, 8)

    async def test_putting_it_again_changes_nothing(self, store: Store) -> None:
        chain = links(9)
        await store.put_checkpoint(TENANT, checkpoint(chain, 8))
        await store.quarantine(TENANT, checkpoint(chain, 8))
        await store.quarantine(TENANT, checkpoint(chain, 8))
        assert not await store.put_checkpoint(TENANT, checkpoint(chain, 8, b"again"))
        assert await store.lookup(TENANT, chain, "s") == Found(None, 8)

    async def test_before_it_is_known(self, backend: Backend) -> None:
        chain, store = links(9), backend.open()
        await store.quarantine(TENANT, checkpoint(chain, 8))
        assert await store.lookup(TENANT, chain, "s") == Found(None, 8)
        assert not await backend.open().put_checkpoint(TENANT, checkpoint(chain, 8))
        assert await store.lookup(TENANT, chain, "s") == Found(None, 8)


class TestSessions:
    async def test_counters_count_and_fields_are_replaced(self, backend: Backend) -> None:
        store, marks = backend.open(), (UsageMark(b"\x00\xff" * 8, 10, 12), UsageMark(b"k" * 16, 20, 25))
        begun = time.time()
        change = SessionChange(
            add={"requests": 1, "tokens_cleared": 5_000, "summary_cost": 0.125},
            put={"model": "m-1", "level": 2, "ratio": 1.25, "usages": marks},
        )
        await store.update_session(TENANT, "s", change)
        first = await store.get_session("s")
        await asyncio.sleep(0.002)
        await store.update_session(TENANT, "s", replace(change, put={"model": 'm-2 "é\u2028', "usages": marks[:1]}))
        await store.update_session(TENANT, "s", SessionChange(add={"requests": -1, "compactions": 3}))
        session = (await backend.open().lookup(TENANT, links(2), "s")).session
        assert session is not None
        assert session == Session(
            id="s", tenant=TENANT, created=session.created, updated=session.updated, model='m-2 "é\u2028', level=2,
            requests=1, compactions=3, tokens_cleared=10_000, summary_cost=0.25, ratio=1.25, usages=marks[:1],
        )  # fmt: skip
        assert first is not None
        assert begun - 1 < session.created == first.created == first.updated < session.updated < time.time() + 1
        assert await store.get_session("s") == session

    async def test_stamps_may_be_given(self, store: Store) -> None:
        stamp = time.time() - 100.5
        await store.update_session(TENANT, "s", SessionChange(put={"updated": stamp, "created": stamp - 1}))
        session = await store.get_session("s")
        assert session is not None
        assert (session.created, session.updated) == (stamp - 1, stamp)

    @pytest.mark.parametrize(
        "change",
        [
            SessionChange(add={"nonsense": 1}),
            SessionChange(put={"nonsense": 1}),
            SessionChange(add={"model": 1}),
            SessionChange(put={"tenant": "b"}),
            SessionChange(add={"level": 1}, put={"level": 1}),
        ],
    )
    async def test_a_change_that_makes_no_sense_is_a_bug(self, store: Store, change: SessionChange) -> None:
        with pytest.raises(ValueError, match=r"session|change"):
            await store.update_session(TENANT, "s", change)
        assert await store.get_session("s") is None

    async def test_one_id_of_two_tenants_is_two_sessions(self, store: Store) -> None:
        now = time.time()
        await store.update_session("a", "s", SessionChange(add={"requests": 1}, put={"updated": now - 1}))
        await store.update_session("b", "s", SessionChange(add={"requests": 5}, put={"updated": now - 2}))
        by_tenant = {tenant: (await store.lookup(tenant, [], "s")).session for tenant in "ab"}
        assert {tenant: one.requests for tenant, one in by_tenant.items() if one} == {"a": 1, "b": 5}
        assert await store.get_session("s") == by_tenant["a"]
        await store.update_session("b", "s", SessionChange(put={"updated": now}))
        newest = await store.get_session("s")
        assert newest is not None
        assert newest.tenant == "b"
        assert len((await store.sessions())[0]) == 2

    async def test_adding_is_atomic_across_objects(self, backend: Backend) -> None:
        stores = backend.open(), backend.open()
        change = SessionChange(add={"requests": 1, "summary_cost": 0.5}, put={"model": "m"})
        await asyncio.gather(*(stores[n % 2].update_session(TENANT, "s", change) for n in range(100)))
        session = await stores[0].get_session("s")
        assert session is not None
        assert (session.requests, session.summary_cost) == (100, 50.0)

    async def test_strange_names(self, store: Store) -> None:
        for name in ("{a}b", "a b\n", "é" * 2_000, "'; DROP TABLE sessions; --", "\x00"):
            await store.update_session(TENANT, name, SessionChange(add={"requests": 1}))
            session = await store.get_session(name)
            assert session is not None
            assert (session.id, session.requests) == (name, 1)


class TestRecords:
    async def test_an_archive_is_read_back_whole(self, backend: Backend) -> None:
        document = ('{"items": ["' + "é\\u0000 text " * 20_000 + '"]}').encode()
        put = archive("a1", previous="a0", document=document)
        await backend.open().put_archive(put)
        assert await backend.open().get_archive("a1") == put
        assert await backend.open().get_archive("a2") is None

    async def test_a_compaction_is_read_back_whole(self, backend: Backend) -> None:
        await backend.open().put_compaction(compaction("c1"))
        found = await backend.open().get_compaction("c1")
        assert found is not None
        assert found == replace(compaction("c1"), created=found.created)
        assert await backend.open().get_compaction("c2") is None

    async def test_lists_are_newest_first_by_session_or_all_and_without_documents(self, store: Store) -> None:
        now = time.time()
        for number, session in enumerate(["s", "t", "s"]):
            await store.put_archive(archive(f"a{number}", session, now + number))
            await store.put_compaction(compaction(f"c{number}", session, now + number))
        assert [one.id for one in (await store.archives())[0]] == ["a2", "a1", "a0"]
        assert [one.id for one in (await store.archives("s"))[0]] == ["a2", "a0"]
        assert (await store.archives("t"))[0] == [archive("a1", "t", now + 1, document=b"")]
        assert [one.id for one in (await store.compactions())[0]] == ["c2", "c1", "c0"]
        assert (await store.compactions("t"))[0] == [compaction("c1", "t", now + 1)]
        assert (await store.compactions("nobody")) == ([], "")

    async def test_the_last_word_on_a_record_counts(self, store: Store) -> None:
        await store.put_compaction(compaction("c", "s"))
        again = replace(compaction("c", "s"), tokens_after=1)
        await store.put_compaction(again)
        assert await store.get_compaction("c") == again
        assert (await store.compactions("s"))[0] == [again]


class TestPages:
    @pytest.mark.parametrize("kind", ["sessions", "compactions", "archives"])
    async def test_pages_hold_every_line_once_also_when_stamps_are_equal(self, store: Store, kind: str) -> None:
        now = time.time()
        expected: list[str] = []
        for number in range(23):
            name, stamp = f"n{number:02}", now + number // 7
            if kind == "sessions":
                await store.update_session(TENANT, name, SessionChange(put={"updated": stamp}))
            elif kind == "archives":
                await store.put_archive(archive(name, "s", stamp))
            else:
                await store.put_compaction(compaction(name, "s", stamp))
            expected.insert(0, name)
        whole = [line.id for line in (await getattr(store, kind)())[0]]
        assert sorted(whole) == sorted(expected)
        assert [int(name[1:]) // 7 for name in whole] == [int(name[1:]) // 7 for name in expected]
        for size in (1, 5, 23, 22):
            names, cursor, pages = [], "", 0
            while True:
                page, cursor = await getattr(store, kind)(cursor=cursor, limit=size)
                assert len(page) <= size
                names += [line.id for line in page]
                pages += 1
                if not cursor or pages > 50:
                    break
            assert names == whole
            assert pages == -(-23 // size)

    @pytest.mark.parametrize("cursor", ["nonsense", "!", "e30", "WzEsMiwzXQ", "é"])
    async def test_a_cursor_of_somebody_else_finds_nothing(self, store: Store, cursor: str) -> None:
        await store.put_compaction(compaction("c"))
        assert await store.compactions(cursor=cursor) == ([], "")

    async def test_a_page_is_bounded_whatever_is_asked(self, store: Store) -> None:
        for _ in range(2):
            names = [secrets.token_hex(4) for _ in range(PAGE // 2 + 1)]
            await asyncio.gather(*(store.put_compaction(compaction(name)) for name in names))
        assert len((await store.compactions(limit=0))[0]) == 1
        assert len((await store.compactions(limit=-5))[0]) == 1
        page, cursor = await store.compactions(limit=10**9)
        assert len(page) == PAGE
        assert len((await store.compactions(cursor=cursor))[0]) == 2


class TestLeases:
    async def test_one_at_a_time_and_only_the_holder_gives_back(self, backend: Backend) -> None:
        one, two = backend.open(), backend.open()
        token = await one.acquire("prefix", 60)
        assert token
        assert await two.acquire("prefix", 60) is None
        assert await two.acquire("another", 60)
        await two.release("prefix", "not the token")
        assert await two.acquire("prefix", 60) is None
        await two.release("prefix", token)
        again = await two.acquire("prefix", 60)
        assert again not in (None, token)
        await one.release("prefix", token)
        assert await one.acquire("prefix", 60) is None

    async def test_it_ends_by_itself(self, store: Store) -> None:
        first = await store.acquire("prefix", BRIEF)
        assert await store.acquire("prefix", 60) is None
        await asyncio.sleep(BRIEF * 1.2)
        second = await store.acquire("prefix", 60)
        assert second
        await store.release("prefix", str(first))
        assert await store.acquire("prefix", 60) is None

    async def test_the_holder_can_hold_on(self, backend: Backend) -> None:
        one, two = backend.open(), backend.open()
        token = await one.acquire("prefix", BRIEF)
        assert token
        assert await one.renew("prefix", token, 60)
        assert not await two.renew("prefix", "not the token", 60)
        await asyncio.sleep(BRIEF * 1.2)
        assert await two.acquire("prefix", 60) is None
        await one.release("prefix", token)
        assert not await one.renew("prefix", token, 60)
        assert await two.acquire("prefix", BRIEF)

    async def test_what_has_ended_is_not_renewed(self, store: Store) -> None:
        token = str(await store.acquire("prefix", BRIEF))
        await asyncio.sleep(BRIEF * 1.2)
        assert not await store.renew("prefix", token, 60)
        assert await store.acquire("prefix", 60)

    async def test_a_crowd_gets_one(self, backend: Backend) -> None:
        stores = backend.open(), backend.open()
        tokens = await asyncio.gather(*(stores[n % 2].acquire("prefix", 60) for n in range(40)))
        assert len([token for token in tokens if token]) == 1


class TestTime:
    async def test_what_is_not_used_is_gone(self, backend: Backend) -> None:
        store = backend.open(session_ttl=BRIEF, checkpoint_ttl=BRIEF, archive_ttl=BRIEF)
        chain = links(4)
        await store.put_checkpoint(TENANT, checkpoint(chain, 3, b"first"))
        await store.update_session(TENANT, "s", SessionChange(add={"requests": 7}))
        await store.put_archive(archive("a"))
        await store.put_compaction(compaction("c"))
        await asyncio.sleep(BRIEF * 1.2)
        assert await store.lookup(TENANT, chain, "s") == Found()
        assert await store.get_session("s") is None
        assert await store.sessions() == ([], "")
        assert await store.get_archive("a") is None
        assert await store.archives() == ([], "")
        assert await store.get_compaction("c") is None
        assert await store.compactions("s") == ([], "")
        # And everything begins anew.
        assert await store.put_checkpoint(TENANT, checkpoint(chain, 3, b"second"))
        await store.update_session(TENANT, "s", SessionChange(add={"requests": 1}))
        found = await store.lookup(TENANT, chain, "s")
        assert found.checkpoint == checkpoint(chain, 3, b"second")
        assert found.session is not None
        assert found.session.requests == 1

    async def test_a_checkpoint_that_is_used_and_a_session_that_goes_on_live_longer(self, backend: Backend) -> None:
        life = 1.2
        store = backend.open(session_ttl=life, checkpoint_ttl=life)
        chain = links(4)
        await store.put_checkpoint(TENANT, checkpoint(chain, 3))
        for _ in range(2):
            await store.update_session(TENANT, "s", SessionChange(add={"requests": 1}))
            await asyncio.sleep(life * 0.6)
            found = await store.lookup(TENANT, chain, "s")
            assert found.checkpoint == checkpoint(chain, 3)
            assert found.session is not None
        assert found.session.requests == 2


@pytest.mark.parametrize("backend", ["sqlite", *REDIS, "guarded"], indirect=True)
class TestSharing:
    """Several store objects, or processes, on one file or server (memory is nobody else's)."""

    async def test_two_objects_racing_for_the_same_keys_agree(self, backend: Backend) -> None:
        one, two = backend.open(), backend.open()
        chain = links(40)

        async def put(store: Store, who: bytes) -> list[bool]:
            return [await store.put_checkpoint(TENANT, checkpoint(chain, depth, who)) for depth in range(1, 41)]

        ours, theirs = await asyncio.gather(put(one, b"one"), put(two, b"two"))
        assert all(a != b for a, b in zip(ours, theirs, strict=True))
        for depth in range(1, 41):
            expected = checkpoint(chain, depth, b"one" if ours[depth - 1] else b"two")
            for store in (one, two):
                assert (await store.lookup(TENANT, chain[:depth], "s")).checkpoint == expected

    async def test_a_restart_keeps_everything(self, backend: Backend) -> None:
        chain, before = links(9), backend.open()
        await before.put_checkpoint(TENANT, checkpoint(chain, 5))
        await before.put_checkpoint(TENANT, checkpoint(chain, 8))
        await before.quarantine(TENANT, checkpoint(chain, 8))
        await before.update_session(TENANT, "s", SessionChange(add={"requests": 2}))
        await before.put_archive(archive("a"))
        await before.put_compaction(compaction("c"))
        token = await before.acquire("prefix", 60)
        await before.close()
        after = backend.open()
        found = await after.lookup(TENANT, chain, "s")
        assert (found.checkpoint, found.quarantined) == (checkpoint(chain, 5), 8)
        assert found.session is not None
        assert found.session.requests == 2
        assert await after.get_archive("a")
        assert await after.get_compaction("c")
        assert await after.acquire("prefix", 60) is None
        await after.release("prefix", str(token))
        assert await after.acquire("prefix", 60)

    async def test_processes_side_by_side(self, backend: Backend) -> None:
        context = multiprocessing.get_context("spawn")
        children = [context.Process(target=_child, args=(backend.url, number)) for number in range(2)]
        for child in children:
            child.start()
        store = backend.open(timeout=10.0)
        await _work(store, 2)
        for child in children:
            await asyncio.to_thread(child.join, 60)
            assert child.exitcode == 0
        session = await store.get_session("s")
        assert session is not None
        assert session.requests == 3 * 50
        for number in range(3):
            chain = links(50, name=f"process {number}")
            assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, 50)


KEY, NEXT = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))


@pytest.mark.parametrize("backend", ["sqlite", *REDIS, "guarded"], indirect=True)
class TestEncryption:
    async def fill(self, store: Store, chain: list[bytes]) -> None:
        await store.put_checkpoint(TENANT, checkpoint(chain, 3, b"canary checkpoint " * 20))
        put = {"last_archive": "canary address", "usages": (UsageMark(b"k" * 16, 1, 2, "canary mark"),), "model": "m"}
        await store.update_session(TENANT, "s", SessionChange(add={"requests": 1}, put=put))
        await store.put_archive(replace(archive("a", document=b'"canary words"'), capability="canary capability"))
        await store.put_compaction(replace(compaction("c"), archive="canary address"))

    async def reads(self, store: Store, chain: list[bytes]) -> bool:
        """Whether all of it can be read; all or nothing."""
        found = await store.lookup(TENANT, chain, "s")
        kept, line = await store.get_archive("a"), await store.get_compaction("c")
        assert found.session is not None
        assert (found.session.requests, found.session.model) == (1, "m")
        if kept is None:
            assert found.checkpoint is None
            assert line is None
            assert (found.session.last_archive, found.session.usages) == ("", ())
            assert await store.archives() == await store.compactions() == ([], "")
            return False
        assert found.checkpoint == checkpoint(chain, 3, b"canary checkpoint " * 20)
        assert (kept.document, kept.capability) == (b'"canary words"', "canary capability")
        assert line is not None
        assert line.archive == found.session.last_archive == "canary address"
        assert found.session.usages[0].model == "canary mark"
        assert (await store.archives())[0] == [replace(kept, document=b"")]
        assert (await store.compactions())[0] == [line]
        return True

    async def test_nothing_lies_there_as_it_is(self, backend: Backend) -> None:
        chain, store = links(5), backend.open(encryption_key=KEY)
        await self.fill(store, chain)
        assert await self.reads(backend.open(encryption_key=KEY), chain)
        assert not [one for one in backend.at_rest() if b"canary" in one]
        assert len(list(backend.at_rest())) > 4 or backend.kind == "sqlite"

    async def test_keys_are_replaced_one_by_one(self, backend: Backend) -> None:
        chain = links(5)
        await self.fill(backend.open(encryption_key=f"old:{KEY}"), chain)
        assert await self.reads(backend.open(encryption_key=f"new:{NEXT},old:{KEY}"), chain)
        assert not await self.reads(backend.open(encryption_key=f"new:{NEXT}"), chain)
        assert not await self.reads(backend.open(), chain)

    async def test_what_nobody_here_can_read_makes_place(self, backend: Backend) -> None:
        chain, store = links(5), backend.open(encryption_key=f"new:{NEXT}")
        await self.fill(backend.open(encryption_key=f"old:{KEY}"), chain)
        assert await store.put_checkpoint(TENANT, checkpoint(chain, 3, b"anew"))
        assert (await backend.open(encryption_key=f"new:{NEXT}").lookup(TENANT, chain, "s")).checkpoint == checkpoint(
            chain, 3, b"anew"
        )

    async def test_what_was_stored_plainly_stays_readable(self, backend: Backend) -> None:
        chain = links(5)
        await self.fill(backend.open(), chain)
        assert await self.reads(backend.open(encryption_key=KEY), chain)
        assert not await backend.open(encryption_key=KEY).put_checkpoint(TENANT, checkpoint(chain, 3))

    async def test_a_quarantine_needs_no_key(self, backend: Backend) -> None:
        chain = links(5)
        await self.fill(backend.open(encryption_key=KEY), chain)
        await backend.open(encryption_key=KEY).quarantine(TENANT, checkpoint(chain, 3))
        found = await backend.open().lookup(TENANT, chain, "s")
        assert (found.checkpoint, found.quarantined) == (None, 3)


def _child(url: str, number: int) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            store = open_store(url, StoreOptions(timeout=10.0))
            stack.push_async_callback(store.close)
            await _work(store, number)

    asyncio.run(run())


async def _work(store: Store, number: int) -> None:
    chain = links(50, name=f"process {number}")
    for depth in range(1, 51):
        await store.put_checkpoint(TENANT, checkpoint(chain, depth))
        await store.update_session(TENANT, "s", SessionChange(add={"requests": 1}))
        assert (await store.lookup(TENANT, chain, "s")).checkpoint == checkpoint(chain, depth)


async def test_ping_and_close(backend: Backend) -> None:
    store = backend.open()
    await store.ping()
    await store.close()
    await store.close()
