"""TLS to real servers: whom we trust, who we are, and what is said when it fails. The contract suite does the rest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.edge.stores import StoreOptions, open_store
from app.edge.stores.redis_cluster import Cluster
from app.edge.stores.redis_servers import Single, call
from app.edge.stores.redis_tls import Tls
from app.errors import ConfigInvalid, StoreFailed
from app.ports import Store
from tests.contract.test_stores import links
from tests.edge.upstream.peers import answers, response, serve
from tests.edge.wire import compactd, configured, request, until
from tests.redis_server import Certificates, ClusterOfThree, RedisServer, Replicated, tls_binary

LIVES = {"session_ttl": 100, "checkpoint_ttl": 100, "archive_ttl": 100}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """What an authority issued that no server here knows."""
    return Certificates(tmp_path_factory.mktemp("stranger"))


def opened(url: str, timeout: float = 5.0) -> Store:
    return open_store(url, StoreOptions(timeout=timeout, **LIVES))


async def fault_of(url: str, patience: float = 5.0) -> str:
    """What a call says that fails, "" for one that does not."""
    store = opened(url, patience)
    try:
        await store.ping()
    except StoreFailed as fault:
        return str(fault)
    finally:
        await store.close()
    return ""


def bare(url: str, query: str = "") -> str:
    return f"{url.partition('?')[0]}?{query}"


NOT_TRUSTED = "ping: ConnectionError (the server's certificate is not trusted: "


class TestTrust:
    async def test_the_server_must_be_of_an_authority_that_we_know(
        self, redis_tls: RedisServer, stranger: Certificates
    ) -> None:
        assert await fault_of(redis_tls.url) == ""
        for url in (bare(redis_tls.url), bare(redis_tls.url, f"ssl_ca_certs={stranger.authority}")):
            assert (await fault_of(url)).startswith(NOT_TRUSTED)

    async def test_it_must_have_the_name_that_the_url_says_unless_that_is_waived(self, redis_tls: RedisServer) -> None:
        url = redis_tls.url.replace("127.0.0.1", "localhost")
        assert (await fault_of(url)).startswith(f"{NOT_TRUSTED}Hostname mismatch")
        assert await fault_of(f"{url}&ssl_check_hostname=false") == ""
        assert (await fault_of(bare(url, "ssl_check_hostname=false"))).startswith(NOT_TRUSTED)

    async def test_all_of_it_can_be_waived(self, redis_tls: RedisServer) -> None:
        assert await fault_of(bare(redis_tls.url, "ssl_cert_reqs=none")) == ""

    async def test_ssl_true_is_another_way_to_say_rediss(self, redis_tls: RedisServer) -> None:
        assert await fault_of(redis_tls.url.replace("rediss:", "redis:") + "&ssl=true") == ""

    async def test_who_speaks_tls_and_who_does_not(self, redis_tls: RedisServer, redis_server: RedisServer) -> None:
        assert await fault_of(bare(redis_tls.url).replace("rediss:", "redis:"))
        assert await fault_of(redis_server.url.replace("redis:", "rediss:"), 0.3)


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that wants certificates of its clients."""
    folder = tmp_path_factory.mktemp("demanding")
    server = RedisServer(tls_binary(), folder, tls=Certificates(folder, demanding=True))
    yield server
    server.stop()


class TestClients:
    async def test_it_lets_in_who_has_one_of_its_authority(
        self, demanding: RedisServer, stranger: Certificates
    ) -> None:
        assert await fault_of(demanding.url) == ""
        trust, _, _ = demanding.url.partition("&")
        # The server says why, and closes at once: its word may be lost.
        refused = re.compile(r"ping: ConnectionError \((TLS: .+|Connection reset by peer)\)")
        assert refused.fullmatch(await fault_of(trust))
        pair = f"ssl_certfile={quote(str(stranger.pair))}&ssl_keyfile={quote(str(stranger.pair))}"
        assert refused.fullmatch(await fault_of(f"{trust}&{pair}"))

    async def test_users_and_passwords(self, redis_tls: RedisServer) -> None:
        redis_tls.client.acl_setuser("me", enabled=True, passwords=["+p@ss/word"], keys="*", commands=["+@all"])
        try:
            url = redis_tls.url.replace("://", "://me:p%40ss%2Fword@")
            assert await fault_of(url) == ""
            assert await fault_of(url.replace("word", "other")) == "ping: AuthenticationError"
        finally:
            redis_tls.client.acl_deluser("me")


