"""New connections: name lookup, racing addresses, the tunnel through a proxy, TLS.

The socket is opened and, where there is a proxy, tunnelled by hand; only then does it become a transport. So a tunnel
needs no switch of protocols, and all of it works on every event loop. Time limits are the caller's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import httpx

from app.edge.upstream.routes import Place, Route

HEAD_START = 0.25  # seconds one address has before the next is tried beside it; source: RFC 8305, section 5
MAX_ANSWER = 65536  # bytes of a proxy's answer to CONNECT
# Dead peers and forgetful NATs: probe after a minute of silence, give up after five more.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 5}

Address = tuple[int, Any]  # family, what connect() takes


async def dial(route: Route, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
    """Connect `protocol` to the route's origin. Raises OSError, UnicodeError or httpx.ProxyError."""
    sock = await open_socket(route.proxy.place if route.proxy else route.place)
    try:
        if route.proxy and route.tls:
            await _tunnel(sock, route)
    except BaseException:
        sock.close()
        raise
    loop = asyncio.get_running_loop()
    if route.tls:
        await loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=route.place.host)
    else:
        await loop.create_connection(lambda: protocol, sock=sock)


async def open_socket(place: Place) -> socket.socket:
    """The first address that answers, both families in turn, each with a short head start."""
    found = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    addresses = _in_turn([(family, address) for family, _, _, _, address in found])
    if len(addresses) == 1:
        return await _connect(addresses[0])
    return await _race(addresses)


def _in_turn(addresses: Sequence[Address]) -> list[Address]:
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


async def _race(addresses: Sequence[Address]) -> socket.socket:
    running: set[asyncio.Task[socket.socket]] = set()
    waiting = list(reversed(addresses))
    error: BaseException = OSError("the name has no address")
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_connect(waiting.pop())))
            done, _ = await asyncio.wait(
                running, timeout=HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                running.remove(attempt)
                failure = attempt.exception()
                if failure is None:
                    running |= done - {attempt}  # a dead heat: the other winner is closed below
                    return attempt.result()
                error = failure
        raise error
    finally:
        for attempt in running:
            if not attempt.cancel() and not attempt.cancelled() and attempt.exception() is None:
                attempt.result().close()


async def _connect(address: Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in KEEPALIVE.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnel(sock: socket.socket, route: Route) -> None:
    assert route.proxy is not None
    loop = asyncio.get_running_loop()
    origin = str(route.place).encode("ascii")
    await loop.sock_sendall(
        sock, b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (origin, origin, route.proxy.authorization)
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = await loop.sock_recv(sock, 4096)
        answer += data
        if not data or len(answer) > MAX_ANSWER:
            raise httpx.ProxyError("the proxy gave no proper answer to CONNECT")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if not status[0].startswith(b"HTTP/1.") or len(status) < 2 or not status[1].isdigit():
        raise httpx.ProxyError("the proxy gave no proper answer to CONNECT")
    if not status[1].startswith(b"2"):
        raise httpx.ProxyError(f"the proxy answered {int(status[1])} to CONNECT")
    if not answer.endswith(b"\r\n\r\n"):  # TLS servers wait to be spoken to
        raise httpx.ProxyError("the proxy sent something of its own into the tunnel")
