"""Three servers as one: keys that move, servers that go, callers that leave. The contract suite does the rest."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, ConnectionError, ResponseError

from app.edge.stores import RedisStore, StoreOptions
from app.edge.stores import redis_cluster as module
from app.edge.stores.redis_cluster import Cluster
from app.edge.stores.redis_servers import call
from tests.contract.test_stores import checkpoint, links
from tests.edge.stores.test_redis import leaving
from tests.ports import free_port
from tests.redis_server import ClusterOfThree, RedisServer


@pytest.fixture
async def cluster(redis_cluster: ClusterOfThree) -> AsyncIterator[Cluster]:
    redis_cluster.flush()
    cluster = Cluster.of(redis_cluster.url, 2.0)
    yield cluster
    await cluster.aclose()


async def test_a_batch_over_all_servers_has_its_results_in_order(cluster: Cluster) -> None:
    keys = [f"k{n}" for n in range(100)]
    await cluster.run([call("set", key, key, px=60_000) for key in keys])
    assert await cluster.run([call("get", key) for key in keys]) == [key.encode() for key in keys]
    assert len(cluster._nodes) == 3


async def test_one_live_server_is_enough_to_find_the_others(redis_cluster: ClusterOfThree) -> None:
    redis_cluster.flush()
    cluster = Cluster.of(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{redis_cluster.nodes[1].port}/0", 2.0)
    assert await cluster.run([call("get", f"k{n}") for n in range(20)]) == [None] * 20
    await cluster.aclose()


async def test_one_failure_does_not_spoil_the_others_but_is_told(cluster: Cluster) -> None:
    with pytest.raises(ResponseError):
        await cluster.run(
            [call("set", "a", "x", px=60_000), call("hget", "a", "field"), call("set", "b", "y", px=60_000)]
        )
    assert await cluster.run([call("get", "a"), call("get", "b")]) == [b"x", b"y"]


class TestMoving:
    """A slot on its way from one server to another."""

    @pytest.fixture
    async def move(self, redis_cluster: ClusterOfThree) -> AsyncIterator[Any]:
        slot = key_slot(b"{moving}")
        source = next(n for n in range(3) if n * 5462 <= slot < (n + 1) * 5462)
        here, there = redis_cluster.nodes[source].client, redis_cluster.nodes[(source + 1) % 3].client
        names = [one.execute_command("CLUSTER", "MYID") for one in (here, there)]
        yield slot, here, there, names
        for one in (node.client for node in redis_cluster.nodes):
            one.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
            one.delete("x{moving}") if one is there else None
        there.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[0])
        here.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[0])

    async def test_is_asked_for_at_both_and_followed_when_it_has_moved(self, cluster: Cluster, move: Any) -> None:
        slot, here, there, names = move
        await cluster.run([call("get", "{moving}")])
        drawn = cluster._drawn_at
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        assert await cluster.run([call("set", "{moving}", "v", px=60_000), call("get", "other")]) == [True, None]
        assert await cluster.run([call("get", "{moving}"), call("get", "{moving}")]) == [b"v", b"v"]
        assert cluster._drawn_at == drawn
        for one in (there, here):
            one.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
        assert await cluster.run([call("get", "{moving}")]) == [b"v"]
        assert await cluster.run([call("delete", "{moving}")]) == [1]


class TestFailures:
    async def test_a_server_that_is_away_fails_its_own_keys_only_and_comes_back(
        self, cluster: Cluster, redis_cluster: ClusterOfThree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "REDRAW_SECONDS", 0.05)
        keys = {
            n: next(f"k{i}" for i in range(999) if n * 5462 <= key_slot(f"k{i}".encode()) < (n + 1) * 5462)
            for n in range(3)
        }
        await cluster.run([call("set", key, "v", px=60_000) for key in keys.values()])
        node: RedisServer = redis_cluster.nodes[2]
        node.stop()
        try:
            begun = time.monotonic()
            for _ in range(3):
                with pytest.raises((ConnectionError, ClusterDownError)):
                    await cluster.run([call("get", keys[2])])
                assert await cluster.run([call("get", keys[0]), call("get", keys[1])]) == [b"v", b"v"]
                await asyncio.sleep(0.06)
            assert time.monotonic() - begun < 2
        finally:
            await asyncio.to_thread(node.start)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await cluster.run([call("get", keys[2])]) == [None]
                    break
                except (ConnectionError, ClusterDownError):
                    await asyncio.sleep(0.05)

    async def test_nobody_there(self) -> None:
        cluster = Cluster.of(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}", 1.0)
        with pytest.raises(ConnectionError):
            await cluster.run([call("get", "k")])
        await cluster.aclose()

    async def test_a_server_that_is_no_cluster(self, redis_server: RedisServer) -> None:
        cluster = Cluster.of(f"redis+cluster://127.0.0.1:{redis_server.port}", 1.0)
        with pytest.raises(ResponseError):
            await cluster.ping()
        await cluster.aclose()


async def test_callers_that_leave_never_mix_up_the_answers_of_others(redis_cluster: ClusterOfThree) -> None:
    chance = random.Random(3)
    chains = [links(4, name=f"c{number}") for number in range(20)]
    writer, reader = (RedisStore.from_url(redis_cluster.url, StoreOptions(timeout=5.0)) for _ in range(2))
    for chain in chains:
        await writer.put_checkpoint("t", checkpoint(chain, 4, chain[3]))

    async def pause() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    assert sum([await leaving(reader, chains, chance, pause) for _ in range(20)]) > 50
    await writer.close()
    await reader.close()
