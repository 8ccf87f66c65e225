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
from app.core.sse import ENDS, UsageLines, usages
from app.errors import NotCompactable
from app.formats.base import Format, Usage

Receive = Callable[[], Awaitable[Any]]

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
    """`deflate` is zlib by the standard and raw deflate at some servers; two bytes tell."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._first = b""

    def decompress(self, data: bytes) -> bytes:
        if self._inner is None:
            data = self._first + data
            if len(data) < 2:
                self._first = data
                return b""
            self._inner = zlib.decompressobj(15 if _zlib_wrapped(data) else -15)
        return bytes(self._inner.decompress(data))


class _Gzip:
    """Of one member or several."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    def decompress(self, data: bytes) -> bytes:
        out = b""
        while data:
            if self._inner.eof:
                self._inner = zlib.decompressobj(31)
            out += self._inner.decompress(data)
            data = self._inner.unused_data
        return out


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(read_across_frames=True),
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
    """Looks at a copy of an answer as it passes and gathers what the provider reports of usage. Never raises, never delays.

    Of a stream its lines are read as they come, of any other answer only both ends are kept: a small one is read as a whole, in a larger or
    broken one what it calls usage.
    """

    def __init__(self, form: Format, content_type: str, coding: str) -> None:
        self.usage: Usage | None = None
        self._form = form
        names = [part.strip().lower() for part in coding.split(",") if part.strip().lower() not in ("", "identity")]
        self._blind = any(name not in _DECODERS for name in names)
        self._decoders = [] if self._blind else [_DECODERS[name]() for name in reversed(names)]
        self._lines = UsageLines() if "event-stream" in content_type.lower() else None
        self._start = b""
        self._end = b""
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        if self._blind:
            return
        try:
            for decoder in self._decoders:
                chunk = decoder.decompress(chunk)
            self._feed(chunk)
        except Exception:  # whatever it is, the answer goes on
            self._blind = True

    def _feed(self, chunk: bytes) -> None:
        kept = TAIL
        if self._lines is not None:
            for payload in self._lines.feed(chunk):
                self._take(payload)
        else:
            kept = ENDS
            if self._size < ENDS:
                self._start += chunk[: ENDS - self._size]
            self._size += len(chunk)
        self._end = chunk[-kept:] if len(chunk) >= kept else (self._end + chunk)[-kept:]

    def end(self) -> None:
        """That was all, or all that came."""
        with contextlib.suppress(Exception):
            if self._lines is not None:
                for payload in self._lines.end():
                    self._take(payload)
            elif self._size > ENDS:
                self._find(self._end)
                if self.usage is None:
                    self._find(self._start)
            else:
                self._take(self._start)

    @property
    def terminal(self) -> bool:
        """Has the answer said that it is over? Clients leave right after that, which is no abort."""
        return any(mark in self._end[-TAIL:] for mark in self._form.terminal)

    def _take(self, payload: bytes) -> None:
        if len(payload) > ENDS:
            self._find(payload[-ENDS:])
            return
        try:
            event = jsonspan.value(payload)
        except NotCompactable:
            self._find(payload)
            return
        for one in event if isinstance(event, list) else [event]:
            self._add(self._form.usage(one))

    def _find(self, text: bytes) -> None:
        """The last report in a text that is no whole JSON text."""
        self._add(next((told for found in usages(text) if (told := self._form.usage(found)) and told != Usage()), None))

    def _add(self, found: Usage | None) -> None:
        if found is not None:
            self.usage = self._form.merge(self.usage, found) if self.usage else found
