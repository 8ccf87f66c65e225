"""uvicorn's HTTP/1.1 protocol, with what clients and attackers find put right.

Requests that two servers could read in two ways are refused where the parser is not strict enough: a host that is missing or told twice, a
transfer coding besides chunked, a version that is neither 1.0 nor 1.1. A request's head is bounded, in bytes and in time; so is the wait
for a body and for a client that does not take its answer, and the number of connections. Trailers, which come behind a chunked body, are
dropped as any proxy may (RFC 9110 section 6.5.1): uvicorn adds them to the headers of a request that is on its way already, where they
could stand for a credential. And an upgrade that nobody here speaks is passed over (section 7.8): the parser takes the body of such a
request for the other protocol's first bytes, so the head is read once more without that wish. Java's HttpClient offers `h2c` with the first
POST of every connection. A client of HTTP/1.0 knows no chunks: its answer ends with the connection (RFC 9112 section 6.3). Requests
that come ahead of the answers to earlier ones wait; there is room for a few.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.settings.options import Limits

PATIENCE = 10
"""How many times `limits.request_seconds` a client may take for 64 KiB of its answer: while it does, a provider waits too."""
PUNCTUATION = 4
"""Bytes of a header line besides name and value."""
PIPELINED = 100
"""Requests that wait on one connection for the answers to those before them. Whoever sends more gets these answers and is to come again."""


def _refusal(status: bytes, text: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(text)) + text


NO_REQUEST = _refusal(b"400 Bad Request", b"This is no HTTP/1.1 request.")
TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"The request's line and headers are over `limits.max_header_bytes` of compactd's configuration.",
)
TOO_SLOW = _refusal(
    b"408 Request Timeout", b"The request did not come within `limits.request_seconds` of compactd's configuration."
)
TOO_MANY = _refusal(
    b"503 Service Unavailable", b"compactd is at `limits.max_clients` of its configuration; try again later."
)


class Serving(uvicorn.Config):
    """uvicorn's configuration, and what of compactd's own concerns a connection."""

    def __init__(self, limits: Limits, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.limits = limits


class Unclear(Exception):
    """Stops the parser: a head that is too large, one that could be read in two ways, or one too many."""


class UntilClosed(RequestResponseCycle):
    """An answer to HTTP/1.0. One without a length ends with the connection; one that breaks off ends it with an error."""

    _endless = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._endless = not any(name.lower() == b"content-length" for name, _ in message["headers"])
            if self._endless:
                self.chunked_encoding = False
                _reset_when_closed(self.transport, True)
        elif self._endless:
            self.expected_content_length = len(message.get("body", b""))
            _reset_when_closed(self.transport, message.get("more_body", False))
        await super().send(message)


class Protocol(HttpToolsProtocol):
    config: Serving

    _reading_head = False
    _loose = 0  # bytes read since a head ended or a piece of a body came: the next head, sizes of chunks and what hangs on them, trailers
    _too_large = False
    _deaf = False  # nothing that still comes is a request
    _upgrading = False
    _heard = 0.0  # when the head that is being read began, or a piece of the body came, by the loop's clock
    _stuck: float | None = None  # since when the client takes too little of its answer
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits = self.config.limits
        if len(self.connections) > limits.max_clients:
            transport.write(TOO_MANY)
            transport.close()
            return
        self._heard = self.loop.time()
        self._timer = self.loop.call_later(limits.request_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """One timer a connection: has the client kept us waiting for all that time?"""
        limit, now = self.config.limits.request_seconds, self.loop.time()
        if self._stuck is not None and now - self._stuck >= limit * PATIENCE:
            self.transport.abort()
            return
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        head = self._reading_head and not answering  # one that comes before its turn can wait
        body = answering and cycle.more_body and not self.flow.read_paused
        if (head or body or cycle is None) and now - self._heard >= limit * 0.99:
            if head or (body and not cycle.response_started):
                self.transport.write(TOO_SLOW)
            self.transport.close()
            return
        self._timer = self.loop.call_later(limit, self._look)

    def pause_writing(self) -> None:
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._loose += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse()
        else:
            if self._loose > self.config.limits.max_header_bytes:
                self._too_large = True
                self._refuse()

    def _refuse(self) -> None:
        """What came is no request. The sound ones before it are answered first; into an answer that has begun nothing is written."""
        self._deaf, self._reading_head = True, False
        last = self.cycle
        if last is not None and not (last.response_complete or last.more_body):
            last.keep_alive = False
        elif not self.transport.is_closing():
            if last is None or last.response_complete or not (last.response_started or self.pipeline):
                self.transport.write(TOO_LARGE if self._too_large else NO_REQUEST)
            self.transport.close()

    def _pass_over(self, rest: bytes) -> None:
        """Read the head once more, without the wish for another protocol, and what follows it as what it is."""
        kept = [(name, _without_upgrade(value) if name == b"connection" else value) for name, value in self.headers]
        lines = b"".join(b"%b: %b\r\n" % line for line in kept)
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, lines)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.data_received(head + rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._heard = self.loop.time()

    def on_headers_complete(self) -> None:
        self._reading_head, self._loose = False, 0
        head = len(self.url) + sum(len(name) + len(value) + PUNCTUATION for name, value in self.headers)
        self._too_large = head > self.config.limits.max_header_bytes
        version = self.parser.get_http_version()
        if self._too_large or len(self.pipeline) >= PIPELINED or not _clear(version, self.headers):
            raise Unclear  # makes the parser fail, and that is answered
        self._upgrading = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._upgrading:
            super().on_headers_complete()
            if version == "1.0":
                self.cycle.__class__ = UntilClosed
                self.cycle.waiting_for_100_continue = False
            self.headers = []

    def on_body(self, body: bytes) -> None:
        self._heard, self._loose = self.loop.time(), 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._loose = 0
        if not self._upgrading:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()


def _reset_when_closed(transport: asyncio.Transport, reset: bool) -> None:
    """An end that nobody takes for a clean one, or one that is."""
    with (
        contextlib.suppress(OSError),
        socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same,
    ):
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))


def _clear(version: str, headers: list[tuple[bytes, bytes]]) -> bool:
    """Can this head be read in one way only? source: RFC 9112 sections 2.3, 3.2, 6.1; what is left is the parser's."""
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and (version == "1.0" or value.strip().lower() != b"chunked"):
            return False
    return hosts == 1 if version == "1.1" else hosts <= 1 and version == "1.0"


def _without_upgrade(connection: bytes) -> bytes:
    return b",".join(token for token in connection.split(b",") if token.strip().lower() != b"upgrade")
