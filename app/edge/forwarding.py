"""Asking the provider: the request as it goes out, and the one place where httpx's exceptions become ours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import httpx

from app.edge.exchange import Exchange
from app.edge.headers import request_headers, without_key
from app.edge.upstream import Upstream
from app.errors import UpstreamFailed

_ADDRESSES: dict[str, tuple[httpx.URL, bytes, bytes]] = {}
"""Base URL -> URL, path, host; parsed once: as many as there are upstreams in the configuration."""


POOL_PATIENCE = 30.0
"""Seconds to wait for a connection while all are in use."""
LARGEST_STATUS = 599
"""What the server below us can say; source: RFC 9110 section 15."""


async def ask_upstream(client: Upstream, exchange: Exchange) -> httpx.Response:
    """Send the exchange's request. Raises UpstreamFailed before the head of an answer has come."""
    route, settings, scope = exchange.route, exchange.wiring.settings, exchange.scope
    assert route is not None
    upstream = settings.upstreams[route.upstream]
    url, base_path, host = address(upstream.base_url)
    query = scope["query_string"]
    if query and upstream.brings_credentials:
        query = without_key(query)
    target = base_path + route.path + (b"?" + query if query else b"")
    beta = exchange.outcome.beta if exchange.outcome and exchange.changed else ""
    exchange.attempts += 1
    headers = request_headers(
        scope["headers"],
        host,
        exchange.length,
        exchange.changed,
        upstream,
        route.target,
        beta=beta,
        without_beta=exchange.without_beta,
        attempt=exchange.attempts,
    )
    if exchange.trace is not None:
        exchange.trace.begin_upstream(headers)
    connect, read = settings.timeouts(route.upstream)
    request = httpx.Request(
        scope["method"], url, headers=headers, stream=_stream(exchange.body),
        extensions={"target": target, "timeout": {"connect": connect, "read": read, "write": read, "pool": POOL_PATIENCE}},
    )  # fmt: skip
    record = exchange.record
    record.asked, record.answered = time.perf_counter(), 0.0
    try:
        response = await client.handle_async_request(request)
    except httpx.TransportError as fault:
        raise upstream_failure(fault, host.decode()) from None
    if response.status_code > LARGEST_STATUS:
        await response.aclose()
        raise upstream_failure(httpx.RemoteProtocolError("no status of HTTP's"), host.decode())
    record.answered = time.perf_counter()
    record.status = response.status_code
    return response


async def whole_answer(response: httpx.Response, most: int) -> bytes | None:
    """The raw body of an answer, which is closed then; None where that is over `most` bytes."""
    chunks, size = [], 0
    try:
        async for chunk in response.stream:  # type: ignore[union-attr]
            size += len(chunk)
            if size > most:
                return None
            chunks.append(chunk)
    finally:
        await response.aclose()
    return b"".join(chunks)


def _stream(body: bytes | AsyncIterator[bytes]) -> httpx.ByteStream | Streamed:
    return httpx.ByteStream(body) if isinstance(body, bytes) else Streamed(body)


class Streamed(httpx.AsyncByteStream):
    """A request body that is still coming in."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


def upstream_failure(fault: httpx.TransportError, host: str) -> UpstreamFailed:
    """The text names the host and never the request."""
    if isinstance(fault, httpx.PoolTimeout):
        return UpstreamFailed(
            "upstream_pool_exhausted", f"No free connection to {host}; see `limits.max_connections`.", 503
        )
    if isinstance(fault, httpx.ConnectTimeout):
        return UpstreamFailed("upstream_connect_timeout", f"Connecting to {host} took too long.", 504)
    if isinstance(fault, httpx.TimeoutException):
        return UpstreamFailed("upstream_timeout", f"{host} sent nothing for too long.", 504)
    if isinstance(fault, httpx.ConnectError | httpx.ProxyError | httpx.UnsupportedProtocol):
        text = str(fault)
        return UpstreamFailed(
            "upstream_unreachable", f"{text[:1].upper()}{text[1:]}." if host in text else f"{host}: {text}."
        )
    if isinstance(fault, httpx.LocalProtocolError):
        return UpstreamFailed("bad_request", f"This request can't be sent to {host}: {fault}.", 400)
    return UpstreamFailed("upstream_broke_off", f"{host} broke off its answer or answered what is not HTTP.")


def address(base_url: str) -> tuple[httpx.URL, bytes, bytes]:
    """URL, raw path before `/v1`, and host of an upstream."""
    found = _ADDRESSES.get(base_url)
    if found is None:
        url = httpx.URL(base_url)
        found = _ADDRESSES[base_url] = (url, url.raw_path.rstrip(b"/"), url.netloc)
    return found
