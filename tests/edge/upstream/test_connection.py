from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from app.edge.upstream.exchange import Exchange
from app.edge.upstream.framing import Message
from app.edge.upstream.routes import Place, Route
from tests.edge.upstream.peers import ROUTE, Wire, connected, wired


@pytest.mark.parametrize("event", ["data", "eof", "lost"])
async def test_anything_on_an_idle_connection_ends_it(event: str) -> None:
    pool, connection, wire = await connected()
    pool.release(connection)
    match event:
        case "data":
            connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        case "eof":
            connection.eof_received()
        case "lost":
            connection.connection_lost(ConnectionResetError())
    assert wire.aborted
    assert pool.slots == 0
    assert pool.take(ROUTE) is None


@pytest.mark.parametrize("tls", [False, True])
async def test_answer_that_is_there_already_is_read_although_a_write_failed(tls: bool) -> None:
    route = Route(Place("127.0.0.1", 80), tls)
    connection = await (await wired()).acquire(route, None, None, fresh=False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection.transport = Wire({"socket": ours})
        exchange = Exchange(connection, False, None, None)
        exchange.send(Message(b"POST / HTTP/1.1\r\n\r\n", b"x"))
        theirs.sendall(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 9\r\n\r\ntoo m")
        theirs.close()
        connection.connection_lost(BrokenPipeError(32, "Broken pipe"))
    if tls:  # it can't be: what is there is not decrypted
        with pytest.raises(httpx.ReadError):
            await exchange.head
    else:
        assert exchange.status == 413
        assert await anext(exchange) == b"too m"
        with pytest.raises(httpx.ReadError, match="Broken pipe"):
            await anext(exchange)


async def test_end_is_told_once() -> None:
    pool, connection, _ = await connected()
    pool.release(connection)
    connection.eof_received()
    connection.connection_lost(None)
    assert pool.slots == 0


async def test_drain_waits_for_room() -> None:
    _, connection, _ = await connected()
    await connection.drain()  # there is room
    connection.pause_writing()
    waiting = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    connection.resume_writing()
    await waiting


async def test_drain_ends_with_the_connection() -> None:
    _, connection, _ = await connected()
    connection.pause_writing()
    waiting = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0.01)
    connection.close()
    await waiting
    await connection.drain()
