"""One request and its answer.

The exchange is the parser's listener and the body stream in one. The head resolves a future; after that each read of the
socket becomes at most one chunk in a short queue, handed on as it came. The queue is bounded by pausing the socket. The
connection goes back to the pool the moment the answer is complete, even if nobody has read it yet; whatever else ends
the exchange closes the connection at once.

One timer serves all time limits. It is set when the request goes out and does not move with every byte: when it fires it
looks how long it has really been quiet, and sleeps for the rest. Silence counts only while the provider has the floor.
"""

from __future__ import annotations

import asyncio
from collections import deque

import httptools
import httpx

from app.edge.upstream.connection import Connection
from app.edge.upstream.faults import broken
from app.edge.upstream.framing import Message
from app.edge.upstream.sender import Sender

MAX_HEAD = 65536  # bytes of head, informational responses included, or of trailers; looked at after each read
HIGH_WATER = 262144  # queued body bytes at which reading pauses …
LOW_WATER = 65536  # … and at which it goes on
_BOTH = frozenset({b"content-length", b"transfer-encoding"})
TICK = 0.001  # seconds by which a timer may be early


class Exchange(httpx.AsyncByteStream):
    """`head` is done when `status`, `reason` and `headers` are known; iterate for the raw body; `aclose` to break off.

    `bodiless`: the answer to a HEAD request. `read` and `write` are limits in seconds without progress, None for none.
    `stale`: a kept connection ended before a byte came back, so the request may be tried elsewhere.
    """

    status = 0
    reason = b""
    stale = False
    _timer: asyncio.TimerHandle | None = None
    _active = 0.0  # loop time of the last progress
    _backlog = 0  # bytes that were still to be sent when the timer last looked
    _seen = False  # any byte came
    _answered = False  # the final head is there
    _complete = False
    _keep_alive = False
    _surplus = False  # bytes after the end of the answer
    _overhead = 0  # bytes since the last body byte
    _queued = 0  # body bytes
    _paused = False
    _reader: asyncio.Future[None] | None = None
    _over = False  # the connection is not ours any more
    _fault: BaseException | None = None

    def __init__(self, connection: Connection, bodiless: bool, read: float | None, write: float | None) -> None:
        self.head: asyncio.Future[None] = connection.loop.create_future()
        self.headers: list[tuple[bytes, bytes]] = []
        self._connection = connection
        self._loop = connection.loop
        self._bodiless = bodiless
        self._read = read
        self._write = write
        self._sender = Sender(connection)
        parser = httptools.HttpResponseParser(self)
        # What careless servers do and clients bear: lines that end in LF alone, blanks after a chunk's size, a length besides chunks.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_chunked_length=True
        )
        self._parser: httptools.HttpResponseParser | None = parser
        self._pieces: list[bytes] = []  # body bytes of the read being parsed
        self._queue: deque[bytes] = deque()
        connection.exchange = self

    def send(self, message: Message) -> None:
        if self._connection.closed:
            self.lost(None)
        else:
            self._sender.start(message)
            self._watch()

    # The connection calls these

    def drained(self) -> None:
        """The transport takes more, or the last of a streamed request is out."""
        self._sender.drained()
        if not self._sender.active:
            self._watch()

    def feed(self, data: bytes) -> None:
        assert self._parser is not None
        self._seen = True
        self._active = self._loop.time()
        malformed = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            malformed = "a switch of protocols that nobody asked for"
        except httptools.HttpParserError as error:
            malformed = str(error)  # a fixed text of the parser's, no content
        if self._pieces:
            self._deliver()
        elif not self._complete:
            self._overhead += len(data)
        sender = self._sender
        if self._complete:
            self._end(self._keep_alive and not (self._surplus or malformed or sender.active or sender.stopped))
        elif malformed:
            self.fail(httpx.RemoteProtocolError(f"malformed response: {malformed}"))
        elif self._overhead > MAX_HEAD:
            self.fail(httpx.RemoteProtocolError(f"more than {MAX_HEAD} bytes of response headers"))
        elif sender.active and self._answered and self.status >= 300:
            sender.stop()  # refused, so the rest is not wanted; after a 2xx it may well be
            self._watch()

    def lost(self, error: Exception | None) -> None:
        """The connection ended."""
        if error is None and self._answered and self._until_close():
            self._end(reusable=False)
        else:
            self.stale = self._connection.reused and not self._seen
            self.fail(broken(error, seen=self._seen, answered=self._answered, sending=self._sender.active))

    def fail(self, error: BaseException) -> None:
        """End with an error: the head's if that is still awaited, else the stream's, behind what is queued."""
        self._fault = error
        self._end(reusable=False)
        if not self.head.done():
            self.head.set_exception(error)

    def abort(self) -> None:
        """Nobody waits for the rest."""
        if not self._over:
            self.head.cancel()
            self.fail(httpx.StreamClosed())
        self._queue.clear()

    # The parser calls these

    def on_message_begin(self) -> None:
        if self._answered:
            self._surplus = True
        else:  # the first, or the one after an informational response
            self.reason = b""
            self.headers = []

    def on_status(self, reason: bytes) -> None:
        if not self._answered:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._answered:  # else it is a trailer
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200 and not self._answered:
            self.status = status
            self._answered = True
            fields = {name.lower(): value for name, value in self.headers}
            if fields.keys() >= _BOTH:
                # Chunks count (RFC 9112 section 6.3), and the connection is used for nothing else.
                if fields[b"transfer-encoding"].lower() != b"chunked":
                    raise ValueError("a length and another coding")  # makes the parser fail
                self.headers = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
                self._surplus = True
            if self._bodiless:
                self.on_message_complete()  # the parser can't know; it is not used for anything after this
            if not self.head.done():
                self.head.set_result(None)

    def on_body(self, data: bytes) -> None:
        if self._complete:
            self._surplus = True
        else:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._answered and not self._complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    # The stream

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        """What came next. Who stops waiting may ask again and has lost nothing."""
        while not self._queue:
            if self._fault is not None:
                raise self._fault
            if self._over:
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        data = self._queue.popleft()
        self._queued -= len(data)
        if self._paused and self._queued <= LOW_WATER:
            self._resume()
        return data

    async def aclose(self) -> None:
        """Break off, unless the answer is complete: the provider sees the connection close at once."""
        self.abort()

    def _deliver(self) -> None:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._overhead = 0
        self._queue.append(data)
        self._queued += len(data)
        if self._queued > HIGH_WATER and not self._paused:
            self._paused = True
            self._connection.transport.pause_reading()
        self._wake()

    def _resume(self) -> None:
        self._paused = False
        self._active = self._loop.time()
        self._connection.transport.resume_reading()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # The end

    def _end(self, reusable: bool) -> None:
        connection = self._connection
        if self._paused and not connection.closed:
            self._resume()
        self._paused = False
        self._over = True
        self._parser = None  # it holds our methods: a cycle
        self._sender.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection.exchange = None
        if reusable:
            connection.pool.release(connection)
        else:
            connection.pool.discard(connection)
        self._wake()

    def _until_close(self) -> bool:
        """Neither a length nor chunks: the end of the connection is the end of the body."""
        fields = {name.lower(): value.lower() for name, value in self.headers}
        return b"content-length" not in fields and not fields.get(b"transfer-encoding", b"").endswith(b"chunked")

    # The clock

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._active = self._loop.time()
        limit = self._read
        if self._sender.active:
            limit, self._backlog = self._write, self._sender.backlog
        self._timer = None if limit is None else self._loop.call_later(limit, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._sender.active:
            if self._sender.backlog == self._backlog and not self._connection.writable:
                self.fail(httpx.WriteTimeout("nothing could be sent for too long"))
            else:
                self._watch()
        elif self._read is not None:
            left = self._read if self._paused else self._active + self._read - self._loop.time()
            if left > TICK:
                self._timer = self._loop.call_later(left, self._tick)
            else:
                self.fail(httpx.ReadTimeout("nothing was received for too long"))
