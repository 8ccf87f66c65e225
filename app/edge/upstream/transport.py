"""What the rest of compactd sees: an httpx transport, called directly.

`httpx.AsyncClient` is not needed and not wanted in between: it costs more than all of this. Redirects are never followed.
Nothing is sent twice but for one case, the race that every kept connection has: a provider closes it while a request is on
its way. Then, and only if nothing came back and the body is at hand, the request goes out once more on a new connection.
"""

from __future__ import annotations

import asyncio
import ssl

import httpx

from app.edge.upstream.connection import Connection
from app.edge.upstream.dial import dial
from app.edge.upstream.exchange import Exchange
from app.edge.upstream.framing import frame
from app.edge.upstream.pool import Pool
from app.edge.upstream.routes import Route, Routes
from app.edge.upstream.trust import trusted

# Seconds: connect in all; read and write without any progress; pool waiting for a free connection.
DEFAULT_TIMEOUT = httpx.Timeout(connect=10.0, read=600.0, write=600.0, pool=30.0)
SAFE_IDLE = 1.0  # seconds: a streamed body can't be sent twice, so it only takes a connection that was just in use


class Upstream(httpx.AsyncBaseTransport):
    """An HTTP/1.1 client for all providers. Use it within one event loop.

    `ssl_context`: instead of the system's trust; it is told to offer http/1.1 only. `max_connections` counts all
    origins together. `keepalive_expiry` in seconds. `timeout` is for what a request's own dict does not say.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_connections: int = 1000,
        keepalive_expiry: float = 60.0,
        timeout: httpx.Timeout = DEFAULT_TIMEOUT,
    ) -> None:
        self._context = ssl_context or trusted()
        self._context.set_alpn_protocols(["http/1.1"])
        self._routes = Routes()
        self._pool = Pool(self._dial, max_connections, keepalive_expiry)
        self._timeout = timeout.as_dict()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and return its response as soon as the head is there; `response.stream` yields the raw body.

        The caller closes the stream (`aclose`) unless it was read to its end. `request.extensions`: `target` (bytes, sent
        as they are instead of the URL's path and query), `timeout` (httpx's dict). Raises httpx's exceptions, or what
        the request's body raised.
        """
        route = self._routes.find(request.url)
        message = frame(request, route)
        timeout = request.extensions.get("timeout")
        timeout = self._timeout if timeout is None else {**self._timeout, **timeout}
        replayable = isinstance(message.body, bytes)
        fresh = False
        connection = self._pool.take(route, None if replayable else SAFE_IDLE)
        while True:
            if connection is None:
                connection = await self._pool.acquire(route, timeout["connect"], timeout["pool"], fresh)
            exchange = Exchange(connection, request.method == "HEAD", timeout["read"], timeout["write"])
            try:
                exchange.send(message)
                await exchange.head
            except BaseException:
                exchange.abort()
                if not (replayable and exchange.stale):
                    raise
                connection, fresh = None, True
            else:
                return httpx.Response(
                    exchange.status,
                    headers=exchange.headers,
                    stream=exchange,
                    extensions={"reason_phrase": exchange.reason},
                    request=request,
                )

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        self._pool.close()
        await asyncio.sleep(0)  # the loop closes the sockets

    @property
    def open_connections(self) -> int:
        """Connections in use, idle, or being opened."""
        return self._pool.slots

    async def _dial(self, route: Route, connection: Connection) -> None:
        await dial(route, connection, self._context)
