from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from app.edge.upstream import Upstream
from app.edge.upstream.exchange import Exchange
from app.edge.upstream.framing import Message
from app.edge.upstream.sender import JOINED, SLICE, Sender
from tests.edge.upstream.peers import Authority, Peer, ask, connected, read, request, response, serve, until

HEAD = b"POST / HTTP/1.1\r\n\r\n"


async def test_small_body_leaves_with_its_head() -> None:
    _, connection, wire = await connected()
    sender = Sender(connection)
    sender.start(Message(HEAD, b"x" * JOINED))
    assert wire.written == [HEAD + b"x" * JOINED]
    assert not sender.active


async def test_large_body_waits_while_the_transport_is_full() -> None:
    _, connection, wire = await connected()
    exchange = Exchange(connection, False, None, None)
    connection.pause_writing()
    body = bytes(SLICE) + b"\1" * SLICE + b"\2"
    exchange.send(Message(HEAD, body))
    assert wire.written == [HEAD]
    wire.buffered = 7
    sender = exchange._sender
    assert (sender.active, sender.backlog) == (True, len(body) + 7)
    connection.resume_writing()
    await until(lambda: not sender.active)
    assert b"".join(wire.written) == HEAD + body
    assert max(map(len, wire.written)) == SLICE


async def test_nothing_more_is_written_to_a_transport_that_failed() -> None:
    _, connection, wire = await connected()
    exchange = Exchange(connection, False, None, None)
    exchange.send(Message(HEAD, bytes(3 * SLICE)))
    wire.aborted = True  # a write failed; the loop will tell the connection later
    await asyncio.sleep(0.01)
    assert wire.written == [HEAD, bytes(SLICE)]
    connection.connection_lost(BrokenPipeError(32, "Broken pipe"))
    with pytest.raises(httpx.WriteError, match="Broken pipe"):
        await exchange.head


async def test_early_answer_is_found_between_two_slices() -> None:
    _, connection, wire = await connected()
    exchange = Exchange(connection, False, None, None)
    exchange.send(Message(HEAD, bytes(3 * SLICE)))
    exchange.feed(response(b"no", status=b"413 Content Too Large"))
    await asyncio.sleep(0.01)
    assert wire.written == [HEAD, bytes(SLICE)]
    assert exchange.status == 413


