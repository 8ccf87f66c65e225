from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.edge.upstream import Upstream, transport
from tests.edge.upstream.peers import Authority, Peer, answers, ask, read, request, response, serve, until


async def test_request_and_response_as_they_are(upstream: Upstream) -> None:
    sent = [(b"anthropic-beta", b"a"), (b"X-Api-Key", b"k"), (b"anthropic-beta", b"b")]
    async with serve(answers(response(b"hi", b"Request-Id: r", b"x-a: 1", b"X-A: 2", status=b"200 Fine"))) as server:
        asked = request(server.url + "/other", "POST", b"{}", sent, target=b"/v1/x%2Fy?q=%20a+b")
        answer = await upstream.handle_async_request(asked)
        assert server.heads == [
            b"POST /v1/x%%2Fy?q=%%20a+b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nanthropic-beta: a\r\nX-Api-Key: k\r\n"
            b"anthropic-beta: b\r\ncontent-length: 2\r\n\r\n" % server.port
        ]
        assert (answer.status_code, answer.reason_phrase, answer.request) == (200, "Fine", asked)
        assert answer.headers.raw == [(b"content-length", b"2"), (b"Request-Id", b"r"), (b"x-a", b"1"), (b"X-A", b"2")]
        assert await read(answer) == b"hi"


async def test_content_encoding_is_left_alone(upstream: Upstream) -> None:
    async with serve(answers(response(b"\x1f\x8bnot really", b"content-encoding: gzip"))) as server:
        assert await ask(upstream, server.url) == (200, b"\x1f\x8bnot really")


