from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from app.edge.upstream import Upstream, dial
from app.edge.upstream.routes import Place
from tests.edge.upstream.peers import Authority, Peer, answers, ask, response, serve

OK = answers(response(b"hi"), response(b"hi"))


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where connecting hangs: its queue is full and nobody accepts."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    fillers = [socket.socket() for _ in range(3)]
    for filler in fillers:
        filler.setblocking(False)
        with suppress(BlockingIOError):
            filler.connect(listening.getsockname())
    yield listening.getsockname()[1]
    for sock in (*fillers, listening):
        sock.close()


@pytest.fixture
def refusing() -> int:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_refused(upstream: Upstream, refusing: int) -> None:
    with pytest.raises(httpx.ConnectError, match=f"127.0.0.1:{refusing}"):
        await ask(upstream, f"http://127.0.0.1:{refusing}")


async def test_unknown_name(upstream: Upstream) -> None:
    with pytest.raises(httpx.ConnectError):
        await ask(upstream, "http://nobody.invalid")


async def test_name_that_can_not_be_one(upstream: Upstream) -> None:
    with pytest.raises(httpx.ConnectError):
        await ask(upstream, "http://" + "a" * 64 + ".test")


async def test_connecting_takes_too_long(upstream: Upstream, deaf: int) -> None:
    with pytest.raises(httpx.ConnectTimeout):
        await ask(upstream, f"http://127.0.0.1:{deaf}", connect=0.1)
    assert upstream.open_connections == 0


async def test_cancelled_while_connecting(upstream: Upstream, deaf: int) -> None:
    asking = asyncio.ensure_future(ask(upstream, f"http://127.0.0.1:{deaf}"))
    await asyncio.sleep(0.05)
    assert upstream.open_connections == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert upstream.open_connections == 0


async def _open(monkeypatch: pytest.MonkeyPatch, *ports: int) -> socket.socket:
    """Connect to a name that has all these addresses."""

    async def found(*_args: Any, **_kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    class Loop:
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.sock_connect = loop.sock_connect
            self.getaddrinfo = found

    real = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: Loop(real))
    try:
        return await dial.open_socket(Place("many.test", 1))
    finally:
        monkeypatch.undo()


async def test_address_that_hangs_is_overtaken(monkeypatch: pytest.MonkeyPatch, deaf: int) -> None:
    monkeypatch.setattr(dial, "HEAD_START", 0.02)
    async with serve(OK) as server:
        with await _open(monkeypatch, deaf, server.port) as sock:
            assert sock.getpeername()[1] == server.port


async def test_address_that_fails_is_followed_by_the_next_at_once(
    monkeypatch: pytest.MonkeyPatch, refusing: int
) -> None:
    monkeypatch.setattr(dial, "HEAD_START", 1000)
    async with serve(OK) as server:
        with await _open(monkeypatch, refusing, refusing, server.port) as sock:
            assert sock.getpeername()[1] == server.port
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_all_addresses_fail(monkeypatch: pytest.MonkeyPatch, refusing: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        await _open(monkeypatch, refusing, refusing)
    with pytest.raises(OSError, match="no address"):
        await _open(monkeypatch)


def test_families_take_turns() -> None:
    four, six = socket.AF_INET, socket.AF_INET6
    assert dial._in_turn([(six, 1), (six, 2), (four, 3)]) == [(six, 1), (four, 3), (six, 2)]
    assert dial._in_turn([(four, 1), (six, 2), (six, 3)]) == [(four, 1), (six, 2), (six, 3)]


# TLS


async def test_certificate_of_a_known_authority(authority: Authority) -> None:
    protocols: list[str | None] = []

    async def script(peer: Peer) -> None:
        protocols.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await OK(peer)

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server()) as server:
        for _ in range(2):
            assert await ask(client, server.url) == (200, b"hi")
    assert protocols == ["http/1.1"]
    await client.aclose()


async def test_certificate_of_nobody_we_know(upstream: Upstream, authority: Authority) -> None:
    async with serve(OK, authority.server()) as server:
        with pytest.raises(httpx.ConnectError, match=f"certificate of 127.0.0.1:{server.port} is not trusted"):
            await ask(upstream, server.url)
        assert server.heads == []


