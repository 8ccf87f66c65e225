"""Answers are fed in directly here, so that every split is a certain one; `test_transport` does it over sockets."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import httpx
import pytest

from app.edge.upstream.exchange import HIGH_WATER, MAX_HEAD, Exchange
from app.edge.upstream.framing import Message
from app.edge.upstream.pool import Pool
from tests.edge.upstream.peers import ROUTE, Wire, connected, response

GET = Message(b"GET / HTTP/1.1\r\n\r\n", b"")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


class Case(NamedTuple):
    data: bytes
    status: int = 200
    reason: bytes = b"OK"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    kept: bool = True
    head: bool = False  # the answer to a HEAD request
    eof: bool = False  # the connection is closed after it


CL = b"content-length"
CASES = {
    "length": Case(OK + b"Content-Length: 5\r\n\r\nhello", headers=((b"Content-Length", b"5"),), body=b"hello"),
    "empty": Case(response(), headers=((CL, b"0"),)),
    "repeated headers": Case(
        response(b"", b"Set-Cookie: a=1", b"x-e:", b"set-cookie: b=2", b"X-U: \xff\xfe z"),
        headers=((CL, b"0"), (b"Set-Cookie", b"a=1"), (b"x-e", b""), (b"set-cookie", b"b=2"), (b"X-U", b"\xff\xfe z")),
    ),
    "no reason": Case(b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", reason=b"", headers=((CL, b"0"),)),
    "chunked": Case(
        CHUNKED + b"5\r\nhello\r\n1;ext=1\r\n!\r\n0\r\n\r\n",
        headers=((b"transfer-encoding", b"chunked"),),
        body=b"hello!",
    ),
    "trailers": Case(
        CHUNKED + b"2\r\nhi\r\n0\r\nx-checksum: 1\r\nx-more: 2\r\n\r\n",
        headers=((b"transfer-encoding", b"chunked"),),
        body=b"hi",
    ),
    "until close": Case(
        OK + b"x: y\r\n\r\nall of it", headers=((b"x", b"y"),), body=b"all of it", kept=False, eof=True
    ),
    "until close, coded": Case(
        OK + b"transfer-encoding: gzip\r\n\r\nzip",
        headers=((b"transfer-encoding", b"gzip"),),
        body=b"zip",
        kept=False,
        eof=True,
    ),
    "connection: close": Case(
        response(b"x", b"connection: close"), headers=((CL, b"1"), (b"connection", b"close")), body=b"x", kept=False
    ),
    "HTTP/1.0": Case(b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", headers=((CL, b"1"),), body=b"x", kept=False),
    "informational": Case(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        + response(b"x", status=b"201 Created"),
        status=201,
        reason=b"Created",
        headers=((CL, b"1"),),
        body=b"x",
    ),
    "204": Case(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", 204, b"No Content", ((b"x", b"y"),)),
    "304": Case(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b"Not Modified", ((CL, b"5"),)),
    "HEAD": Case(OK + b"content-length: 5\r\n\r\n", headers=((CL, b"5"),), head=True),
    "HEAD, chunked": Case(CHUNKED, headers=((b"transfer-encoding", b"chunked"),), head=True),
    "HEAD, no length": Case(OK + b"x: y\r\n\r\n", headers=((b"x", b"y"),), head=True, kept=False),
    "error": Case(response(b"no", status=b"429 Too Many"), 429, b"Too Many", ((CL, b"2"),), b"no"),
    "426": Case(
        b"HTTP/1.1 426 Upgrade Required\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nno",
        426,
        b"Upgrade Required",
        ((b"upgrade", b"h2c"), (b"connection", b"upgrade"), (CL, b"2")),
        b"no",
    ),
    "lines end in LF": Case(OK[:-2] + b"\ncontent-length: 1\n\nx", headers=((CL, b"1"),), body=b"x"),
    "a length besides chunks": Case(
        OK + b"content-length: 7\r\nTransfer-Encoding: chunked\r\nx: y\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        headers=((b"Transfer-Encoding", b"chunked"), (b"x", b"y")),
        body=b"hi",
        kept=False,
    ),
    "blank after the size": Case(
        CHUNKED + b"2 \r\nhi\r\n0\r\n\r\n", headers=((b"transfer-encoding", b"chunked"),), body=b"hi"
    ),
}


async def _begin(head: bool = False, read: float | None = None) -> tuple[Pool, Exchange, Wire]:
    pool, connection, wire = await connected()
    exchange = Exchange(connection, head, read, None)
    exchange.send(GET)
    return pool, exchange, wire


async def _play(case: Case, pieces: list[bytes]) -> None:
    pool, exchange, wire = await _begin(case.head)
    for piece in pieces:
        exchange.feed(piece)
    if case.eof:
        exchange.lost(None)
    assert exchange.head.done()
    await exchange.head
    assert (exchange.status, exchange.reason, tuple(exchange.headers)) == (case.status, case.reason, case.headers)
    assert b"".join([data async for data in exchange]) == case.body
    assert wire.aborted is not case.kept
    assert pool.slots == case.kept


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_split_at_every_byte(case: Case) -> None:
    data = case.data
    await _play(case, [data])
    await _play(case, [data[i : i + 1] for i in range(len(data))])
    for at in range(1, len(data)):
        await _play(case, [data[:at], data[at:]])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.eof])
async def test_cut_short_anywhere_is_an_error(name: str) -> None:
    case = CASES[name]
    for at in range(len(case.data)):
        pool, exchange, wire = await _begin(case.head)
        if at:
            exchange.feed(case.data[:at])
        exchange.lost(None)
        with pytest.raises(httpx.RemoteProtocolError):
            await _drain(exchange)
        assert wire.aborted
        assert pool.slots == 0


async def test_reset_is_an_error_even_where_the_end_of_the_connection_ends_the_body() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(CASES["until close"].data)
    exchange.lost(ConnectionResetError())
    with pytest.raises(httpx.ReadError):
        await _drain(exchange)


async def _drain(exchange: Exchange) -> bytes:
    await exchange.head
    return b"".join([data async for data in exchange])


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x03\x01\x00\x02",
        b"SSH-2.0-x\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx",
        OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
        OK + b"content-length: 1\r\ntransfer-encoding: gzip\r\n\r\nx",
        OK + b"transfer-encoding: identity\r\ncontent-length: 1\r\n\r\nx",
        OK + b"content-length: -1\r\n\r\nx",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"1\r\nabc\r\n",
    ],
)
async def test_malformed_answer(data: bytes) -> None:
    pool, exchange, wire = await _begin()
    exchange.feed(data)
    with pytest.raises(httpx.RemoteProtocolError):
        await _drain(exchange)
    assert wire.aborted
    assert pool.slots == 0


async def test_what_came_before_the_fault_is_still_delivered() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(CHUNKED + b"2\r\nhi\r\nzz\r\n")
    assert await anext(exchange) == b"hi"
    with pytest.raises(httpx.RemoteProtocolError, match="malformed"):
        await anext(exchange)


@pytest.mark.parametrize(
    ("head", "first", "name"),
    [
        (False, response(b"x"), CL),
        (False, response(b"x", b"connection: close"), CL),
        (True, OK + b"content-length: 5\r\n\r\n", CL),
        (True, CHUNKED, b"transfer-encoding"),
    ],
)
@pytest.mark.parametrize("surplus", [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 5", b"hello", b"?"])
async def test_bytes_after_the_answer_spoil_the_connection_only(
    head: bool, first: bytes, name: bytes, surplus: bytes
) -> None:
    _, exchange, wire = await _begin(head)
    exchange.feed(first + surplus)
    await exchange.head
    assert (exchange.status, exchange.reason, exchange.headers[0][0]) == (200, b"OK", name)
    assert b"".join([data async for data in exchange]) == (b"" if head else b"x")
    assert wire.aborted


@pytest.mark.parametrize("start", [OK + b"x: ", b"HTTP/1.1 200 ", CHUNKED + b"1\r\nx\r\n0\r\nx: ", CHUNKED + b"1;"])
async def test_endless_head_is_refused(start: bytes) -> None:
    _, exchange, wire = await _begin()
    exchange.feed(start)
    for _ in range(MAX_HEAD // 1000 + 1):
        if not wire.aborted:
            exchange.feed(b"y" * 1000)
    assert wire.aborted
    with pytest.raises(httpx.RemoteProtocolError, match="bytes of response headers"):
        await _drain(exchange)


async def test_endless_informational_responses_are_refused() -> None:
    _, exchange, wire = await _begin()
    while not wire.aborted:
        exchange.feed(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
    with pytest.raises(httpx.RemoteProtocolError):
        await exchange.head


async def test_long_stream_of_small_chunks_is_not_taken_for_a_head() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(CHUNKED)
    for _ in range(MAX_HEAD // 4):
        for piece in (b"001\r\n", b"x", b"\r\n"):
            exchange.feed(piece)
        assert await anext(exchange) == b"x"


async def test_each_read_is_one_chunk_at_once() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(CHUNKED + b"1\r\na\r\n1\r\nb\r\n")
    assert await anext(exchange) == b"ab"
    following = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0)
    assert not following.done()
    exchange.feed(b"1\r\nc\r\n")
    assert await following == b"c"


async def test_full_queue_pauses_reading_until_it_is_drained() -> None:
    _, exchange, wire = await _begin()
    size = HIGH_WATER // 2
    exchange.feed(OK + b"content-length: %d\r\n\r\n" % (4 * size))
    exchange.feed(b"a" * size)
    exchange.feed(b"b" * size)
    assert wire.reading
    exchange.feed(b"c" * size)
    assert not wire.reading
    assert await anext(exchange) == b"a" * size
    assert await anext(exchange) == b"b" * size
    assert not wire.reading
    assert await anext(exchange) == b"c" * size
    assert wire.reading
    exchange.feed(b"d" * size)
    assert b"".join([data async for data in exchange]) == b"d" * size
    assert not wire.aborted


async def test_complete_answer_frees_the_connection_before_anybody_read_it() -> None:
    pool, exchange, wire = await _begin()
    exchange.feed(response(b"x" * (HIGH_WATER + 1)))
    assert wire.reading  # the next exchange needs it
    assert pool.take(ROUTE) is not None
    await exchange.aclose()
    assert not wire.aborted


async def test_closing_ends_the_connection_at_once() -> None:
    pool, exchange, wire = await _begin()
    exchange.feed(OK + b"content-length: 10\r\n\r\nhello")
    reading = asyncio.ensure_future(_drain(exchange))
    await asyncio.sleep(0)
    await exchange.aclose()
    assert wire.aborted
    assert pool.slots == 0
    with pytest.raises(httpx.StreamClosed):
        await reading
    with pytest.raises(httpx.StreamClosed):
        await anext(exchange)


async def test_closing_drops_what_nobody_read() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(OK + b"content-length: 10\r\n\r\nhello")
    await exchange.aclose()
    with pytest.raises(httpx.StreamClosed):
        await anext(exchange)


async def test_reader_that_is_cancelled_may_come_back() -> None:
    _, exchange, _ = await _begin()
    exchange.feed(OK + b"content-length: 2\r\n\r\n")
    reading = asyncio.ensure_future(anext(exchange))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.sleep(0)
    exchange.feed(b"hi")
    assert await anext(exchange) == b"hi"


async def test_silence_is_counted_from_the_last_byte() -> None:
    _, exchange, wire = await _begin(read=0.2)
    exchange.feed(OK + b"content-length: 9\r\n\r\n")
    for _ in range(4):
        await asyncio.sleep(0.1)
        assert not wire.aborted
        exchange.feed(b"x")
    with pytest.raises(httpx.ReadTimeout):
        await _drain(exchange)
    assert wire.aborted


async def test_silence_is_not_the_providers_while_reading_is_paused() -> None:
    _, exchange, wire = await _begin(read=0.2)
    exchange.feed(OK + b"content-length: 999999\r\n\r\n" + b"x" * (HIGH_WATER + 1))
    await asyncio.sleep(0.3)
    assert not wire.aborted
    await anext(exchange)
    resumed = asyncio.get_running_loop().time()
    with pytest.raises(httpx.ReadTimeout):
        await anext(exchange)
    assert asyncio.get_running_loop().time() - resumed > 0.19  # all of it, and not what was left of an earlier one
    assert wire.aborted


async def test_no_timer_is_left_behind() -> None:
    _, exchange, _ = await _begin(read=600)
    assert exchange._timer is not None
    exchange.feed(response())
    assert exchange._timer is None


async def test_connection_that_ended_before_the_request_was_sent() -> None:
    pool, connection, wire = await connected()
    connection.eof_received()
    exchange = Exchange(connection, False, None, None)
    exchange.send(GET)
    assert wire.written == []
    assert pool.slots == 0
    with pytest.raises(httpx.RemoteProtocolError, match="without a response"):
        await exchange.head


async def test_stale_is_a_kept_connection_that_ended_without_a_byte() -> None:
    for reused, data, stale in ((False, b"", False), (True, b"", True), (True, b"H", False)):
        _, connection, _ = await connected()
        connection.reused = reused
        exchange = Exchange(connection, False, None, None)
        exchange.send(GET)
        if data:
            exchange.feed(data)
        exchange.lost(None)
        assert exchange.stale is stale
        with pytest.raises(httpx.RemoteProtocolError):
            await exchange.head
