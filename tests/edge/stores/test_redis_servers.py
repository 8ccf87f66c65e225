"""How servers are found: what a URL says, and who is the primary after a failover. The contract suite does the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection
from redis.exceptions import AuthenticationError, ConnectionError, ReadOnlyError

from app.edge.stores.redis_cluster import Cluster
from app.edge.stores.redis_servers import Single, call, place
from tests.redis_server import ClusterOfThree, RedisServer, Replicated, needed_binary


class TestUrls:
    def test_hosts_have_the_usual_port_unless_they_say_another(self) -> None:
        where = place("redis+cluster://a,b:1,[::1]:2", 6379)
        assert where.hosts == (("a", 6379), ("b", 1), ("::1", 2))
        assert where.options == {}

    def test_credentials_path_and_options(self) -> None:
        where = place(
            "redis+sentinel://me:p%40ss@a:1,b:2/main%20one/3?ssl=true&ssl_cert_reqs=none&sentinel_password=s", 26379
        )
        assert where.path == "main one/3"
        assert where.options.pop("connection_class") is SSLConnection
        assert where.options == {"username": "me", "password": "p@ss", "ssl_cert_reqs": "none"}
        assert where.sentinel == {"password": "s"}

    @pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://a,,b", "redis+cluster://a:b"])
    def test_what_is_no_host(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            place(url, 1)

    @pytest.mark.parametrize("path", ["", "/", "//0", "/main/x"])
    async def test_sentinels_want_the_name_of_their_primary(self, path: str) -> None:
        with pytest.raises(ValueError, match="master-name/db"):
            Single.behind_sentinels(f"redis+sentinel://a{path}", 1.0)


async def test_tls_is_for_the_servers_and_for_those_that_name_them() -> None:
    behind = Single.behind_sentinels("redis+sentinel://u:p@a:1,b:2/main/3?ssl=true&ssl_cert_reqs=none", 1.0)
    assert behind._pool.connection_class is SentinelManagedSSLConnection
    assert {behind._pool.connection_kwargs[key] for key in ("ssl_cert_reqs", "db", "username")} == {"none", 3, "u"}
    for sentinel in behind._sentinels.sentinels:
        assert sentinel.connection_pool.connection_class is SSLConnection
        assert sentinel.connection_pool.connection_kwargs["username"] is None  # whose password is another
    cluster = Cluster.of("redis+cluster://u:p@a:1?ssl=true", 1.0)
    assert cluster._node(("a", 1)).connection_pool.connection_class is SSLConnection


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
