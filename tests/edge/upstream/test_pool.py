from __future__ import annotations

import asyncio

import httpx
import pytest

from app.edge.upstream.connection import Connection
from app.edge.upstream.pool import Pool
from app.edge.upstream.routes import Place, Route
from tests.edge.upstream.peers import ROUTE, Wire, until, wired

OTHER = Route(Place("other", 80), tls=False)


async def _acquire(pool: Pool, route: Route = ROUTE, patience: float | None = None, fresh: bool = False) -> Connection:
    taken = None if fresh else pool.take(route)
    return taken or await pool.acquire(route, None, patience, fresh)


async def test_last_used_comes_first() -> None:
    pool = await wired()
    a, b = await _acquire(pool), await _acquire(pool)
    assert not a.reused
    pool.release(a)
    pool.release(b)
    assert pool.slots == 2
    assert await _acquire(pool) is b
    assert await _acquire(pool) is a
    assert a.reused


async def test_routes_are_kept_apart() -> None:
    pool = await wired()
    a = await _acquire(pool)
    pool.release(a)
    assert await _acquire(pool, OTHER) is not a
    assert await _acquire(pool, ROUTE) is a


async def test_idle_connection_expires() -> None:
    pool = await wired(expiry=0.1)
    a = await _acquire(pool)
    pool.release(a)
    await until(lambda: a.closed)
    assert pool.slots == 0
    assert pool.take(ROUTE) is None


async def test_sweep_spares_what_was_used_since() -> None:
    pool = await wired(expiry=0.2)
    a, b = await _acquire(pool), await _acquire(pool)
    pool.release(a)
    await asyncio.sleep(0.1)
    pool.release(b)
    await until(lambda: a.closed)
    assert not b.closed
    await until(lambda: b.closed)


async def test_only_what_was_in_use_a_moment_ago() -> None:
    pool = await wired()
    a = await _acquire(pool)
    pool.release(a)
    assert pool.take(ROUTE, max_idle=0.0) is None
    assert pool.take(ROUTE, max_idle=5.0) is a


async def test_first_come_first_served() -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    served: list[int] = []

    async def wait(number: int) -> None:
        connection = await _acquire(pool)
        assert connection is a
        served.append(number)
        pool.release(connection)

    waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    pool.release(a)
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2]
    assert pool.slots == 1


async def test_slot_goes_to_the_first_even_for_another_origin() -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    other = asyncio.ensure_future(_acquire(pool, OTHER))
    await asyncio.sleep(0)
    same = asyncio.ensure_future(_acquire(pool))
    await asyncio.sleep(0)
    pool.release(a)
    b = await other
    assert a.closed
    assert not same.done()
    pool.discard(b)
    assert (await same).route is ROUTE
    assert pool.slots == 1


async def test_idle_connection_of_another_origin_makes_room() -> None:
    pool = await wired(limit=2)
    old, new = await _acquire(pool), await _acquire(pool, OTHER)
    pool.release(old)
    await asyncio.sleep(0.002)
    pool.release(new)
    await _acquire(pool, Route(Place("third", 80), tls=False))
    assert old.closed
    assert not new.closed
    assert pool.slots == 2


async def test_patience_ends() -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    with pytest.raises(httpx.PoolTimeout):
        await _acquire(pool, patience=0.01)
    pool.release(a)
    assert await _acquire(pool) is a


@pytest.mark.parametrize("how", ["release", "discard", "die"])
async def test_waiter_cancelled_too_late_passes_on_what_it_was_given(how: str) -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    waiting = asyncio.ensure_future(_acquire(pool))
    await asyncio.sleep(0)
    if how == "discard":
        pool.discard(a)
    else:
        pool.release(a)
    if how == "die":
        a.eof_received()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    b = await asyncio.wait_for(_acquire(pool), 1)
    assert (b is a) == (how == "release")
    assert pool.slots == 1


async def test_waiter_is_not_given_a_connection_that_died_on_the_way() -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    waiting = asyncio.ensure_future(_acquire(pool))
    await asyncio.sleep(0)
    pool.release(a)
    a.eof_received()
    b = await waiting
    assert b is not a
    assert not b.closed
    assert pool.slots == 1


async def test_fresh_is_fresh_even_out_of_the_queue() -> None:
    pool = await wired(limit=1)
    a = await _acquire(pool)
    waiting = asyncio.ensure_future(_acquire(pool, fresh=True))
    await asyncio.sleep(0)
    pool.release(a)
    b = await waiting
    assert b is not a
    assert not b.reused
    assert pool.slots == 1


async def test_failed_dial_gives_its_slot_to_the_next() -> None:
    attempts = 0

    async def dial(_route: Route, connection: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        if attempts == 1:
            raise ConnectionRefusedError(111, "Connection refused")
        connection.connection_made(Wire())

    pool = Pool(dial, 1, 60)
    first, second = (asyncio.ensure_future(_acquire(pool)) for _ in range(2))
    with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1:80: Connection refused"):
        await first
    await second
    assert pool.slots == 1


async def test_dial_that_takes_too_long() -> None:
    async def dial(_route: Route, _connection: Connection) -> None:
        await asyncio.Event().wait()

    pool = Pool(dial, 1, 60)
    with pytest.raises(httpx.ConnectTimeout):
        await pool.acquire(ROUTE, 0.01, None, fresh=False)
    assert pool.slots == 0


async def test_close_ends_everything() -> None:
    go = asyncio.Event()
    go.set()

    async def dial(_route: Route, connection: Connection) -> None:
        await go.wait()
        connection.connection_made(Wire())

    pool = Pool(dial, 2, 60)
    idle = await _acquire(pool)
    go.clear()
    opening = asyncio.ensure_future(_acquire(pool))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(_acquire(pool, OTHER))
    await asyncio.sleep(0)
    more = asyncio.ensure_future(_acquire(pool, OTHER))
    await asyncio.sleep(0)
    pool.release(idle)  # its slot goes to `waiting`, which dials
    await asyncio.sleep(0)
    pool.close()
    go.set()
    for task in (opening, waiting, more):
        with pytest.raises(httpx.ConnectError, match="closed"):
            await task
    with pytest.raises(httpx.ConnectError, match="closed"):
        await _acquire(pool)
    assert idle.closed
    assert pool.slots == 0