class TestContext:
    async def test_connections_share_it(self, redis_tls: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[object] = []
        make = Tls._made
        monkeypatch.setattr(Tls, "_made", lambda self: made.append(1) or make(self))
        store = opened(redis_tls.url)
        await asyncio.gather(*(store.lookup("t", links(3), "s") for _ in range(20)))
        assert redis_tls.client.info("clients")["connected_clients"] > 10
        assert len(made) == 1
        await store.close()

    def test_it_follows_its_files(self, tmp_path: Path, stranger: Certificates) -> None:
        mine = Certificates(tmp_path, demanding=True)
        tls = Tls(mine.options)
        first = tls.get()
        assert tls.get() is first
        mine.pair.write_text("half of a certificate")
        assert tls.get() is first
        mine.pair.write_bytes(stranger.pair.read_bytes())
        os.utime(mine.pair, ns=(time.time_ns(), time.time_ns() + 1_000))
        second = tls.get()
        assert second is not first
        mine.pair.unlink()
        assert tls.get() is second

    @pytest.mark.parametrize(
        ("query", "fault"),
        [
            ("ssl_ca_certs=/secret/ca.pem", "the file of ssl_ca_certs can't be read (No such file or directory)"),
            ("ssl_keyfile=/secret/key.pem", "the file of ssl_keyfile can't be read (No such file or directory)"),
            ("ssl_ca_certs={empty}", "its TLS files are not what they should be"),
            ("ssl_certfile={empty}", "its TLS files are not what they should be"),
            ("ssl_cert_reqs=secret", "ssl_cert_reqs must be required, optional or none"),
        ],
    )
    def test_what_can_not_be_used_is_told_before_anything_is_opened(
        self, query: str, fault: str, tmp_path: Path
    ) -> None:
        (tmp_path / "secret.pem").touch()
        url = "rediss://:secret@h:1/0?" + query.format(empty=tmp_path / "secret.pem")
        with pytest.raises(ConfigInvalid) as caught:
            opened(url)
        assert fault in str(caught.value)
        assert "secret" not in str(caught.value)
        config = tmp_path / "compactd.yaml"
        config.write_text(json.dumps({"store": {"url": url}}))
        for command in (["check"], ["serve"], ["archive", "list"]):
            run = CliRunner().invoke(cli, [*command, "-c", str(config)])
            assert (run.exit_code, fault in run.stderr, "secret" in run.output) == (1, True, False)


async def test_the_log_says_why_and_requests_flow(
    redis_tls: RedisServer, stranger: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    url = bare(redis_tls.url, f"ssl_ca_certs={stranger.authority}").replace("://", "://:secret-word@")
    rules = {"name": "default", "strategy": "sliding_window", "trigger_threshold": 400, "target_threshold": 200}
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"{n} {'word ' * 99}"} for n in range(15)]
    body = json.dumps({"model": "gpt-4o", "messages": messages}).encode()
    told: list[str] = []
    async with serve(answers(response(b"{}"))) as server:
        given = configured(server.url, store={"url": url, "timeout": 2}, policies=[rules])
        async with compactd(given) as proxy:
            await until(lambda: told.append("".join(capsys.readouterr())) or "store_degraded" in "".join(told))
            answer = await proxy.ask(request("POST", "/v1/chat/completions", body=body))
            ready = await proxy.ask(request("GET", "/readyz"))
    assert (answer["x-compactd-outcome"], answer["x-compactd-reason"]) == ("compacted", "store_unavailable")
    assert json.loads(ready.body) == {"status": "degraded", "store": "down"}
    log = "".join([*told, *capsys.readouterr()])
    assert NOT_TRUSTED in log
    assert "secret-word" not in log


class TestManyServers:
    """Their own, for some die."""

    async def test_sentinels_and_the_servers_that_they_name(self, tmp_path: Path, stranger: Certificates) -> None:
        group = Replicated(tls_binary(), tmp_path, tls=Certificates(tmp_path))
        put = [call("set", "k", "v", px=60_000), call("get", "k")]
        servers = Single.behind_sentinels(group.url, 2.0)
        try:
            assert await servers.run(put) == [True, b"v"]
            assert (await fault_of(bare(group.url, f"ssl_ca_certs={stranger.authority}"))).startswith(NOT_TRUSTED)
            await asyncio.to_thread(group.fail_over)
            assert await servers.run(put) == [True, b"v"]
        finally:
            await servers.aclose()
            group.stop()

    async def test_a_cluster_and_the_servers_that_it_names(self, tmp_path: Path, stranger: Certificates) -> None:
        servers = ClusterOfThree(tls_binary(), tmp_path, tls=Certificates(tmp_path))
        keys = [f"k{number}" for number in range(50)]
        cluster = Cluster.of(servers.url, 2.0)
        try:
            await cluster.run([call("set", key, key, px=60_000) for key in keys])
            assert await cluster.run([call("get", key) for key in keys]) == [key.encode() for key in keys]
            assert len(cluster._nodes) == 3
            cluster._slots = [(0, 16383, cluster._slots[0][2])]  # all others have moved
            assert await cluster.run([call("get", key) for key in keys]) == [key.encode() for key in keys]
            assert (await fault_of(bare(servers.url, f"ssl_ca_certs={stranger.authority}"))).startswith(NOT_TRUSTED)
        finally:
            await cluster.aclose()
            servers.stop()
