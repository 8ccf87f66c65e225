"""compactd as a client meets it: the real server on a loopback port, with raw sockets on both sides of it.

Clients here send bytes and look at bytes, so that nothing of an HTTP library's own manners stands between a test and the wire. The provider
is a script of `tests.edge.upstream.peers`; `taken` reads one request of it, whatever its framing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.edge.server import Server, config_for
from app.formats import FORMATS
from app.main import App
from app.settings import Settings
from tests.edge.upstream.peers import Peer, response, serve

PATIENCE = 30.0  # seconds until a test that hangs fails; machines are slow at times
PASSING = [{"name": "default", "strategy": "tool_result_clearing"}]
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:generateContent",
}

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Pairs
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def __getitem__(self, name: str) -> str:
        return ", ".join(self.all(name))

    @property
    def told(self) -> tuple[str, str]:
        """compactd's outcome and reason."""
        return self["x-compactd-outcome"], self["x-compactd-reason"]


@dataclass(frozen=True, slots=True)
class Taken:
    """One request as a provider got it."""

    line: str
    headers: Pairs
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def __getitem__(self, name: str) -> str:
        return ", ".join(self.all(name))


def _fields(head: bytes) -> tuple[str, Pairs]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = (line.partition(":") for line in lines)
    return first, tuple((name, value.strip()) for name, _, value in parts)


async def taken(peer: Peer) -> Taken:
    """The next request on a provider's connection, read to its end."""
    line, headers = _fields(await peer.head())
    request = Taken(line, headers)
    if "chunked" in request["transfer-encoding"]:
        return Taken(line, headers, await _chunked(peer.reader))
    return Taken(line, headers, await peer.reader.readexactly(int(request["content-length"] or 0)))


@asynccontextmanager
async def remembering(*lines: bytes) -> AsyncIterator[tuple[str, list[Taken]]]:
    """A provider that answers everything with `{}` and these header lines: its address, and the requests that it has got so far."""
    got: list[Taken] = []

    async def provider(peer: Peer) -> None:
        while True:
            got.append(await taken(peer))
            await peer.send(response(b"{}", *lines))

    async with serve(provider) as server:
        yield server.url, got


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
    data = await reader.readexactly(size)
    if size:
        assert await reader.readexactly(2) == b"\r\n"
    return data


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while piece := await _chunk(reader):
        pieces.append(piece)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(pieces)


def request(method: str, target: str, *lines: str, body: bytes = b"", length: bool = True) -> bytes:
    """A request's bytes; `length` adds the content-length of a body."""
    told = [f"content-length: {len(body)}"] if body and length else []
    head = "\r\n".join([f"{method} {target} HTTP/1.1", "host: compactd.test", *lines, *told])
    return head.encode("latin-1") + b"\r\n\r\n" + body


def chunks(pieces: Iterable[bytes], trailers: bytes = b"") -> bytes:
    """The chunked coding of a body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailers + b"\r\n"


class Client:
    """One connection of a client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def head(self) -> Answer:
        line, headers = _fields(await self.reader.readuntil(b"\r\n\r\n"))
        return Answer(int(line.split(" ")[1]), headers)

    async def answer(self, method: str = "GET") -> Answer:
        """The next answer to its end. Raises asyncio.IncompleteReadError where it breaks off."""
        head = await self.head()
        if method == "HEAD" or head.status in (204, 304) or head.status < 200:
            body = b""
        elif "chunked" in head["transfer-encoding"]:
            body = await _chunked(self.reader)
        else:
            body = await self.reader.readexactly(int(head["content-length"]))
        return Answer(head.status, head.headers, body)

    async def piece(self) -> bytes:
        """The next chunk of a chunked body, b"" for the last."""
        return await _chunk(self.reader)

    async def rest(self) -> bytes:
        """What comes until the connection is closed."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def leave(self) -> None:
        """Gone at once, as when a process is killed."""
        self.writer.transport.abort()


class Running:
    """A compactd that runs."""

    def __init__(self, app: App, server: Server, port: int) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own."""
        client = await self.connect()
        await client.send(data)
        return await client.answer(data.partition(b" ")[0].decode())

    def metric(self, name: str, **labels: str) -> float:
        """A sample of a metric; 0 where there is none yet."""
        return self.app.metrics.registry.get_sample_value(f"compactd_{name}", labels) or 0.0

    @property
    def faults(self) -> dict[str, float]:
        """Where steps failed that requests survived, and how often."""
        samples = (sample for metric in self.app.metrics.faults.collect() for sample in metric.samples)
        return {one.labels["where"]: one.value for one in samples if one.name.endswith("_total") and one.value}

    def leave_all(self) -> None:
        for client in self._clients:
            client.leave()


def configured(url: str, **sections: Any) -> Settings:
    """Settings with one provider for all formats, at this base URL."""
    provider = {"base_url": url, "formats": list(FORMATS)}
    given = {"upstreams": {"provider": provider}, "store": {"url": "memory://"}, "policies": PASSING, **sections}
    return Settings(**given)


@asynccontextmanager
async def compactd(settings: Settings, patience: float = PATIENCE) -> AsyncIterator[Running]:
    """uvicorn's server with compactd's own configuration, without its main loop and signals, so that it starts and ends at once."""
    app = App(settings)
    config = config_for(settings, app)
    config.load()
    server = Server(config, app)
    server.lifespan = config.lifespan_class(config)
    listener = socket.create_server(("127.0.0.1", 0))
    await server.startup(sockets=[listener])
    running = Running(app, server, listener.getsockname()[1])
    try:
        async with asyncio.timeout(patience):
            yield running
    finally:
        running.leave_all()
        for listening in server.servers:
            listening.close()
        for task in list(server.server_state.tasks):
            task.cancel()
        await asyncio.gather(*server.server_state.tasks, return_exceptions=True)
        await server.lifespan.shutdown()


async def until(condition: Any, patience: float = PATIENCE) -> None:
    """Wait for what happens on the other side."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
