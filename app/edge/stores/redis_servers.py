"""The Redis servers behind one URL, as one thing that runs a batch of calls in one round trip.

A call names its key, so that servers which share the keys among them can be asked side by side. Nothing connects before the first batch,
and nothing is tried twice: the next request is the retry. The one exception is what a server refused because the key has moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError

CONNECTIONS = 64
"""To one server, at most; a call waits for a free one."""


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


def place(url: str, port: int) -> Place:
    """What stands in `scheme://user:password@h:p,h:p/path?ssl=true`; `port` where a host has none. Raises ValueError.

    Options of the query are redis-py's; `ssl=true` turns TLS on, `sentinel_username` and `sentinel_password` are for the sentinels.
    """
    rest, _, query = url.partition("://")[2].partition("?")
    address, _, path = rest.partition("/")
    who, _, hosts = address.rpartition("@")
    told = dict(parse_qsl(query))
    tls = told.pop("ssl", "").lower() in ("true", "yes", "1")
    sentinel = {name: told.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in told}
    found = []
    for host in hosts.split(","):
        parsed = parse_url(f"redis://{host}")
        if not parsed.get("host"):
            raise ValueError("a host is empty")
        found.append((parsed["host"], parsed.get("port", port)))
    pairs = "&".join(f"{name}={value}" for name, value in told.items())
    options = dict(parse_url(f"{'rediss' if tls else 'redis'}://{who + '@' if who else ''}host?{pairs}"))
    del options["host"]
    return Place(tuple(found), unquote(path), options, sentinel)


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
        """`redis://` or `rediss://`."""
        return cls(BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=timeout, **quick(timeout)))

    @classmethod
    def behind_sentinels(cls, url: str, timeout: float) -> Single:
        """`redis+sentinel://h:p,h:p/master-name/db`."""
        where = place(url, 26379)
        name, _, db = where.path.partition("/")
        if not name or (db and not db.isdecimal()):
            raise ValueError("the path must be master-name/db")
        # A sentinel that hangs must leave time to ask the next one.
        each = timeout / (len(where.hosts) + 1)
        secure = {
            key: value for key, value in where.options.items() if key.startswith("ssl") or key == "connection_class"
        }
        asking = {"socket_timeout": each, "socket_connect_timeout": each, "retry": Retry(NoBackoff(), 0), "protocol": 2}
        tls = where.options.pop("connection_class", None) is not None
        secure.pop("connection_class", None)
        sentinels: Any = _Sentinel(where.hosts, sentinel_kwargs={**asking, **secure, "ssl": tls, **where.sentinel})
        pool: Any = _SentinelPool(
            name, sentinels, max_connections=CONNECTIONS, timeout=timeout, db=int(db or 0), ssl=tls,
            **where.options, **quick(timeout),
        )  # fmt: skip
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


class _Pool(SentinelConnectionPool, BlockingConnectionPool):
    """Asks the sentinels where to connect, and waits for a free connection."""


# Their constructors have no types.
_SentinelPool: Any = _Pool
_Sentinel: Any = Sentinel
