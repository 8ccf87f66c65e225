"""Idle connections by route, newest first, and a bound on how many there are in all.

What is counted is slots: a slot is held by whoever holds, or is opening, a connection. `release` and `discard` end an
exchange's hold. While anybody waits, nothing is idle: a slot that comes free goes to the first in the queue, with its
connection if that leads to the right origin. So first come is first served, whatever the origins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from app.edge.upstream.connection import Connection
from app.edge.upstream.faults import CONNECTING_ERRORS, unreachable
from app.edge.upstream.routes import Route

Dial = Callable[[Route, Connection], Awaitable[None]]


class Pool:
    """At most `max_connections` connections; one that was idle for `keepalive_expiry` seconds is closed."""

    def __init__(self, dial: Dial, max_connections: int, keepalive_expiry: float) -> None:
        self._dial = dial
        self._limit = max_connections
        self._expiry = keepalive_expiry
        self._idle: dict[Route, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._waiting: dict[asyncio.Future[Connection | None], Route] = {}  # in order of arrival
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self.slots = 0

    def take(self, route: Route, max_idle: float | None = None) -> Connection | None:
        """The idle connection last used, if that was at most `max_idle` seconds ago; without waiting for anything."""
        idle = self._idle.get(route)
        if not idle:
            return None
        limit = self._expiry if max_idle is None else min(max_idle, self._expiry)
        if idle[-1].loop.time() - idle[-1].idle_since >= limit:
            return None
        return idle.pop()

    async def acquire(self, route: Route, connect: float | None, patience: float | None, fresh: bool) -> Connection:
        """A connection where none was to be taken: wait for a slot for `patience` seconds, dial for `connect` seconds.

        `fresh`: it must be a new one. Raises httpx.PoolTimeout, ConnectTimeout, ConnectError, ProxyError.
        """
        if self._closed:
            raise httpx.ConnectError("this client is closed")
        if self.slots < self._limit:
            self.slots += 1
        elif not self._evict():
            handed = await self._wait(route, patience)
            if handed is not None:
                if not (fresh or handed.closed or self._closed):
                    return handed
                self._drop(handed)
        return await self._connect(route, connect)

    def release(self, connection: Connection) -> None:
        """The exchange is over and the connection as good as before."""
        connection.reused = True
        waiter = self._next()
        if waiter is None:
            connection.idle_since = connection.loop.time()
            self._idle.setdefault(connection.route, []).append(connection)
            if self._sweeping is None:
                self._sweeping = connection.loop.call_later(self._expiry, self._sweep)
        elif self._waiting.pop(waiter) is connection.route:
            waiter.set_result(connection)
        else:
            self._drop(connection)
            waiter.set_result(None)

    def discard(self, connection: Connection) -> None:
        """The exchange is over and the connection must not be used again."""
        self._drop(connection)
        self._free()

    def lost(self, connection: Connection) -> None:
        """A connection without an exchange ended. If it was not idle, whoever is about to get it will notice."""
        idle = self._idle.get(connection.route, ())
        if connection in idle:
            self._idle[connection.route].remove(connection)
            self.discard(connection)

    def close(self) -> None:
        """End everything, what is under way included; who waits gets httpx.ConnectError."""
        self._closed = True
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_exception(httpx.ConnectError("this client is closed"))
        for idle in self._idle.values():
            while idle:
                self.discard(idle.pop())
        for connection in list(self._open):
            if connection.exchange is not None:
                connection.exchange.fail(httpx.ReadError("this client is closed"))
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _connect(self, route: Route, limit: float | None) -> Connection:
        connection = Connection(self, route)
        try:
            async with asyncio.timeout(limit):
                await self._dial(route, connection)
        except BaseException as error:
            self._free()
            if isinstance(error, CONNECTING_ERRORS):
                raise unreachable(str(route.proxy.place if route.proxy else route.place), error) from error
            raise
        self._open.add(connection)
        if self._closed:
            self.discard(connection)
            raise httpx.ConnectError("this client is closed")
        return connection

    async def _wait(self, route: Route, patience: float | None) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = route
        try:
            async with asyncio.timeout(patience):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:  # too late: pass it on
                handed = waiter.result()
                if handed is None or handed.closed:
                    self._free()
                else:
                    self.release(handed)
            if isinstance(error, TimeoutError):
                raise httpx.PoolTimeout("all connections stayed in use for too long") from None
            raise
        finally:
            self._waiting.pop(waiter, None)

    def _next(self) -> asyncio.Future[Connection | None] | None:
        return next((waiter for waiter in self._waiting if not waiter.done()), None)

    def _free(self) -> None:
        waiter = self._next()
        if waiter is None:
            self.slots -= 1
        else:
            del self._waiting[waiter]
            waiter.set_result(None)

    def _evict(self) -> bool:
        """Close the idle connection that was used least recently; its slot is the caller's now."""
        stacks = [idle for idle in self._idle.values() if idle]
        if not stacks:
            return False
        self._drop(min(stacks, key=lambda idle: idle[0].idle_since).pop(0))
        return True

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._open.discard(connection)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping, oldest = None, None
        for idle in self._idle.values():
            while idle and loop.time() - idle[0].idle_since >= self._expiry - 0.001:  # timers may be a little early
                self.discard(idle.pop(0))
            if idle and (oldest is None or idle[0].idle_since < oldest):
                oldest = idle[0].idle_since
        if oldest is not None:
            self._sweeping = loop.call_at(oldest + self._expiry, self._sweep)
