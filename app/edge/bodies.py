"""Bodies on their way through: taking a request's body in, opening compressed ones, watching an answer for usage.

Nothing here changes what is forwarded. A compressed body is opened within a bound to be looked at; an answer is decoded in the copy only.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import brotli
import zstandard

from app.core import jsonspan
from app.core.sse import UsageLines
from app.errors import NotCompactable
from app.formats.base import Format, Usage

Receive = Callable[[], Awaitable[Any]]
WATCHED_JSON = 8 << 20
"""Bytes of a plain JSON answer that are kept to find its usage; larger answers are not watched."""

TAIL = 2_048
"""Bytes at the end of a stream in which its last event names itself."""


class ClientGone(Exception):
    """The client closed its connection."""


async def take_body(receive: Receive, limit: int) -> tuple[list[bytes], bool]:
    """The request body in chunks, and whether that is all of it: over `limit` bytes the rest is left to be streamed."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        if chunk:
            chunks.append(chunk)
            size += len(chunk)
        if not message.get("more_body", False):
            return chunks, True  # perhaps over the limit by a little: whoever looks into it, looks at that first
        if size > limit:
            return chunks, False


class _Decoder(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def decompress(self, data: bytes) -> bytes:
        return bytes(self._inner.process(data))


def _zlib_wrapped(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


class _Deflate:
    """`deflate` is zlib by the standard and raw deflate at some servers."""

    def __init__(self) -> None:
        self._inner: Any = None

    def decompress(self, data: bytes) -> bytes:
        if self._inner is None:
            self._inner = zlib.decompressobj(15 if _zlib_wrapped(data) else -15)
        return bytes(self._inner.decompress(data))


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "x-gzip": lambda: zlib.decompressobj(31),
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(),
}


def codings(header: str) -> list[str]:
    """The names in a `content-encoding`, without those that change nothing."""
    return [name for part in header.split(",") if (name := part.strip().lower()) not in ("", "identity")]


def decoder_for(header: str) -> _Decoder | None:
    """For an answer that comes in pieces; None for no coding, and for one that can't be undone."""
    names = codings(header)
    return _DECODERS[names[0]]() if len(names) == 1 and names[0] in _DECODERS else None


_FAULTS = (zlib.error, brotli.error, zstandard.ZstdError, ValueError)


def open_coding(body: bytes, coding: str, limit: int) -> bytes:
    """The body without its content coding. Raises NotCompactable: unknown_coding, bad_coding, too_large (over `limit` bytes)."""
    for name in reversed([part.strip().lower() for part in coding.split(",")]):
        if name in ("", "identity"):
            continue
        if name not in _OPENERS:
            raise NotCompactable("unknown_coding")
        try:
            body = _OPENERS[name](body, limit + 1)
        except _FAULTS:
            raise NotCompactable("bad_coding") from None
        if len(body) > limit:
            raise NotCompactable("too_large")
    return body


# Each gives at most `most` bytes, however far the body would unfold.


def _gunzip(body: bytes, most: int, wbits: int = 31) -> bytes:
    opened = zlib.decompressobj(wbits)
    out = opened.decompress(body, most)
    if len(out) < most and (not opened.eof or opened.unused_data):
        raise ValueError("cut short, or more than one")
    return out


def _inflate(body: bytes, most: int) -> bytes:
    return _gunzip(body, most, 15 if _zlib_wrapped(body) else -15)


def _unbrotli(body: bytes, most: int) -> bytes:
    opened, out = brotli.Decompressor(), b""
    out = opened.process(body, output_buffer_limit=most)
    while len(out) < most and not opened.can_accept_more_data():
        out += opened.process(b"", output_buffer_limit=most - len(out))
    if len(out) < most and not opened.is_finished():
        raise ValueError("cut short")
    return bytes(out)


def _unzstd(body: bytes, most: int) -> bytes:
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True).read(most)


_OPENERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip, "x-gzip": _gunzip, "deflate": _inflate, "br": _unbrotli, "zstd": _unzstd,
}  # fmt: skip


class Watcher:
    """Looks at a copy of an answer as it passes and gathers what the provider reports of usage. Never raises, never delays."""

    def __init__(self, form: Format, content_type: str, coding: str) -> None:
        self.usage: Usage | None = None
        self._form = form
        self._decoder = decoder_for(coding)
        self._blind = self._decoder is None and bool(codings(coding))
        self._lines = UsageLines() if "event-stream" in content_type else None
        self._json: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        if self._blind:
            return
        try:
            self._feed(self._decoder.decompress(chunk) if self._decoder is not None else chunk)
        except Exception:  # whatever it is, the answer goes on
            self._blind = True

    def _feed(self, chunk: bytes) -> None:
        if self._lines is not None:
            self._tail = chunk[-TAIL:] if len(chunk) >= TAIL else (self._tail + chunk)[-TAIL:]
            for payload in self._lines.feed(chunk):
                self._take(payload)
        else:
            self._size += len(chunk)
            if self._size > WATCHED_JSON:
                self._blind, self._json = True, []
            else:
                self._json.append(chunk)

    def end(self) -> None:
        if self._blind:
            return
        with contextlib.suppress(Exception):
            for payload in self._lines.end() if self._lines is not None else [b"".join(self._json)]:
                self._take(payload)

    @property
    def terminal(self) -> bool:
        """Has the stream said that it is over? Clients leave right after that, which is no abort."""
        return any(mark in self._tail for mark in self._form.terminal)

    def _take(self, payload: bytes) -> None:
        try:
            event = jsonspan.value(payload)
        except NotCompactable:
            return
        for one in event if isinstance(event, list) else [event]:
            found = self._form.usage(one)
            if found is not None:
                self.usage = self._form.merge(self.usage, found) if self.usage else found
