"""What is the Redis store's own: round trips, keys, a server that is away, full, read-only or slow. The rest is in the contract."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.crc import key_slot

from app.edge.stores import RedisStore, StoreOptions, redis_lists, redis_servers
from app.edge.stores import redis as module
from app.edge.stores.base import TooLarge
from app.errors import StoreFailed
from app.records import Archive, Compaction, Found, SessionChange
from tests.contract.test_stores import archive, checkpoint, compaction, links
from tests.redis_server import RedisServer, redis_binary

OPTIONS = StoreOptions(timeout=5.0)


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[Any]:
    """A plain client on the server, emptied."""
    with Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def _emptied(raw: Any) -> None:
    """For tests that need no client of their own."""
    assert not raw.dbsize()


@pytest.fixture
async def store(redis_server: RedisServer, _emptied: None) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(redis_server.url, OPTIONS)
    yield store
    await store.close()


class Wire:
    """A TCP relay in front of a server, which counts the client's packets and can delay the answers (seconds)."""

    def __init__(self) -> None:
        self.sent = 0
        self.delay = 0.0
        self.url = ""

    async def relay(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter, port: int) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", port)

        async def answers() -> None:
            while data := await server_in.read(1 << 16):
                await asyncio.sleep(self.delay)
                client_out.write(data)

        back = asyncio.create_task(answers())
        with suppress(OSError):
            while data := await client_in.read(1 << 16):
                self.sent += 1
                server_out.write(data)
        back.cancel()
        for end in (server_out, client_out):
            end.close()


@asynccontextmanager
async def wire_to(server: RedisServer) -> AsyncIterator[Wire]:
    wire = Wire()
    relay = await asyncio.start_server(lambda a, b: wire.relay(a, b, server.port), "127.0.0.1", 0)
    wire.url = f"redis://127.0.0.1:{relay.sockets[0].getsockname()[1]}/0"
    yield wire
    relay.close()