async def test_rest_of_a_large_body_is_left_unsent_once_it_is_refused() -> None:
    _, connection, wire = await connected()
    exchange = Exchange(connection, False, None, None)
    connection.pause_writing()
    exchange.send(Message(HEAD, bytes(3 * SLICE)))
    exchange.feed(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n")
    connection.resume_writing()
    assert wire.written == [HEAD]
    assert not wire.aborted
    exchange.feed(b"no")
    assert wire.aborted  # the connection is in the middle of a request
    assert [data async for data in exchange] == [b"no"]


async def test_request_still_being_sent_when_the_answer_is_complete_spoils_the_connection() -> None:
    _, connection, wire = await connected()
    exchange = Exchange(connection, False, None, None)
    connection.pause_writing()
    exchange.send(Message(HEAD, b"x"))
    exchange.feed(response(b"fine"))
    assert wire.aborted
    assert [data async for data in exchange] == [b"fine"]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("size", [0, 1, JOINED + 1, 3_000_000])
async def test_body_arrives_whole(authority: Authority, tls: bool, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    async def script(peer: Peer) -> None:
        for _ in range(2):
            same = await peer.request() == body
            await peer.send(response(b"same" if same else b"different"))

    client = Upstream(ssl_context=authority.client())
    async with serve(script, authority.server() if tls else None) as server:
        for _ in range(2):
            assert await ask(client, server.url, "POST", body) == (200, b"same")
        assert len(server.peers) == 1
    await client.aclose()


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


async def test_streamed_body_is_chunked(upstream: Upstream) -> None:
    sent = b"5\r\nhello\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n"

    async def script(peer: Peer) -> None:
        for _ in range(2):
            assert b"transfer-encoding: chunked\r\n" in await peer.head()
            assert await peer.reader.readexactly(len(sent)) == sent
            await peer.send(response(b"ok"))
        await peer.gone()

    async with serve(script) as server:
        for _ in range(2):
            assert await ask(upstream, server.url, "POST", _pieces(b"hello", b"", b"x" * 16)) == (200, b"ok")
        assert len(server.peers) == 1


async def test_streamed_body_with_a_length_goes_out_as_it_is(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.request() == b"hello!"
        await peer.send(response(b"ok"))
        await peer.gone()

    async with serve(script) as server:
        body = _pieces(b"hel", b"", b"lo!")
        assert await ask(upstream, server.url, "POST", body, [(b"content-length", b"6")]) == (200, b"ok")
        assert upstream.open_connections == 1


async def test_streamed_body_is_held_back_while_the_provider_does_not_read(upstream: Upstream) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(SLICE)

    async def script(peer: Peer) -> None:
        await peer.head()
        await asyncio.Event().wait()

    async with serve(script) as server:
        with pytest.raises(httpx.WriteTimeout):
            await ask(upstream, server.url, "POST", endless(), write=0.2)
        assert 0 < taken < 200


@pytest.mark.parametrize("length", [2, 4, 0])
async def test_streamed_body_of_another_length_than_declared(upstream: Upstream, length: int) -> None:
    received = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await peer.head()
        received.set_result(await peer.gone())

    async with serve(script) as server:
        with pytest.raises(httpx.LocalProtocolError):
            await ask(upstream, server.url, "POST", _pieces(b"a", b"bc"), [(b"content-length", b"%d" % length)])
        assert len(await received) <= length
        assert upstream.open_connections == 0


async def test_what_the_body_raises_comes_out_and_the_provider_sees_no_end(upstream: Upstream) -> None:
    class ClientLeft(Exception):
        pass

    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ClientLeft

    received = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await peer.head()
        received.set_result(await peer.gone())

    async with serve(script) as server:
        with pytest.raises(ClientLeft):
            await ask(upstream, server.url, "POST", broken())
        assert await received in (b"3\r\nabc\r\n", b"")  # what was still in the buffer is dropped


async def test_body_that_is_cancelled_from_elsewhere(upstream: Upstream) -> None:
    async def cancelled() -> AsyncIterator[bytes]:
        yield b"abc"
        raise asyncio.CancelledError

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.gone()

    async with serve(script) as server:
        with pytest.raises(httpx.WriteError, match="broke off"):
            await ask(upstream, server.url, "POST", cancelled())
        assert upstream.open_connections == 0


async def test_early_refusal_stops_the_upload(upstream: Upstream) -> None:
    stopped = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        try:
            yield b"abc"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readexactly(8)
        await peer.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n\r\nmu")
        await stopped.wait()
        await peer.send(b"ch")
        assert await peer.gone() == b""

    async with serve(script) as server:
        assert await ask(upstream, server.url, "POST", stalled()) == (413, b"much")
        assert upstream.open_connections == 0


async def test_silence_after_an_early_refusal(upstream: Upstream) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"abc"
        await asyncio.Event().wait()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n\r\n")
        await peer.gone()

    async with serve(script) as server:
        with pytest.raises(httpx.ReadTimeout):
            await ask(upstream, server.url, "POST", stalled(), read=0.1, write=None)


async def test_cancelling_stops_the_upload(upstream: Upstream) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        try:
            yield b"abc"
            started.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.gone()

    async with serve(script) as server:
        asking = asyncio.ensure_future(ask(upstream, server.url, "POST", stalled()))
        await started.wait()
        asking.cancel()
        await stopped.wait()
        assert upstream.open_connections == 0


async def test_early_acceptance_does_not(upstream: Upstream) -> None:
    """A provider may answer while it still listens (transcription, for one); the rest of the request is due to it."""
    answered = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"abc"
        await answered.wait()
        yield b"def"

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readexactly(8)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await peer.reader.readuntil(b"0\r\n\r\n")
        await peer.send(b"done")
        await peer.gone()

    async with serve(script) as server:
        answer = await upstream.handle_async_request(request(server.url, "POST", slow()))
        answered.set()
        assert await read(answer) == b"done"
        assert upstream.open_connections == 1


async def test_waiting_for_the_body_is_no_ones_timeout(upstream: Upstream) -> None:
    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.3)
        yield b"abc"

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readuntil(b"0\r\n\r\n")
        await peer.send(response(b"ok"))

    async with serve(script) as server:
        assert await ask(upstream, server.url, "POST", slow(), read=0.1, write=0.1) == (200, b"ok")


async def test_bytes_that_nobody_takes_time_out(upstream: Upstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await asyncio.Event().wait()

    async with serve(script) as server:
        with pytest.raises(httpx.WriteTimeout):
            await ask(upstream, server.url, "POST", bytes(30_000_000), write=0.2, read=0.05)
