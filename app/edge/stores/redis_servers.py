"""The Redis servers behind one URL, as one thing that runs a batch of calls in one round trip.

A call names its key, so that servers which share the keys among them can be asked side by side. Nothing connects before the first batch,
and nothing is tried twice: the next request is the retry. The one exception is what a server refused because the key has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlencode

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError

from app.edge.stores.redis_tls import OPTIONS as TLS_OPTIONS
from app.edge.stores.redis_tls import Tls, TlsBehindSentinels, TlsConnection, Unusable

CONNECTIONS = 64
"""To one server, at most; a call waits for a free one."""
OPTIONS = ("username", "password", "db", "client_name", "max_connections")
"""What a URL's query may say of a connection, beside TLS; redis-py's names."""


class Call(NamedTuple):
    """One command, by its name in redis-py, on one key, or on several (`args`) that have one slot."""

    name: str
    key: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}

    def add_to(self, pipe: Any) -> None:
        if self.name == "eval":
            script, *args = self.args
            pipe.eval(script, 1, self.key, *args)
        elif self.name == "zunion":
            pipe.zunion([self.key, *self.args], **self.options)
        else:
            getattr(pipe, self.name)(self.key, *self.args, **self.options)


def call(name: str, key: str, *args: Any, **options: Any) -> Call:
    return Call(name, key, args, options)


class Servers(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Their results. Raises what the client library raises for the first that failed."""
        ...

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...


class Place(NamedTuple):
    """Some servers of one kind, and how to connect to each of them."""

    hosts: tuple[tuple[str, int], ...]
    path: str
    options: dict[str, Any]
    sentinel: dict[str, Any]
    tls: Tls | None

    def connection(self, timeout: float, secured: type[Any] = TlsConnection) -> dict[str, Any]:
        """redis-py's options for a connection, which has the class `secured` where there is TLS."""
        tls = {"connection_class": secured, "tls": self.tls} if self.tls else {}
        return {"max_connections": CONNECTIONS, "timeout": timeout, **self.options, **quick(timeout), **tls}

    @property
    def host(self) -> dict[str, Any]:
        """The only one."""
        if len(self.hosts) > 1:
            raise Unusable("it names several hosts, which redis+sentinel:// and redis+cluster:// are for")
        return dict(zip(("host", "port"), self.hosts[0], strict=True))


def place(url: str, port: int) -> Place:
    """What stands in `scheme://user:password@h:p,h:p/path?ssl=true`; `port` where a host has none. Raises ValueError.

    `rediss…://` or `ssl=true` turn TLS on. Options of the query are redis-py's; those that begin with `sentinel_` are for the sentinels.
    """
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    address, _, path = rest.partition("/")
    who, _, hosts = address.rpartition("@")
    told = dict(parse_qsl(query))
    secure = told.pop("ssl", "").lower() in ("true", "yes", "1") or scheme.startswith("rediss")
    sentinel = {name: told.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in told}
    if told.keys() - {*OPTIONS, *TLS_OPTIONS}:
        raise Unusable(f"it has an option that is none of {', '.join((*OPTIONS, *TLS_OPTIONS))}")
    if not secure and told.keys() & {*TLS_OPTIONS}:
        raise Unusable("it has options for TLS, but not the scheme: write rediss for redis")
    options: dict[str, Any] = dict(parse_url(f"redis://{who + '@' if who else ''}host?{urlencode(told)}"))
    del options["host"]
    tls = {name: options.pop(name) for name in TLS_OPTIONS if name in options}
    return Place(tuple(_hosts(hosts, port)), unquote(path), options, sentinel, Tls(tls) if secure else None)


def _hosts(hosts: str, port: int) -> Iterator[tuple[str, int]]:
    for host in hosts.split(","):
        parsed = parse_url(f"redis://{host}")
        if not parsed.get("host"):
            raise Unusable("a host is empty")
        yield parsed["host"], parsed.get("port", port)


def database(path: str) -> int:
    if path and not path.isdecimal():
        raise Unusable("what stands last in its path must be the number of a database")
    return int(path or 0)


def quick(timeout: float) -> dict[str, Any]:
    """How a connection behaves whose calls are bounded from outside."""
    return {
        "socket_timeout": max(timeout * 4, 1.0),  # only where the call's own time limit (`bounded`) did not end it
        "socket_connect_timeout": timeout, "socket_keepalive": True, "retry": Retry(NoBackoff(), 0), "protocol": 2,
        "decode_responses": False,
    }  # fmt: skip


async def piped(redis: Any, calls: Sequence[Call], raising: bool = True) -> list[Any]:
    pipe = redis.pipeline(transaction=False)
    for one in calls:
        one.add_to(pipe)
    results: list[Any] = await pipe.execute(raise_on_error=raising)
    return results


class Single:
    """One server, or one behind sentinels that say which it is."""

    def __init__(self, pool: Any, sentinels: Any = None) -> None:
        self._pool = pool
        self._redis: Any = Redis.from_pool(pool)
        self._sentinels = sentinels

    @classmethod
    def of(cls, url: str, timeout: float) -> Single:
        """`redis://h:p/db`."""
        where = place(url, 6379)
        db = {"db": database(where.path)} if where.path else {}
        return cls(BlockingConnectionPool(**where.host, **where.connection(timeout) | db))

    @classmethod
    def behind_sentinels(cls, url: str, timeout: float) -> Single:
        """`redis+sentinel://h:p,h:p/master-name/db`."""
        where = place(url, 26379)
        name, _, db = where.path.partition("/")
        if not name:
            raise Unusable("its path must be master-name/db")
        sentinels: Any = _Sentinel(where, timeout)
        options = where.connection(timeout, TlsBehindSentinels) | {"db": database(db)}
        pool: Any = _Pool(name, sentinels, **options)
        return cls(pool, sentinels)

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        try:
            return await piped(self._redis, calls)
        except ReadOnlyError:
            # Not the primary any more: who is must be found out anew, by name or by sentinel.
            await self._pool.disconnect(inuse_connections=False)
            raise

    async def ping(self) -> None:
        await self._redis.ping()

    async def aclose(self) -> None:
        await self._redis.aclose()
        if self._sentinels is not None:
            await self._sentinels.aclose()


class _NamedPool(SentinelConnectionPool, BlockingConnectionPool):
    """Asks the sentinels where to connect, and waits for a free connection."""


_Pool: Any = _NamedPool  # its constructor has no types


class _Sentinel(Sentinel):
    def __init__(self, where: Place, timeout: float) -> None:
        super().__init__(())  # type: ignore[no-untyped-call]
        # A sentinel that hangs must leave time to ask the next one. Its users are its own.
        each = timeout / (len(where.hosts) + 1)
        options = where._replace(options=where.sentinel).connection(timeout) | {
            "socket_timeout": each,
            "socket_connect_timeout": each,
        }
        del options["timeout"]
        self.sentinels = [
            Redis.from_pool(ConnectionPool(host=host, port=port, **options)) for host, port in where.hosts
        ]

    async def discover_master(self, service_name: str) -> Any:
        try:
            return await super().discover_master(service_name)
        except MasterNotFoundError as error:
            missing = error
        # Does none of them answer? Then what keeps them from it is the fault.
        told = await asyncio.gather(*(one.ping() for one in self.sentinels), return_exceptions=True)
        faults = [one for one in told if isinstance(one, BaseException)]
        raise faults[-1] if len(faults) == len(told) else missing
