"""Which way leads to an origin: straight, or through the proxy that the environment names.

HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (either case) are read once, with the standard library's own rules. An
https origin is reached through a tunnel (CONNECT), an http origin by naming it in full in the request line.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import httpx

PORTS = {"http": 80, "https": 443}


class Place(NamedTuple):
    """Where a socket is connected to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An http:// proxy; `authorization` is a complete header line or empty."""

    place: Place
    authorization: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: one per origin, and a cheap key
class Route:
    """The way to one origin. For plain proxying, `prefix` goes before each target and `lines` after the request line."""

    place: Place
    tls: bool
    proxy: Proxy | None = None
    prefix: bytes = b""
    lines: bytes = field(default=b"", repr=False)


class Routes:
    """One `Route` per origin, made on first use."""

    def __init__(self) -> None:
        self._proxies = getproxies_environment()
        self._known: dict[tuple[str, bytes, int | None], Route] = {}

    def find(self, url: httpx.URL) -> Route:
        """Raises httpx.UnsupportedProtocol for a scheme, of the URL or of its proxy, that is not spoken here."""
        origin = (url.scheme, url.raw_host, url.port)
        route = self._known.get(origin)
        if route is None:
            route = self._known[origin] = self._make(url)
        return route

    def _make(self, url: httpx.URL) -> Route:
        if url.scheme not in PORTS or not url.raw_host:
            raise httpx.UnsupportedProtocol("an upstream's address must begin with http:// or https:// and name a host")
        place = Place(url.raw_host.decode("ascii"), url.port or PORTS[url.scheme])
        proxy = self._proxy(url.scheme, place)
        tls = url.scheme == "https"
        if proxy is None or tls:
            return Route(place, tls, proxy)
        return Route(place, tls, proxy, prefix=b"http://" + url.netloc, lines=proxy.authorization)

    def _proxy(self, scheme: str, place: Place) -> Proxy | None:
        address = self._proxies.get(scheme) or self._proxies.get("all")
        if not address or proxy_bypass_environment(str(place), self._proxies):
            return None
        return read_proxy(address)


def read_proxy(address: str) -> Proxy:
    """`[http://][user[:password]@]host[:port]`; raises httpx.UnsupportedProtocol for any other kind of proxy."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme != "http":
        raise httpx.UnsupportedProtocol(f"the environment names a {parts.scheme}:// proxy; only http:// is supported")
    try:
        place = Place(parts.hostname or "", parts.port or 80)
    except ValueError:
        place = Place("", 0)
    if not place.host:
        raise httpx.UnsupportedProtocol("the proxy set in the environment has no valid host and port")
    if parts.username is None:
        return Proxy(place)
    login = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
    return Proxy(place, b"Proxy-Authorization: Basic %b\r\n" % b64encode(login))