async def test_certificate_for_somebody_else(authority: Authority) -> None:
    client = Upstream(ssl_context=authority.client())
    async with serve(OK, authority.server("192.0.2.1")) as server:
        with pytest.raises(httpx.ConnectError, match="not trusted"):
            await ask(client, server.url)
        assert server.heads == []
    await client.aclose()


async def test_no_tls_at_all(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(10)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with serve(script) as server:
        with pytest.raises(httpx.ConnectError):
            await ask(upstream, server.url.replace("http:", "https:"))


async def test_handshake_counts_as_connecting(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async with serve(script) as server:
        with pytest.raises(httpx.ConnectTimeout):
            await ask(upstream, server.url.replace("http:", "https:"), connect=0.1)


# Proxies


def _relay(target: list[bytes], port: int, answer: bytes = b"HTTP/1.1 200 Connected\r\nvia: x\r\n\r\n") -> Any:
    """A proxy that answers CONNECT and then passes bytes on to the port."""

    async def script(peer: Peer) -> None:
        target.append(await peer.head())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(len(answer)):
            await peer.send(answer[at : at + 1])

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    sink.write(data)
            sink.close()

        await asyncio.gather(pump(peer.reader, writer), pump(reader, peer.writer))

    return script


async def test_tunnel(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    connects: list[bytes] = []
    async with serve(OK, authority.server()) as server, serve(_relay(connects, server.port)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        client = Upstream(ssl_context=authority.client())
        for _ in range(2):
            assert await ask(client, server.url, target=b"/v1/x") == (200, b"hi")
        origin = b"127.0.0.1:%d" % server.port
        login = b64encode(b"user:p@ss")
        assert connects == [
            b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nProxy-Authorization: Basic %b\r\n\r\n" % (origin, origin, login)
        ]
        assert server.heads[0].startswith(b"GET /v1/x HTTP/1.1\r\n")
        assert b"proxy-authorization" not in b"".join(server.heads).lower()
        await client.aclose()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "answered 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "answered 502"),
        (b"HTTP/1.1 200 OK\r\n\r\nsurprise", "of its own"),
        (b"SSH-2.0-x\r\n\r\n", "no proper answer"),
        (b"HTTP/1.1\r\n\r\n", "no proper answer"),
        (b"HTTP/1.1 200 OK\r\n", "no proper answer"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70000, "no proper answer"),
    ],
)
async def test_tunnel_that_does_not_come_about(monkeypatch: pytest.MonkeyPatch, answer: bytes, text: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(answer)
        if len(answer) > dial.MAX_ANSWER:
            await peer.gone()

    async with serve(script) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:pw1@127.0.0.1:{proxy.port}")
        client = Upstream()
        with pytest.raises(httpx.ProxyError, match=text) as caught:
            await ask(client, "https://provider.test")
        assert "pw1" not in str(caught.value)
        assert client.open_connections == 0
        await client.aclose()


async def test_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch, refusing: int) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:pw1@127.0.0.1:{refusing}")
    client = Upstream()
    with pytest.raises(
        httpx.ConnectError, match=f"could not connect to 127.0.0.1:{refusing}: Connection refused"
    ) as caught:
        await ask(client, "https://provider.test")
    assert "pw1" not in str(caught.value)
    await client.aclose()


async def test_plain_proxying(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(OK) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:pass@127.0.0.1:{proxy.port}")
        client = Upstream()
        assert await ask(client, "http://provider.test:8080/ignored", target=b"/v1/x?q=%20") == (200, b"hi")
        assert proxy.heads == [
            b"GET http://provider.test:8080/v1/x?q=%%20 HTTP/1.1\r\nProxy-Authorization: Basic %b\r\n"
            b"host: provider.test:8080\r\n\r\n" % b64encode(b"user:pass")
        ]
        await client.aclose()


async def test_no_proxy(monkeypatch: pytest.MonkeyPatch, refusing: int) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{refusing}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    client = Upstream()
    async with serve(OK) as server:
        assert await ask(client, server.url, target=b"/v1/x") == (200, b"hi")
        assert server.heads[0].startswith(b"GET /v1/x ")
    await client.aclose()