async def test_byte_by_byte(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nx: y\r\n\r\n"
        for at in range(len(answer)):
            await peer.send(answer[at : at + 1])
            await asyncio.sleep(0)
        await peer.request()
        await peer.send(response(b"again"))

    async with serve(script) as server:
        assert await ask(upstream, server.url) == (200, b"hello!")
        assert await ask(upstream, server.url) == (200, b"again")
        assert len(server.peers) == 1


async def test_connection_is_kept(upstream: Upstream) -> None:
    async with serve(answers(*[response(b"%d" % n) for n in range(5)])) as server:
        for n in range(5):
            assert await ask(upstream, server.url, "POST", b"x") == (200, b"%d" % n)
        assert len(server.peers) == 1
        assert upstream.open_connections == 1


async def test_many_at_once(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.send(response(await peer.request()))

    async with serve(script) as server:
        bodies = [b"%d" % n * 100 for n in range(1, 101)]
        assert await asyncio.gather(*[ask(upstream, server.url, "POST", body) for body in bodies]) == [
            (200, body) for body in bodies
        ]
        assert upstream.open_connections == len(server.peers)


@pytest.mark.parametrize(
    ("method", "data", "status"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", 200),
        ("HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 500\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204),
    ],
)
async def test_answer_without_a_body_keeps_the_connection(
    upstream: Upstream, method: str, data: bytes, status: int
) -> None:
    async with serve(answers(data, data, response(b"x"))) as server:
        for _ in range(2):
            assert await ask(upstream, server.url, method) == (status, b"")
        assert await ask(upstream, server.url) == (200, b"x")
        assert len(server.peers) == 1


async def test_redirect_is_an_answer_like_any_other(upstream: Upstream) -> None:
    async with serve(answers(response(b"", b"location: /elsewhere", status=b"307 Temporary Redirect"))) as server:
        assert await ask(upstream, server.url) == (307, b"")
        assert len(server.heads) == 1


async def test_events_arrive_one_by_one(upstream: Upstream) -> None:
    seen: asyncio.Queue[None] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for n in range(20):
            event = b"data: %d\n\n" % n
            await peer.send(b"%x\r\n%b\r\n" % (len(event), event))
            await seen.get()  # the next event is not sent before this one was delivered
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    async with serve(script) as server:
        answer = await upstream.handle_async_request(request(server.url, "POST", b"{}"))
        events = []
        async for data in _stream(answer):
            events.append(data)
            seen.put_nowait(None)
        assert events == [b"data: %d\n\n" % n for n in range(20)]
        assert upstream.open_connections == 1


@pytest.mark.parametrize("tls", [False, True])
async def test_closing_early_reaches_the_provider_at_once(authority: Authority, tls: bool) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await peer.gone()
        gone.set()

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        answer = await client.handle_async_request(request(server.url))
        assert await anext(_stream(answer)) == b"hello"
        await answer.aclose()
        assert client.open_connections == 0
        async with asyncio.timeout(0.1):
            await gone.wait()
    await client.aclose()


@pytest.mark.parametrize("tls", [False, True])
async def test_cancelling_reaches_the_provider_at_once(authority: Authority, tls: bool) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        gone.set()

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        asking = asyncio.ensure_future(client.handle_async_request(request(server.url)))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert client.open_connections == 0
        async with asyncio.timeout(0.1):
            await gone.wait()
    await client.aclose()


@pytest.mark.parametrize("tls", [False, True])
async def test_provider_is_held_back_while_nobody_reads(authority: Authority, tls: bool) -> None:
    total, sent = 60_000_000, 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            await peer.send(bytes(100_000))
            sent += 100_000
        await peer.gone()

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        answer = await client.handle_async_request(request(server.url))
        before = -1
        while sent > before:  # until the provider gets no further
            before = sent
            await asyncio.sleep(0.2)
        assert sent < total
        received = 0
        async for data in _stream(answer):
            received += len(data)
        assert received == total
        assert client.open_connections == 1
    await client.aclose()


@pytest.mark.parametrize("head", [b"content-length: 100\r\n", b"transfer-encoding: chunked\r\n"])
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("tls", [False, True])
async def test_body_cut_short(authority: Authority, head: bytes, how: str, tls: bool) -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n5\r\nhello\r\n")
        await received.wait()
        peer.close() if how == "close" else peer.reset()

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        answer = await client.handle_async_request(request(server.url))
        stream = _stream(answer)
        assert b"hello" in await anext(stream)
        received.set()
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await anext(stream)
        assert client.open_connections == 0
    await client.aclose()


@pytest.mark.parametrize("tls", [False, True])
async def test_body_that_ends_with_the_connection(authority: Authority, tls: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n", b"all ", b"of it")

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        assert await ask(client, server.url) == (200, b"all of it")
        assert client.open_connections == 0
    await client.aclose()


# The race of kept connections


def _dies_second(how: str) -> Any:
    """The first connection serves one request and dies on the second, whose head it has read; later ones serve all."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response(b"%d" % peer.number))
        if peer.number == 0:
            await peer.head()
            if how == "half an answer":
                await peer.send(b"HTTP/1.1 200 O")
            peer.reset() if how == "reset" else peer.close()
        else:
            await peer.gone()

    return script


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_request_on_a_stale_connection_is_sent_once_more(upstream: Upstream, how: str) -> None:
    async with serve(_dies_second(how)) as server:
        assert await ask(upstream, server.url, "POST", b"a") == (200, b"0")
        assert await ask(upstream, server.url, "POST", b"b") == (200, b"1")
        assert len(server.heads) == 3
        assert upstream.open_connections == 1


async def test_once_only(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            await peer.send(response(b"x"))
        await peer.request()
        peer.close()

    async with serve(script) as server:
        await ask(upstream, server.url)
        with pytest.raises(httpx.RemoteProtocolError, match="without a response"):
            await ask(upstream, server.url)
        assert len(server.heads) == 3


async def test_once_more_on_a_new_connection_even_when_one_is_handed_over() -> None:
    client = Upstream(max_connections=1)
    async with serve(_dies_second("close")) as server:
        assert await ask(client, server.url) == (200, b"0")
        first, second = (asyncio.ensure_future(ask(client, server.url)) for _ in range(2))
        assert await second == (200, b"1")  # waited, and got the slot when the stale connection died
        assert await first == (200, b"2")  # not on connection 1, which was released into its hands
    await client.aclose()


async def test_never_on_a_new_connection(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async with serve(script) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(upstream, server.url, "POST", b"x")
        assert len(server.heads) == 1


async def test_never_after_a_byte_of_the_answer(upstream: Upstream) -> None:
    async with serve(_dies_second("half an answer")) as server:
        await ask(upstream, server.url)
        with pytest.raises(httpx.RemoteProtocolError, match="response head"):
            await ask(upstream, server.url)
        assert len(server.heads) == 2


async def test_never_a_streamed_body(upstream: Upstream) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"

    async with serve(_dies_second("close")) as server:
        await ask(upstream, server.url)
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
            await ask(upstream, server.url, "POST", body())
        assert len(server.heads) == 2


async def test_so_a_streamed_body_takes_no_connection_that_was_idle_for_long(
    monkeypatch: pytest.MonkeyPatch, upstream: Upstream
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"

    monkeypatch.setattr(transport, "SAFE_IDLE", 0.05)
    async with serve(answers(response(b"a"), response(b"b"))) as server:
        await ask(upstream, server.url)
        await ask(upstream, server.url, "POST", body())
        assert len(server.peers) == 1
        await asyncio.sleep(0.06)
        await ask(upstream, server.url, "POST", body())
        assert len(server.peers) == 2


async def test_never_after_a_timeout(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response())
        await peer.gone()

    async with serve(script) as server:
        await ask(upstream, server.url)
        with pytest.raises(httpx.ReadTimeout):
            await ask(upstream, server.url, read=0.05)
        assert len(server.peers) == 1


@pytest.mark.parametrize("tls", [False, True])
async def test_connection_that_was_closed_while_idle_is_not_used(authority: Authority, tls: bool) -> None:
    client = Upstream(ssl_context=authority.client())
    async with serve(answers(response(b"0")), authority.server() if tls else None) as server:
        await ask(client, server.url)
        server.peers[0].close()
        await until(lambda: client.open_connections == 0)
        assert await ask(client, server.url, "POST", b"x") == (200, b"0")
        assert len(server.peers) == 2
    await client.aclose()


async def test_connection_that_spoke_unasked_is_not_used(upstream: Upstream) -> None:
    async with serve(answers(response(b"0"))) as server:
        await ask(upstream, server.url)
        await server.peers[0].send(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n")
        await until(lambda: upstream.open_connections == 0)
        assert await ask(upstream, server.url) == (200, b"0")


# Limits


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"])
async def test_silence(upstream: Upstream, data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        await peer.gone()

    async with serve(script) as server:
        with pytest.raises(httpx.ReadTimeout):
            await ask(upstream, server.url, read=0.1)
        assert upstream.open_connections == 0


async def test_limits_that_a_request_does_not_name_are_the_clients() -> None:
    client = Upstream(timeout=httpx.Timeout(0.05))
    async with serve(answers()) as server:
        with pytest.raises(httpx.ReadTimeout):
            await ask(client, server.url)
        with pytest.raises(httpx.ReadTimeout):
            await ask(client, server.url, connect=5.0)
        asking = asyncio.ensure_future(ask(client, server.url, read=None))
        await asyncio.sleep(0.2)
        assert not asking.done()
        asking.cancel()
    await client.aclose()


async def test_too_many_at_once() -> None:
    client = Upstream(max_connections=2)
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await go.wait()
            await peer.send(response(b"x"))

    async with serve(script) as server:
        running = [asyncio.ensure_future(ask(client, server.url)) for _ in range(3)]
        await until(lambda: len(server.heads) == 2)
        with pytest.raises(httpx.PoolTimeout):
            await ask(client, server.url, pool=0.05)
        assert client.open_connections == 2
        go.set()
        assert await asyncio.gather(*running) == [(200, b"x")] * 3
        assert len(server.peers) == 2
    await client.aclose()


async def test_idle_connection_is_closed_after_a_while() -> None:
    client = Upstream(keepalive_expiry=0.1)
    async with serve(answers(response())) as server:
        await ask(client, server.url)
        assert client.open_connections == 1
        await until(server.peers[0].reader.at_eof)
        assert client.open_connections == 0
    await client.aclose()


# The end


async def test_closing_the_client_ends_everything() -> None:
    client = Upstream()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 0:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        await peer.gone()

    async with serve(script) as server:
        answer = await client.handle_async_request(request(server.url))
        asking = asyncio.ensure_future(ask(client, server.url))
        await until(lambda: len(server.heads) == 2)
        await client.aclose()
        assert client.open_connections == 0
        stream = _stream(answer)
        assert await anext(stream) == b"hello"
        for failing in (anext(stream), asking, ask(client, server.url)):
            with pytest.raises(httpx.TransportError, match="closed"):
                await failing
        for peer in server.peers:
            await until(peer.reader.at_eof)


async def test_through_an_httpx_client(upstream: Upstream) -> None:
    """Not on the hot path, but an httpx transport is what it says it is."""
    async with serve(answers(response(b"[1]"), response(b"[2]"))) as server:
        client = httpx.AsyncClient(transport=upstream)
        assert (await client.post(server.url, json={})).json() == [1]
        async with client.stream("POST", server.url, content=_letters()) as answer:
            assert await answer.aread() == b"[2]"
        assert upstream.open_connections == 1


async def _letters() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


def _stream(answer: httpx.Response) -> AsyncIterator[bytes]:
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    return aiter(answer.stream)
