from __future__ import annotations

import asyncio

import pytest

from tests.edge.upstream.peers import ROUTE, connected


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


async def test_end_is_told_once() -> None:
    pool, connection, _ = await connected()
    pool.release(connection)
    connection.eof_received()
    connection.connection_lost(None)
    assert pool.slots == 0


async def test_drain_waits_for_room() -> None:
    _, connection, _ = await connected()
    await connection.drain()   # there is room
    connection.pause_writing()
    waiting = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    connection.resume_writing()
    await waiting


async def test_drain_ends_with_the_connection() -> None:
    _, connection, _ = await connected()
    connection.pause_writing()
    waiting = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)
    connection.close()
    await waiting
    await connection.drain()
