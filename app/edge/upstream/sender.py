"""A request on its way out.

A small body leaves in one write with its head. A large one is handed over slice by slice, as fast as the transport takes
it and without a copy, so that TLS does not hold it a second time and the rest can be left unsent. A streamed one needs a
task, the only one per request in this package: its bytes come from elsewhere, and the answer may come before their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable

import httpx

from app.edge.upstream.connection import Connection
from app.edge.upstream.framing import LAST_CHUNK, Message, chunk

# A body of up to so many bytes is written together with its head: one copy is cheaper than a second write.
JOINED = 262144
SLICE = 262144  # bytes of a larger one handed to the transport at a time


class Sender:
    """`active`: the request is not yet out of our hands. `stopped`: it never will be, so the connection is spoilt."""

    def __init__(self, connection: Connection) -> None:
        self.active = True
        self.stopped = False
        self._connection = connection
        self._unsent = memoryview(b"")
        self._upload: asyncio.Task[None] | None = None

    @property
    def backlog(self) -> int:
        """Bytes at hand that the peer has not taken."""
        return len(self._unsent) + self._connection.transport.get_write_buffer_size()

    def start(self, message: Message) -> None:
        connection, body = self._connection, message.body
        write = connection.transport.write
        if not isinstance(body, bytes):
            write(message.head)
            self._upload = connection.loop.create_task(self._stream(body, message.length))
        elif len(body) <= JOINED:
            write(message.head + body)
            self.active = not connection.writable
        else:
            write(message.head)
            self._unsent = memoryview(body)
            self.drained()

    def drained(self) -> None:
        """The transport takes more."""
        connection = self._connection
        if self._upload is not None or not connection.writable or connection.transport.is_closing():
            return
        if self._unsent:
            piece, self._unsent = self._unsent[:SLICE], self._unsent[SLICE:]
            connection.transport.write(piece)
            if connection.writable:
                connection.loop.call_soon(self._go_on)  # in between the loop looks whether there is an early answer
        else:
            self.active = False

    def _go_on(self) -> None:
        if self._connection.exchange is not None:  # ours: while we are active no other gets the connection
            self._connection.exchange.drained()

    def stop(self) -> None:
        """Send nothing more; no change if everything is sent."""
        if self.active:
            self.active, self.stopped = False, True
            self._unsent = memoryview(b"")
            if self._upload is not None:
                self._upload.cancel()
                self._upload = None

    async def _stream(self, body: AsyncIterable[bytes], length: int | None) -> None:
        connection, left = self._connection, length
        try:
            async for piece in body:
                if left is not None:
                    left -= len(piece)
                    if left < 0:
                        break
                if connection.transport.is_closing():
                    return
                if piece:
                    connection.transport.write(piece if length is not None else chunk(piece))
                    await connection.drain()
            if left:
                raise httpx.LocalProtocolError("content-length is not the length of the body")
            if connection.transport.is_closing():
                return
            if length is None:
                connection.transport.write(LAST_CHUNK)
            self._upload, self.active = None, False
            if connection.exchange is not None:
                connection.exchange.drained()
        except BaseException as error:
            if self._upload is None:  # stopped
                raise
            self._upload = None  # this very task: it must not be cancelled
            if connection.exchange is not None:
                broke = isinstance(error, asyncio.CancelledError)
                connection.exchange.fail(httpx.WriteError("the request's body broke off") if broke else error)
            if not isinstance(error, Exception):
                raise
