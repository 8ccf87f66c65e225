"""A sign of life while a summary is made: the answer is opened before the provider was even asked.

Only where the policy says so (`keepalive_seconds`) and the client asked for an event stream. Opened early, an answer has the status 200
whatever comes: the provider's events then follow in the same stream, and an error comes as the format's in-stream error. All of it happens
where messages go out, so that nobody else has to know: the relay starts its answer as ever, and here that start is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.core import jsonspan
from app.edge.bodies import MOST, codings, decoder_for
from app.edge.exchange import Exchange
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.base import Target

LONGEST_ERROR = 64 << 10
"""Bytes of a provider's error that are read for what it says."""
LONGEST_TEXT = 2_000
"""Characters that are passed on of an error that is no JSON."""


@asynccontextmanager
async def kept_alive(exchange: Exchange, target: Target) -> AsyncIterator[None]:
    """While this lasts the answer may be opened; if it was, signs of life go on until something else is sent."""
    seconds = exchange.ask.policy.keepalive_seconds if exchange.ask else None
    if seconds is None or not _streams(exchange, target):
        yield
        return
    early = EarlyAnswer(exchange, target, seconds)
    exchange.send = early.send
    try:
        yield
    finally:
        await early.decided()


def _streams(exchange: Exchange, target: Target) -> bool:
    if target.format == "gemini":  # without alt=sse its stream is one JSON array (G30)
        return target.stream and b"alt=sse" in exchange.scope["query_string"].lower()
    assert exchange.ask is not None
    return target.stream or exchange.ask.opened.fields.get("stream") is True


class EarlyAnswer:
    """Stands between an exchange and its client."""

    def __init__(self, exchange: Exchange, target: Target, seconds: float) -> None:
        self._exchange = exchange
        self._form = FORMATS[target.format]
        self._seconds = seconds
        self._send = exchange.send
        self._opened = False
        self._stop = asyncio.Event()
        self._sending = asyncio.Lock()
        self._decoder: Any = None
        self._error: list[bytes] | None = None
        self._status = 200
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._stop.wait()
                return
            except TimeoutError:
                pass
            async with self._sending:
                if self._stop.is_set() or self._exchange.client.left:
                    return
                if not self._opened:
                    self._opened = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers()})
                await self._send({"type": "http.response.body", "body": self._form.keepalive, "more_body": True})

    def _headers(self) -> list[tuple[bytes, bytes]]:
        """What is known so far."""
        headers = [
            (b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"),
            (b"x-compactd-request-id", self._exchange.record.id.encode()),
        ]  # fmt: skip
        session = self._exchange.ask.session if self._exchange.ask else ""
        return [*headers, (b"x-compactd-session", session.encode("latin-1", "replace"))] if session else headers

    async def decided(self) -> None:
        """Nothing is opened from here on."""
        async with self._sending:  # it may be at it
            if not self._opened or self._exchange.client.left:
                self._stop.set()
                self._exchange.send = self._send

    async def send(self, message: dict[str, Any]) -> None:
        """What the relay says, in the stream that is open."""
        self._stop.set()
        async with self._sending:
            if not self._opened:
                await self._send(message)
            elif message["type"] == "http.response.start":
                self._begin(message["status"], message["headers"])
            else:
                await self._continue(message.get("body", b""), message.get("more_body", False))

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        told = {name.lower(): value.decode("latin-1") for name, value in headers}
        self._status = status
        if status != 200 or "event-stream" not in told.get(b"content-type", ""):
            self._error = []
            return
        coding = told.get(b"content-encoding", "")
        self._decoder = decoder_for(coding)
        if codings(coding) and self._decoder is None:
            self._status, self._error = 502, []

    async def _continue(self, chunk: bytes, more: bool) -> None:
        if self._error is not None:
            if sum(map(len, self._error)) < LONGEST_ERROR:
                self._error.append(chunk)
            if more:
                return
            status = self._status if self._status != 200 else 502
            chunk = self._form.stream_error(status, *_told(b"".join(self._error)))
        elif self._decoder is not None:
            chunk = self._decoder.decompress(chunk, MOST) if chunk else b""
            if more and not chunk:
                return
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})


def _told(body: bytes) -> tuple[str, str]:
    """Code and message of an error answer, in the provider's own words."""
    try:
        answer = jsonspan.value(body)
    except NotCompactable:
        text = body.decode("utf-8", "replace")[:LONGEST_TEXT]
        return "upstream_error", text or "The provider refused and did not say why."
    answer = answer[0] if isinstance(answer, list) and answer else answer
    error = answer.get("error", answer) if isinstance(answer, dict) else {}
    if not isinstance(error, dict):
        error = {"message": str(error)}
    details = error.get("details")
    reasons = [one.get("reason") for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    codes = [*reasons, error.get("code"), error.get("type"), error.get("status")]
    code = next((code for code in codes if isinstance(code, str) and code), "upstream_error")
    message = error.get("message")
    return code, message if isinstance(message, str) else body.decode("utf-8", "replace")[:LONGEST_TEXT]
