"""The wire side of the provider: reading a request, sending an answer at a given pace, with the faults asked for.

An answer is a list of chunks. The sender watches for a client that leaves, may wait before the first byte and between
events, may compress, and may cut the connection in the middle: then it raises, which makes the server close the socket
without the end that HTTP wants.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import brotli
import zstandard

from .prefix_cache import Usage
from .violation import Violation

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Seen:
    """One request as it arrived, and what became of it."""

    method: str
    path: str
    query: str
    headers: Headers
    raw: bytes
    """The body's bytes, still encoded."""
    body: dict[str, Any] | None = None
    form: str = ""
    action: str = ""
    model: str = ""
    violations: list[Violation] = field(default_factory=list)
    status: int = 0
    usage: Usage | None = None
    """What the answer reported; None if there was no usage to report."""
    tokens: int = 0
    """The whole prompt in tokens, by the provider's count, cached ones included."""
    dropped_thinking: int = 0
    """Thinking blocks behind a changed prefix that were dropped because the request asked for it."""
    finished: bool = False
    """The answer was sent to its end."""
    abandoned: bool = False
    """The client left before the end."""

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer: whole (one chunk, with its length) or streamed (one chunk per event)."""

    status: int
    chunks: Iterable[bytes]
    content_type: str = "application/json"
    headers: Headers = ()
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds before the first byte and between events; events after which the connection is cut; compression."""

    delay: float = 0.0
    event_gap: float = 0.0
    drop_after_events: int | None = None
    gzip: bool = False


class Cut(Exception):
    """The connection is to be cut here."""


async def read(scope: Message, receive: Receive) -> Seen:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"])
    return Seen(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, body)


def decoded(seen: Seen) -> bytes:
    """The body without its content coding. Raises ValueError for one that can't be read."""
    coding = seen.header("content-encoding").strip().lower()
    try:
        if coding in ("", "identity"):
            return seen.raw
        if coding == "gzip":
            return gzip.decompress(seen.raw)
        if coding == "deflate":
            return zlib.decompress(seen.raw)
        if coding == "br":
            return bytes(brotli.decompress(seen.raw))
        if coding == "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(seen.raw)
    except (OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError) as problem:
        raise ValueError(f"could not decode the {coding} body") from problem
    raise ValueError(f"unsupported content-encoding {coding}")


async def send_answer(seen: Seen, out: Outgoing, pace: Pace, receive: Receive, send: Send) -> None:
    """Sends an answer. Raises Cut where the connection is to break."""
    seen.status = out.status
    gone = asyncio.Event()
    watch = asyncio.create_task(_watch(receive, gone))
    try:
        if await _left(gone, pace.delay):
            seen.abandoned = True
            return
        await _send(seen, out, pace, gone, send)
    finally:
        watch.cancel()


async def _send(seen: Seen, out: Outgoing, pace: Pace, gone: asyncio.Event, send: Send) -> None:
    pack = zlib.compressobj(wbits=31) if pace.gzip else None
    chunks: Iterable[bytes] = out.chunks
    headers = [("content-type", out.content_type), *out.headers]
    if pace.gzip:
        headers.append(("content-encoding", "gzip"))
    if not out.streamed:
        whole = b"".join(out.chunks)
        chunks = [gzip.compress(whole, mtime=0)] if pack else [whole]
        headers.append(("content-length", str(len(next(iter(chunks))))))
        pack = None
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": out.status, "headers": raw})
    for sent, chunk in enumerate(chunks):
        if pace.drop_after_events is not None and sent >= pace.drop_after_events:
            raise Cut
        if await _left(gone, pace.event_gap if sent else 0):
            seen.abandoned = True
            return
        if pack:
            chunk = pack.compress(chunk) + pack.flush(zlib.Z_SYNC_FLUSH)
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    seen.finished = True  # before the last byte: a client that has it may look here at once
    await send({"type": "http.response.body", "body": pack.flush() if pack else b"", "more_body": False})


async def _watch(receive: Receive, gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


async def _left(gone: asyncio.Event, seconds: float) -> bool:
    """Waits so long; true as soon as the client has left."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return gone.is_set()
    try:
        await asyncio.wait_for(gone.wait(), seconds)
    except TimeoutError:
        return False
    return True
