"""The other side: servers on loopback that follow a script, a transport that only records, a certificate authority.

A script is a coroutine over one `Peer`, a connection as a server sees it. Whatever goes wrong in a script fails the test.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.edge.upstream import Upstream
from app.edge.upstream.connection import Connection
from app.edge.upstream.pool import Pool
from app.edge.upstream.routes import Place, Route

PATIENCE = 30.0  # seconds until a test that hangs fails; machines are slow at times


class Peer:
    """One accepted connection."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.number = len(server.peers)  # 0 for the first connection

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.server.heads.append(head)
        return head

    async def request(self) -> bytes:
        """A whole request: its body, chunks as they are."""
        head = (await self.head()).lower()
        if b"\r\ntransfer-encoding: chunked" in head:
            return await self.reader.readuntil(b"\r\n0\r\n\r\n")
        _, found, rest = head.partition(b"\r\ncontent-length: ")
        return await self.reader.readexactly(int(rest.partition(b"\r\n")[0])) if found else b""

    async def send(self, *data: bytes) -> None:
        for piece in data:
            self.writer.write(piece)
            await self.writer.drain()

    async def gone(self) -> bytes:
        """Wait until the client has closed; what it still sent."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.heads: list[bytes] = []
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


@asynccontextmanager
async def serve(script: Script, tls: ssl.SSLContext | None = None, patience: float = PATIENCE) -> AsyncIterator[Server]:
    server = Server()
    running: set[asyncio.Task[Any]] = set()
    errors: list[BaseException] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        peer = Peer(server, reader, writer)
        server.peers.append(peer)
        try:
            await script(peer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left
        except BaseException as error:
            errors.append(error)
        finally:
            running.discard(task)
            writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.scheme = "https" if tls else "http"
    try:
        async with asyncio.timeout(patience):
            yield server
    finally:
        listening.close()
        for task in list(running):
            task.cancel()
        await asyncio.sleep(0)
    if errors:
        raise errors[0]


def answers(*responses: bytes) -> Script:
    """Each request on a connection gets the next response; then the connection stays open and silent."""

    async def script(peer: Peer) -> None:
        for response in responses:
            await peer.request()
            await peer.send(response)
        await peer.gone()

    return script


def response(body: bytes = b"", *lines: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"".join(b"%b\r\n" % line for line in (b"content-length: %d" % len(body), *lines))
    return b"HTTP/1.1 %b\r\n%b\r\n%b" % (status, head, body)


def request(
    url: str,
    method: str = "GET",
    body: Any = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    target: bytes | None = None,
    **timeout: float | None,
) -> httpx.Request:
    """A request as the proxy makes it: `host` first, `content-length` for a body of bytes, nothing that httpx adds."""
    parsed = httpx.URL(url)
    lines = [(b"host", parsed.netloc), *headers]
    if isinstance(body, bytes):
        if body:
            lines.append((b"content-length", b"%d" % len(body)))
        body = httpx.ByteStream(body)
    extensions: dict[str, Any] = {"timeout": timeout} if timeout else {}
    if target is not None:
        extensions["target"] = target
    return httpx.Request(method, parsed, headers=lines, stream=body, extensions=extensions)


async def ask(upstream: Upstream, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
    """Status and whole body."""
    answer = await upstream.handle_async_request(request(*args, **kwargs))
    return answer.status_code, await read(answer)


async def read(answer: httpx.Response) -> bytes:
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    return b"".join([piece async for piece in answer.stream])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what is awaited is the other side)
            await asyncio.sleep(0.001)


class Wire(asyncio.Transport):
    """A transport that goes nowhere and records everything."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self.written: list[bytes] = []
        self.reading = True
        self.aborted = False
        self.buffered = 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.buffered


ROUTE = Route(Place("127.0.0.1", 80), tls=False)


async def wired(limit: int = 10, expiry: float = 60.0) -> Pool:
    """A pool whose connections lead to a `Wire` each."""

    async def dial(_route: Route, connection: Connection) -> None:
        connection.connection_made(Wire())

    return Pool(dial, limit, expiry)


async def connected() -> tuple[Pool, Connection, Wire]:
    """A pool and the one connection that was taken out of it."""
    pool = await wired()
    connection = await pool.acquire(ROUTE, None, None, fresh=False)
    assert isinstance(connection.transport, Wire)
    return pool, connection, connection.transport


class Authority:
    """A self-signed CA and a certificate of it for 127.0.0.1."""

    def __init__(self) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("compactd test authority")
        self._certificate = self._sign(self._key.public_key(), self._name, x509.BasicConstraints(True, None))
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def server(self, address: str = "127.0.0.1") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "server.pem")
            file.write_bytes(self.pair(address))
            context.load_cert_chain(file)
        return context

    def pair(self, address: str = "127.0.0.1") -> bytes:
        """A server's key and certificate, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = self._sign(key.public_key(), _name(address), names).public_bytes(serialization.Encoding.PEM)
        pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(serialization.Encoding.PEM, pkcs8, plain) + certificate

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem)

    def _sign(self, key: ec.EllipticCurvePublicKey, name: x509.Name, extension: x509.ExtensionType) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        return builder.add_extension(extension, critical=True).sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
