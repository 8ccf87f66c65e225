"""How servers are found: what a URL says, and who is the primary after a failover. The contract suite does the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, ConnectionError, ReadOnlyError

from app.edge.stores import StoreOptions, open_store
from app.edge.stores.redis_cluster import Cluster
from app.edge.stores.redis_servers import Single, call, place
from app.errors import ConfigInvalid
from tests.redis_server import ClusterOfThree, RedisServer, Replicated, needed_binary


class TestUrls:
    def test_hosts_have_the_usual_port_unless_they_say_another(self) -> None:
        where = place("redis+cluster://a,b:1,[::1]:2", 6379)
        assert where.hosts == (("a", 6379), ("b", 1), ("::1", 2))
        assert where.options == {}

    def test_credentials_path_and_options(self) -> None:
        where = place(
            "redis+sentinel://me:p%40ss@a:1,b:2/main%20one/3?client_name=a%26b&max_connections=9&sentinel_password=s",
            26379,
        )
        assert where.path == "main one/3"
        assert where.options == {"username": "me", "password": "p@ss", "client_name": "a&b", "max_connections": 9}
        assert where.sentinel == {"password": "s"}
        assert where.connection(1.0)["max_connections"] == 9

    @pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://a,,b", "redis+cluster://a:b"])
    def test_what_is_no_host(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            place(url, 1)

    @pytest.mark.parametrize(
        ("url", "fault"),
        [
            ("redis+sentinel://a", "must be master-name/db"),
            ("redis+sentinel://a/", "must be master-name/db"),
            ("redis+sentinel://a//0", "must be master-name/db"),
            ("redis+sentinel://a/main/secret", "the number of a database"),
            ("redis://a/secret", "the number of a database"),
            ("redis+cluster://a/2", "no databases"),
            ("redis://secret,b/0", "names several hosts"),
            ("redis://a?secret=1", "an option that is none of username, password"),
            ("redis://a?decode_responses=true", "an option that is none of username, password"),
            ("redis://a?ssl_ca_certs=/secret", "write rediss for redis"),
            ("redis://:secret/@a/0", "must be percent-encoded"),
            ("redis://:secret#@a/0", "must be percent-encoded"),
            ("redis://:secret?@a/0", "must be percent-encoded"),
        ],
    )
    def test_a_fault_is_told_without_a_word_of_the_url(self, url: str, fault: str) -> None:
        with pytest.raises(ConfigInvalid, match=fault) as caught:
            open_store(url, StoreOptions())
        assert "secret" not in str(caught.value)


async def test_passwords(redis_cluster: ClusterOfThree) -> None:
    for client in redis_cluster.clients:
        client.config_set("requirepass", "p@ss")
    try:
        for who, let_in in ((":p%40ss@", True), ("", False)):
            servers = Cluster.of(redis_cluster.url.replace("://", f"://{who}"), 1.0)
            if let_in:
                await servers.ping()
            else:
                with pytest.raises(AuthenticationError):
                    await servers.ping()
            await servers.aclose()
    finally:
        for node in redis_cluster.nodes:
            with Redis(port=node.port, password="p@ss") as client:
                client.config_set("requirepass", "")


async def put(servers: Single, value: str) -> Any:
    return await servers.run([call("set", "k", value, px=60_000), call("get", "k")])


class TestSentinel:
    async def test_after_a_failover_the_new_primary_is_found(self, tmp_path: Path) -> None:
        """Servers of its own: one of them dies."""
        group = Replicated(needed_binary(), tmp_path)
        servers = Single.behind_sentinels(group.url, 1.0)
        try:
            assert await put(servers, "before") == [True, b"before"]
            await asyncio.to_thread(group.fail_over)
            assert await put(servers, "after") == [True, b"after"]
            assert group.replica.client.get("k") == b"after"
        finally:
            await servers.aclose()
            group.stop()

    async def test_a_name_that_no_sentinel_knows(self, redis_behind_sentinel: Replicated) -> None:
        servers = Single.behind_sentinels(redis_behind_sentinel.url.replace("/main/", "/other/"), 1.0)
        with pytest.raises(ConnectionError):
            await servers.ping()
        await servers.aclose()


async def test_a_server_that_became_read_only_is_looked_for_anew(redis_server: RedisServer) -> None:
    """Behind one name there may be another server by now."""
    servers, client = Single.of(redis_server.url, 1.0), redis_server.client
    await put(servers, "a")
    before = {one["id"] for one in client.client_list()}
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(ReadOnlyError):
            await put(servers, "b")
    finally:
        client.replicaof("NO", "ONE")
    assert await put(servers, "c") == [True, b"c"]
    assert {one["id"] for one in client.client_list()} - before
    await servers.aclose()
