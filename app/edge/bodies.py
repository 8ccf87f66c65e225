"""Bodies on their way through: taking a request's body in, opening compressed ones.

Nothing here changes what is forwarded. A request's body is opened as a whole, within a bound; an answer piece by piece, in the copy that is
looked at.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import brotli
import zstandard

from app.errors import NotCompactable

Receive = Callable[[], Awaitable[Any]]


class ClientGone(Exception):
    """The client closed its connection."""


def always(size: int) -> bool:  # noqa: ARG001
    return True


async def take_body(receive: Receive, limit: int, room: Callable[[int], bool] = always) -> tuple[list[bytes], bool]:
    """The request body in chunks, and whether that is all of it: over `limit` bytes the rest is left to be streamed, and so it is where
    there is no `room` for a chunk of so many bytes."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        fits = room(len(chunk))
        if chunk:
            chunks.append(chunk)
            size += len(chunk)
        if not message.get("more_body", False):
            return chunks, True  # perhaps over the limit by a little: whoever looks into it, looks at that first
        if size > limit or not fits:
            return chunks, False


class _Decoder(Protocol):
    def decompress(self, data: bytes, most: int, /) -> bytes:
        """What this piece unfolds to. Raises TooFar over `most` bytes, one of `_FAULTS` for what is no such coding."""
        ...

    @property
    def whole(self) -> bool:
        """Was that all of it, and nothing behind it?"""
        ...


class TooFar(ValueError):
    """It unfolds to more than there is room for."""


MOST = 8 << 20
"""Bytes that one piece of an answer may unfold to before its copy is given up."""
_GZIP_PIECE, _MEMBERS = 4 << 10, 10_000
"""Bytes of gzip that are opened at a time, since finding where a member ends copies what follows it; and how many members there may be."""
_ZSTD_PIECE = 128
"""Bytes of zstd that are opened at a time: three of them can stand for 128 KiB, and its decoder knows no bound."""


def _bounded(out: bytes, most: int) -> bytes:
    """Of a decoder that stops at one byte more than `most`."""
    if len(out) > most:
        raise TooFar
    return out


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def decompress(self, data: bytes, most: int) -> bytes:
        out = self._inner.process(data, output_buffer_limit=most + 1)
        while len(out) <= most and not (self._inner.can_accept_more_data() or self._inner.is_finished()):
            out += self._inner.process(b"", output_buffer_limit=most + 1 - len(out))
        return _bounded(bytes(out), most)

    @property
    def whole(self) -> bool:
        return bool(self._inner.is_finished())


class _Zstd:
    whole = True  # its decoder tells no end; what is cut short is no JSON either

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(read_across_frames=True)

    def decompress(self, data: bytes, most: int) -> bytes:
        out = bytearray()
        for at in range(0, len(data), _ZSTD_PIECE):
            out += self._inner.decompress(data[at : at + _ZSTD_PIECE])
            if len(out) > most:
                raise TooFar
        return bytes(out)


class _Deflate:
    """`deflate` is zlib by the standard and raw deflate at some servers; two bytes tell."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._first = b""

    def decompress(self, data: bytes, most: int) -> bytes:
        if self._inner is None:
            data = self._first + data
            if len(data) < 2:
                self._first = data
                return b""
            wrapped = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._inner = zlib.decompressobj(15 if wrapped else -15)
        return _bounded(self._inner.decompress(data, most + 1), most)

    @property
    def whole(self) -> bool:
        return self._inner is not None and self._inner.eof and not self._inner.unused_data


class _Gzip:
    """Of one member or several; several are not what everybody reads, so they are not `whole`."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self._members = 1

    def decompress(self, data: bytes, most: int) -> bytes:
        out = bytearray()
        for at in range(0, len(data), _GZIP_PIECE):
            left = data[at : at + _GZIP_PIECE]
            while left:
                if self._inner.eof:
                    self._inner = zlib.decompressobj(31)
                    self._members += 1
                out += self._inner.decompress(left, most + 1 - len(out))
                if len(out) > most or self._members > _MEMBERS:
                    raise TooFar
                left = self._inner.unused_data
        return bytes(out)

    @property
    def whole(self) -> bool:
        return self._inner.eof and self._members == 1


DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


MOST_CODINGS = 3
"""One around the other: each may unfold to the whole bound."""


def codings(header: str) -> list[str]:
    """The names in a `content-encoding`, without those that change nothing."""
    return [name for part in header.split(",") if (name := part.strip().lower()) not in ("", "identity")]


def decoder_for(header: str) -> _Decoder | None:
    """For an answer that comes in pieces; None for no coding, and for one that can't be undone."""
    names = codings(header)
    return DECODERS[names[0]]() if len(names) == 1 and names[0] in DECODERS else None


_FAULTS = (zlib.error, brotli.error, zstandard.ZstdError, ValueError)


def open_coding(body: bytes, coding: str, limit: int) -> bytes:
    """The body without its content coding. Raises NotCompactable: unknown_coding, bad_coding, too_large (over `limit` bytes)."""
    names = codings(coding)
    if len(names) > MOST_CODINGS or not DECODERS.keys() >= set(names):
        raise NotCompactable("unknown_coding")
    for name in reversed(names):
        decoder = DECODERS[name]()
        try:
            body = decoder.decompress(body, limit)
        except TooFar:
            raise NotCompactable("too_large") from None
        except _FAULTS:
            raise NotCompactable("bad_coding") from None
        if not decoder.whole:
            raise NotCompactable("bad_coding")
    return body