@asynccontextmanager
async def server_that(answer: bytes | None) -> AsyncIterator[str]:
    """The URL of a server that answers everything with these bytes, or never."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            if answer is not None:
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"redis://:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    server.close()


async def leaving(
    store: RedisStore, chains: list[list[bytes]], chance: random.Random, pause: Callable[[], Awaitable[None]]
) -> int:
    """All look up at once, and half of them leave, each after a pause: how many had no answer yet. All others have theirs."""
    store._values.__init__(10, 1 << 20, time.time)  # type: ignore[misc]  # every lookup has to ask for the record too
    tasks = [asyncio.create_task(store.lookup("t", chain, "s")) for chain in chains]
    for task in chance.sample(tasks, len(tasks) // 2):
        await pause()
        task.cancel()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    for found, chain in zip(told, chains, strict=True):
        assert isinstance(found, asyncio.CancelledError) or found.checkpoint == checkpoint(chain, 4, chain[3])
    return sum(isinstance(found, asyncio.CancelledError) for found in told)


async def fill(store: RedisStore) -> None:
    """Use every kind of key there is."""
    chain = links(9)
    for depth in (3, 6, 8):
        await store.put_checkpoint("tenant", checkpoint(chain, depth))
    await store.quarantine("tenant", checkpoint(chain, 8))
    await store.quarantine("tenant", checkpoint(links(3, name="never seen"), 2))
    await store.update_session("tenant", "session", SessionChange(add={"requests": 1, "summary_cost": 0.1}))
    await store.put_archive(archive("archive", "session"))
    await store.put_compaction(compaction("compaction", "session"))
    assert await store.acquire("lease", 60)
    await store.lookup("tenant", chain, "session")


class TestKeys:
    async def test_every_key_ends_has_one_slot_and_tells_no_names(self, store: RedisStore, raw: Any) -> None:
        await fill(store)
        keys = raw.keys()
        kinds = {key.partition(b"}:")[2].partition(b":")[0].decode() for key in keys}
        assert kinds == {
            "index", "checkpoint", "session", "sessions", "tenants", "archive", "archives", "compaction", "compactions", "lease",
        }  # fmt: skip
        for key in keys:
            assert raw.pttl(key) > 0, key
            assert key.startswith(b"compactd:1:{")
            assert key.count(b"{") == key.count(b"}") == 1
            assert not any(name in key for name in (b"tenant}", b"tenant-", b"{session", b"{archive", b"{compaction"))

    async def test_the_document_names_every_kind_of_key(self, store: RedisStore, raw: Any) -> None:
        await fill(store)
        told = (Path(__file__).parents[3] / "docs" / "state.md").read_text()
        for key in raw.scan_iter():
            beginning, _, kind = key.decode().partition("}:")
            assert f"`{beginning.partition('{')[0]}{{" in told
            assert f":{kind.partition(':')[0]}" in told

    async def test_lists_for_the_console_are_bounded(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis_lists, "PER_LIST", 5)
        now = time.time()
        for number in range(12):
            await store.put_compaction(compaction(f"c{number}", "s", now + number))
        assert [one.id for one in (await store.compactions())[0]] == ["c11", "c10", "c9", "c8", "c7"]
        assert [one.id for one in (await store.compactions("s"))[0]] == ["c11", "c10", "c9", "c8", "c7"]

    async def test_so_is_that_of_all_sessions_which_many_keys_share(
        self, store: RedisStore, raw: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_lists, "PER_LIST", 64)
        now = time.time()
        for number in range(200):
            await store.update_session("t", f"s{number}", SessionChange(put={"updated": now + number}))
        parts = raw.keys("*:sessions")
        assert len({key_slot(key) for key in parts}) == 16
        assert {raw.zcard(key) for key in parts} == {4}
        listed = [int(one.id[1:]) for one in (await store.sessions())[0]]
        assert listed[0] == 199
        assert listed == sorted(listed, reverse=True)

    async def test_lines_past_their_life_leave_a_list_that_goes_on(self, redis_server: RedisServer, raw: Any) -> None:
        store = RedisStore.from_url(redis_server.url, StoreOptions(timeout=5.0, archive_ttl=0.2))
        await store.put_archive(archive("old"))
        await asyncio.sleep(0.15)
        await store.put_archive(archive("new"))
        await asyncio.sleep(0.1)
        await store.put_archive(archive("newer"))
        assert [raw.zcard(key) for key in raw.keys("*:archives")] == [2, 2]
        await store.close()

    async def test_nothing_scans(self, store: RedisStore, raw: Any) -> None:
        raw.config_resetstat()
        await fill(store)
        await store.sessions()
        await store.archives("session")
        commands = set(raw.info("commandstats"))
        assert "cmdstat_zunion" in commands
        assert not {name for name in commands if "scan" in name or "keys" in name}

    async def test_values_are_compressed(self, store: RedisStore, raw: Any) -> None:
        chain = links(2)
        await store.put_checkpoint("t", checkpoint(chain, 2, b"the same words " * 5_000))
        [key] = raw.keys("*:checkpoint:*")
        assert raw.strlen(key) < 1_000


class TestTrips:
    @pytest.mark.usefixtures("_emptied")
    async def test_a_lookup_is_one_round_trip_once_the_checkpoint_was_seen(self, redis_server: RedisServer) -> None:
        chain = links(300)
        async with wire_to(redis_server) as wire:
            store = RedisStore.from_url(wire.url, OPTIONS)
            await store.update_session("t", "s", SessionChange(add={"requests": 1}))
            writer = RedisStore.from_url(redis_server.url, OPTIONS)
            await writer.put_checkpoint("t", checkpoint(chain, 290))
            trips = []
            for _ in range(3):
                before = wire.sent
                found = await store.lookup("t", chain, "s")
                assert found.checkpoint == checkpoint(chain, 290)
                assert found.session
                trips.append(wire.sent - before)
            await store.put_checkpoint("t", checkpoint(chain, 300))
            before = wire.sent
            assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 300)
            trips.append(wire.sent - before)
            await store.close()
            await writer.close()
        assert trips == [2, 1, 1, 1]

    async def test_a_quarantine_by_another_replica_beats_the_local_cache(
        self, store: RedisStore, redis_server: RedisServer
    ) -> None:
        chain, other = links(5), RedisStore.from_url(redis_server.url, OPTIONS)
        await store.put_checkpoint("t", checkpoint(chain, 5))
        await store.lookup("t", chain, "s")
        await other.quarantine("t", checkpoint(chain, 5))
        assert await store.lookup("t", chain, "s") == Found(None, 5)
        await other.close()

    async def test_a_record_that_the_server_dropped_is_passed_over(
        self, redis_server: RedisServer, store: RedisStore, raw: Any
    ) -> None:
        chain, reader = links(9), RedisStore.from_url(redis_server.url, OPTIONS)
        await store.put_checkpoint("t", checkpoint(chain, 5))
        shallow = set(raw.keys("*:checkpoint:*"))
        await store.put_checkpoint("t", checkpoint(chain, 8))
        [deep] = set(raw.keys("*:checkpoint:*")) - shallow
        raw.delete(deep)
        assert (await reader.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 5)
        await reader.close()

    @pytest.mark.usefixtures("_emptied")
    @pytest.mark.parametrize("connections", [64, 3])
    async def test_callers_that_leave_never_mix_up_the_answers_of_others(
        self, redis_server: RedisServer, connections: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cancelled call leaves an unread answer on its connection, which must not become somebody else's answer,
        and must not take the connection along."""
        monkeypatch.setattr(redis_servers, "CONNECTIONS", connections)
        chains = [links(4, name=f"c{number}") for number in range(20)]
        chance = random.Random(7)
        async with wire_to(redis_server) as wire:
            store = RedisStore.from_url(wire.url, OPTIONS)
            for chain in chains:
                await store.put_checkpoint("t", checkpoint(chain, 4, chain[3]))
            wire.delay = 0.005
            left = [
                await leaving(store, chains, chance, lambda: asyncio.sleep(chance.random() * 0.002)) for _ in range(8)
            ]
            assert sum(left) > 20
            await store.close()


