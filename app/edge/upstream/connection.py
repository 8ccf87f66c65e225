"""One socket, seen from both sides: the event loop calls it, and it calls the exchange that is using it.

A connection belongs to somebody at any time: to the pool while it is idle, else to an exchange. Whatever arrives for an
idle one, an end or data that nobody asked for, ends it. Nothing is closed politely: `abort` frees the socket at once, and
the provider sees at once that nobody listens any more.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from app.edge.upstream.routes import Route

if TYPE_CHECKING:
    from app.edge.upstream.exchange import Exchange
    from app.edge.upstream.pool import Pool


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, pool: Pool, route: Route) -> None:
        self.pool = pool
        self.route = route
        self.loop = asyncio.get_running_loop()
        self.exchange: Exchange | None = None
        self.idle_since = 0.0  # loop time
        self.reused = False
        self.writable = True
        self.closed = False
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.exchange is not None:
            self.exchange.feed(data)
        else:
            self._lost(None)

    def eof_received(self) -> None:
        self._lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._salvage()
        self._lost(exc)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._let_on()
        if self.exchange is not None:
            self.exchange.drained()

    async def drain(self) -> None:
        """Let the loop look around, then wait until more may be written or the connection is closed. For one waiter."""
        await asyncio.sleep(0)
        if not self.writable and not self.closed:
            self._drained = self.loop.create_future()
            await self._drained

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.transport.abort()
            self._let_on()

    def _salvage(self) -> None:
        """A write that fails hides an answer that is there already, such as a 413 with which the peer cut us short."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and not self.route.tls:
            with suppress(OSError):
                while self.exchange is not None and (data := os.read(sock.fileno(), 65536)):
                    self.exchange.feed(data)

    def _lost(self, exc: Exception | None) -> None:
        self.close()
        if self.exchange is not None:
            self.exchange.lost(exc)
        else:
            self.pool.lost(self)

    def _let_on(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
