"""From an `httpx.Request` to the bytes of an HTTP/1.1 request.

Target and headers go out exactly as they are given. The only line ever added says how long the body is, where none does.
A request that is not as long as it says is refused: on a shared connection it would spoil the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import NamedTuple

import httpx

from app.edge.upstream.routes import Route


class Message(NamedTuple):
    """A request ready to be sent. `length`: bytes that a streamed body has declared, None if it is chunked."""

    head: bytes
    body: bytes | AsyncIterable[bytes]
    length: int | None = None


def frame(request: httpx.Request, route: Route) -> Message:
    """Raises httpx.LocalProtocolError for a request that can't be written down as HTTP/1.1."""
    target: bytes = request.extensions.get("target") or request.url.raw_path
    headers = request.headers.raw
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    first = b"%b %b%b HTTP/1.1\r\n" % (request.method.encode("ascii"), route.prefix, target)
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or len(first.split()) != 3:
        raise httpx.LocalProtocolError("a line break or space where none may be, in the request's target or headers")
    names = b"\r\n" + lines.lower()
    length, chunked = _length(names), _chunked(names)
    if chunked and length is not None:
        raise httpx.LocalProtocolError("both content-length and transfer-encoding are given")
    head = first + route.lines + lines

    body = _body(request.stream)
    if not isinstance(body, bytes):
        if length is None and not chunked:
            head += b"transfer-encoding: chunked\r\n"
        return Message(head + b"\r\n", body, length)
    if chunked:
        return Message(head + b"\r\n", chunk(body) + LAST_CHUNK)
    if length is None and body:
        head += b"content-length: %d\r\n" % len(body)
    elif (length or 0) != len(body):
        raise httpx.LocalProtocolError("content-length is not the length of the body")
    return Message(head + b"\r\n", body)


LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked coding; nothing for no data, because an empty chunk would be the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _body(stream: object) -> bytes | AsyncIterable[bytes]:
    if isinstance(stream, httpx.ByteStream):
        return b"".join(stream)  # one element: join hands out the very same object
    if isinstance(stream, bytes | bytearray | memoryview):
        return bytes(stream)
    if isinstance(stream, AsyncIterable):
        return stream
    raise TypeError("a request body is bytes or an async iterator of bytes")


def _length(names: bytes) -> int | None:
    start = names.find(b"\r\ncontent-length:")
    if start < 0:
        return None
    value = names[start + 17 : names.index(b"\r", start + 17)].strip()
    if not value.isdigit():
        raise httpx.LocalProtocolError("content-length is not a number")
    return int(value)


def _chunked(names: bytes) -> bool:
    if b"\r\ntransfer-encoding:" not in names:
        return False
    if b"\r\ntransfer-encoding: chunked\r\n" not in names:
        raise httpx.LocalProtocolError("the only transfer-encoding that can be sent is chunked")
    return True