class TestFailures:
    async def test_a_server_that_refuses(self) -> None:
        store = RedisStore.from_url("redis://:secret@127.0.0.1:1/0", StoreOptions(timeout=2.0))
        with pytest.raises(StoreFailed, match=r"^lookup: ConnectionError \(Connection refused\)$"):
            await store.lookup("t", links(3), "s")
        with pytest.raises(StoreFailed):
            await store.put_archive(Archive("a", "c", "t", "s", 1.0, "", b"{}"))
        await store.close()

    async def test_a_server_that_never_answers_costs_the_timeout(self) -> None:
        async with server_that(None) as url:
            store = RedisStore.from_url(url, StoreOptions(timeout=0.1))
            begun = time.monotonic()
            for call in (store.lookup("t", links(300), "s"), store.ping(), store.sessions(), store.acquire("l", 5)):
                with pytest.raises(StoreFailed):
                    await call
            assert time.monotonic() - begun < 3
            await store.close()

    @pytest.mark.parametrize(
        "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$-99\r\n", b"*1\r\n+secret\r\n", b"-ERR secret\r\n"]
    )
    async def test_a_server_that_is_something_else(self, answer: bytes) -> None:
        async with server_that(answer) as url:
            store = RedisStore.from_url(url, StoreOptions(timeout=1.0))
            with pytest.raises(StoreFailed) as caught:
                await store.lookup("t", links(3), "s")
            assert "secret" not in str(caught.value)
            await store.close()

    async def test_stored_nonsense_is_passed_over_and_makes_place_for_the_next(
        self, store: RedisStore, raw: Any, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain, reader = links(5), RedisStore.from_url(redis_server.url, OPTIONS)
        await store.put_checkpoint("t", checkpoint(chain, 2))
        shallow = set(raw.keys("*:checkpoint:*"))
        await store.put_checkpoint("t", checkpoint(chain, 4))
        [deep] = set(raw.keys("*:checkpoint:*")) - shallow
        raw.set(deep, b"secret nonsense", keepttl=True)
        assert (await reader.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        assert await reader.put_checkpoint("t", checkpoint(chain, 4, b"again"))
        assert (await reader.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 4, b"again")
        assert not await reader.put_checkpoint("t", checkpoint(chain, 4, b"and again"))
        assert raw.pttl(deep) > 0
        assert "passed over" in caplog.text
        assert "secret" not in caplog.text
        await reader.close()

    async def test_records_of_another_version_are_as_good_as_none(self, store: RedisStore, raw: Any) -> None:
        await store.update_session("t", "s", SessionChange(add={"requests": 1}))
        await store.put_archive(archive("a", "s"))
        await store.put_compaction(compaction("c", "s"))
        [session], [kept], [line] = raw.keys("*:session"), raw.keys("*:archive"), raw.keys("*:compaction")
        raw.hset(session, mapping={"requests": "many", "colour": "red"})
        raw.hset(kept, "about", b"\x00\x93\x01\x02\x03")
        raw.set(line, b"\x00\x81\xa1v\x02")
        assert (await store.lookup("t", links(2), "s")).session is None
        assert await store.sessions() == ([], "")
        assert await store.get_session("s") is None
        assert await store.get_archive("a") is None
        assert await store.archives("s") == ([], "")
        assert await store.get_compaction("c") is None
        assert await store.compactions() == ([], "")

    async def test_an_archive_that_is_too_large_is_refused(
        self, store: RedisStore, raw: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LARGEST_RECORD", 1_000)
        with pytest.raises(TooLarge):
            await store.put_archive(archive("a", document=os.urandom(2_000)))
        assert not raw.dbsize()

    async def test_a_server_that_is_full_can_still_be_read(self, store: RedisStore, raw: Any) -> None:
        chain = links(5)
        await store.put_checkpoint("t", checkpoint(chain, 2))
        raw.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreFailed, match=r"^put_checkpoint: OutOfMemoryError$"):
                await store.put_checkpoint("t", checkpoint(chain, 3))
            assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        finally:
            raw.config_set("maxmemory", "0")
        assert await store.put_checkpoint("t", checkpoint(chain, 3))

    async def test_a_replica_that_is_read_only_can_still_be_read(self, redis_server: RedisServer, raw: Any) -> None:
        chain, brief = links(5), StoreOptions(timeout=5.0, checkpoint_ttl=100.0)
        writer = RedisStore.from_url(redis_server.url, brief)
        await writer.put_checkpoint("t", checkpoint(chain, 2))
        # Renewing is due at once for a reader whose lives are longer; that it can't be done must not matter.
        reader = RedisStore.from_url(redis_server.url, OPTIONS)
        raw.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(StoreFailed, match=r"^put_checkpoint: ReadOnlyError$"):
                await writer.put_checkpoint("t", checkpoint(chain, 3))
            assert (await reader.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        finally:
            raw.replicaof("NO", "ONE")
        await writer.close()
        await reader.close()

    async def test_a_restart_of_the_server_is_survived_and_loses_nothing(self, tmp_path: Path) -> None:
        binary = redis_binary()
        if binary is None:
            pytest.skip("no Redis server")
        server = RedisServer(binary, tmp_path, "--appendonly", "yes", "--appendfsync", "always")
        try:
            chain, store = links(5), RedisStore.from_url(server.url, OPTIONS)
            await asyncio.gather(*(store.put_checkpoint("t", checkpoint(chain, depth)) for depth in (2, 4)))
            await store.quarantine("t", checkpoint(chain, 4))
            await store.update_session("t", "s", SessionChange(add={"requests": 3}))
            await asyncio.to_thread(server.stop)
            with pytest.raises(StoreFailed):
                await store.lookup("t", chain, "s")
            await asyncio.to_thread(server.start)
            found = await store.lookup("t", chain, "s")
            assert (found.checkpoint, found.quarantined) == (checkpoint(chain, 2), 4)
            assert found.session is not None
            assert found.session.requests == 3
            await store.close()
        finally:
            server.stop()


async def test_compactions_whose_record_is_gone_are_left_out_of_the_page(store: RedisStore, raw: Any) -> None:
    for name in ("c1", "c2"):
        await store.put_compaction(compaction(name))
    keys = raw.keys("*:compaction")
    raw.delete(keys[0])
    [left] = (await store.compactions())[0]
    assert isinstance(left, Compaction)


async def test_a_session_that_goes_on_does_not_touch_the_lists_each_time(store: RedisStore, raw: Any) -> None:
    change = SessionChange(add={"requests": 1})
    await store.update_session("t", "s", change)
    raw.config_resetstat()
    for _ in range(10):
        await store.update_session("t", "s", change)
    told = raw.info("commandstats")
    assert "cmdstat_zadd" not in told
    assert told["cmdstat_hincrby"]["calls"] == 10
    [session] = (await store.sessions())[0]
    assert session.requests == 11


async def test_after_a_loss_what_another_replica_made_is_seen_within_a_minute(
    redis_server: RedisServer, raw: Any
) -> None:
    """What this process remembers of a checkpoint that the server has lost gives way to the one that is there now."""
    chain, ahead = links(3), 0.0
    one = RedisStore.from_url(redis_server.url, replace(OPTIONS, clock=lambda: time.time() + ahead))
    other = RedisStore.from_url(redis_server.url, OPTIONS)
    assert await one.put_checkpoint("t", checkpoint(chain, 2, b"lost"))
    raw.flushall()
    assert await other.put_checkpoint("t", checkpoint(chain, 2, b"made again"))
    ahead = module.CACHE_SECONDS + 1.0
    for store in (one, other):
        found = (await store.lookup("t", chain, "s")).checkpoint
        assert found is not None
        assert found.value == b"made again"
        await store.close()
