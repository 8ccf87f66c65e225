"""TLS to Redis servers: all connections of a URL share one context.

redis-py would make one for each connection, and read the system's authorities for each: 16 ms in which this process does nothing else, so
that a burst of new connections outlasts every call's time limit. Here it is made when the URL is read, when a file that can't
be used is told of at once, and made anew when one of its files has changed: certificates are renewed without a restart.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection
from redis.exceptions import RedisError

FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
OPTIONS = (
    *FILES, "ssl_password", "ssl_check_hostname", "ssl_cert_reqs", "ssl_ca_path", "ssl_ca_data", "ssl_min_version", "ssl_ciphers",
    "ssl_include_verify_flags", "ssl_exclude_verify_flags",
)  # fmt: skip
"""redis-py's, with its meanings."""


class Unusable(ValueError):
    """A store URL that can't be used; the text says why, and repeats nothing of the URL."""


class Tls:
    """Gives connections their context, in the place of redis-py's own object for that."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options` are some of `OPTIONS`, parsed. Raises Unusable."""
        self._options = {"ssl_password": "", **options}  # without one, a terminal would be asked for it
        self._files = [Path(options[name]) for name in FILES if name in options]
        for name in FILES:
            try:
                if name in options:
                    Path(options[name]).read_bytes()
            except OSError as fault:
                raise Unusable(f"the file of {name} can't be read ({fault.strerror})") from None
        try:
            self._context = self._made()
        except RedisError:
            raise Unusable("ssl_cert_reqs must be required, optional or none") from None
        except ssl.SSLError:
            raise Unusable(
                "its TLS files are not what they should be: ssl_certfile and ssl_keyfile are a certificate and its key, which "
                "ssl_password opens, and ssl_ca_certs holds authorities, all as PEM"
            ) from None

    def get(self) -> ssl.SSLContext:
        """The context for a new connection."""
        with suppress(OSError):  # half of the new files are there: the old context serves on
            if self._stamps() != self._made_from:
                self._context = self._made()
        return self._context

    def _made(self) -> ssl.SSLContext:
        stamps = self._stamps()
        context = SSLConnection(**self._options).ssl_context.get()
        self._made_from = stamps
        return context

    def _stamps(self) -> list[int]:
        return [file.stat().st_mtime_ns for file in self._files]


class _Sharing:
    def __init__(self, *, tls: Any, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = tls  # a `Tls`


class TlsConnection(_Sharing, SSLConnection):
    """To a server."""


class TlsBehindSentinels(_Sharing, SentinelManagedSSLConnection):
    """To the server that the sentinels name."""
