"""The store of several replicas: Redis or Valkey (6.2 and later), one round trip on the hot path.

A checkpoint is two keys: its record, found by its own chain hash, and a line in the small index of its anchor. A lookup reads the
indexes of the conversation's anchors and the session in one pipeline; the record itself never changes, so a second
trip is needed only for one that this process has not seen yet. Every command touches one key, and the part of the key in braces decides its
cluster slot. Every key has a time to live. Nothing is scanned.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.edge.stores.base import (
    PER_ANCHOR,
    PER_LIST,
    StoreOptions,
    bounded,
    cursor_after,
    cursor_place,
    on_chain,
    page_size,
)
from app.edge.stores.lru import Lru
from app.edge.stores.packing import pack_async, unpack_async
from app.edge.stores.redis_keys import Line, Record, index_key, key_of, milliseconds, record_key, session_key, text
from app.edge.stores.sessions import KINDS, checked, increments, replacements, session_of
from app.ports import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, anchors

CONNECTIONS = 64
CACHE_ITEMS, CACHE_BYTES = 20_000, 64 << 20
TRIES = 4
"""Records asked for in one lookup, deepest first, while they turn out to be gone."""

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisStore:
    """Nothing connects before the first call, and a call never retries: the next request is the retry."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        """Raises ValueError when the URL can't be read (its text is not repeated: it may hold a password)."""
        self.options = options or StoreOptions()
        timeout = self.options.timeout
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS,
                timeout=timeout,
                socket_timeout=None,  # one timer for the whole call (`bounded`), not one for each answer of a pipeline
                socket_connect_timeout=timeout,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                decode_responses=False,
            )
        except Exception as error:
            raise ValueError(f"it can't be read ({type(error).__name__})") from None
        self._redis: Any = Redis.from_pool(pool)
        self._values: Lru[tuple[str, bytes], bytes] = Lru(CACHE_ITEMS, CACHE_BYTES, self.options.clock)

    @classmethod
    def from_url(cls, url: str, options: StoreOptions) -> RedisStore:
        """`redis://[user:password@]host:port/db` or `rediss://…` (TLS)."""
        return cls(url, options)

    @bounded
    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        now = self.options.clock()
        under = anchors(chain)
        pipe = self._redis.pipeline(transaction=False)
        for anchor in under:
            pipe.zrangebyscore(index_key(tenant, anchor), now, "+inf", withscores=True)
        pipe.hgetall(session_key(tenant, session))
        *indexes, fields = await pipe.execute()
        usable: dict[int, tuple[Line, bytes, float]] = {}
        quarantined: set[int] = set()
        for anchor, index in zip(under, indexes, strict=True):
            for member, expires in index:
                line = Line.decode(member)
                if on_chain(chain, line.depth, line.key):
                    if line.quarantined:
                        quarantined.add(line.depth)
                    else:
                        usable[line.depth] = line, anchor, expires
        found = None
        for depth in sorted(usable.keys() - quarantined, reverse=True)[:TRIES]:
            line, anchor, expires = usable[depth]
            record = await self._record(tenant, line.key)
            if record is None:
                continue
            if record.value is None:
                quarantined.add(depth)
                continue
            found = StoredCheckpoint(line.key, anchor, depth, record.value)
            if expires < now + self.options.checkpoint_ttl / 2:
                await self._renew(tenant, anchor, line)
            break
        return Found(found, max(quarantined, default=0), _session_of(fields))

    @bounded
    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        record = Record(checkpoint.anchor, checkpoint.depth, await pack_async(checkpoint.value))
        pipe = self._redis.pipeline(transaction=False)
        pipe.set(
            record_key(tenant, checkpoint.key), record.encode(), nx=True, px=milliseconds(self.options.checkpoint_ttl)
        )
        # Also when another replica was first: had it died between its two writes, the record would never be found.
        self._file(pipe, tenant, checkpoint.anchor, Line(checkpoint.depth, False, checkpoint.key))
        first, *_ = await pipe.execute()
        if first:
            self._remember(tenant, checkpoint.key, checkpoint.value)
        return bool(first)

    @bounded
    async def quarantine(self, tenant: str, key: bytes) -> None:
        """The record loses its value (so that no `put_checkpoint` brings it back), and the index says so."""
        self._values.pop((tenant, key))
        where, life = record_key(tenant, key), milliseconds(self.options.checkpoint_ttl)
        before = await self._redis.set(where, Record().encode(), px=life, get=True)
        there = Record.decode(before) if before else Record()
        if there.depth:
            there.value = None
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(where, there.encode(), px=life)
            self._file(pipe, tenant, there.anchor, Line(there.depth, True, key))
            await pipe.execute()

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        await self._update_session(tenant, session, checked(change))

    @bounded
    async def _update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        now = self.options.clock()
        put = replacements(change, now)
        key, ttl = session_key(tenant, session), self.options.session_ttl
        pipe = self._redis.pipeline(transaction=False)
        pipe.hsetnx(key, "created", repr(now))
        pipe.hset(key, mapping={"id": session, "tenant": tenant} | {name: text(value) for name, value in put.items()})
        for name, amount in increments(change).items():
            if KINDS[name] is int:
                pipe.hincrby(key, name, amount)
            else:
                pipe.hincrbyfloat(key, name, amount)
        pipe.pexpire(key, milliseconds(ttl))
        stamp = float(put["updated"])
        self._list(pipe, "sessions", "", msgspec.msgpack.encode((tenant, session)), stamp, ttl)
        self._list(pipe, "tenants", session, tenant.encode(), stamp, ttl)
        await pipe.execute()

    @bounded
    async def put_archive(self, archive: Archive) -> None:
        key, ttl = key_of(archive.id, "archive"), self.options.archive_ttl
        document = await pack_async(archive.document)
        about = msgspec.msgpack.encode(replace(archive, document=b""))
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(key, mapping={"about": about, "document": document})
        pipe.pexpire(key, milliseconds(ttl))
        for session in ("", archive.session):
            self._list(pipe, "archives", session, archive.id.encode(), archive.created, ttl)
        await pipe.execute()

    @bounded
    async def get_archive(self, archive_id: str) -> Archive | None:
        about, document = await self._redis.hmget(key_of(archive_id, "archive"), "about", "document")
        if about is None or document is None:
            return None
        return replace(msgspec.msgpack.decode(about, type=Archive), document=await unpack_async(document))

    @bounded
    async def put_compaction(self, compaction: Compaction) -> None:
        ttl = self.options.archive_ttl
        pipe = self._redis.pipeline(transaction=False)
        pipe.set(key_of(compaction.id, "compaction"), msgspec.msgpack.encode(compaction), px=milliseconds(ttl))
        for session in ("", compaction.session):
            self._list(pipe, "compactions", session, compaction.id.encode(), compaction.created, ttl)
        await pipe.execute()

    @bounded
    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        record = await self._redis.get(key_of(compaction_id, "compaction"))
        return msgspec.msgpack.decode(record, type=Compaction) if record else None

    @bounded
    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        members, after = await self._page("sessions", "", cursor, limit)
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hgetall(session_key(*msgspec.msgpack.decode(member, type=tuple[str, str])))
        found = [_session_of(fields) for fields in await pipe.execute()]
        return [session for session in found if session is not None], after

    @bounded
    async def get_session(self, session: str) -> Session | None:
        for tenant in await self._redis.zrevrange(key_of(session, "tenants"), 0, TRIES):
            found = _session_of(await self._redis.hgetall(session_key(tenant.decode(), session)))
            if found is not None:
                return found
        return None

    @bounded
    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        members, after = await self._page("compactions", session, cursor, limit)
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.get(key_of(member.decode(), "compaction"))
        return [msgspec.msgpack.decode(record, type=Compaction) for record in await pipe.execute() if record], after

    @bounded
    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        members, after = await self._page("archives", session, cursor, limit)
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hget(key_of(member.decode(), "archive"), "about")
        return [msgspec.msgpack.decode(about, type=Archive) for about in await pipe.execute() if about], after

    @bounded
    async def acquire(self, name: str, seconds: float) -> str | None:
        token = secrets.token_hex(16)
        taken = await self._redis.set(key_of(name, "lease"), token, nx=True, px=milliseconds(seconds))
        return token if taken else None

    @bounded
    async def release(self, name: str, token: str) -> None:
        await self._redis.eval(RELEASE, 1, key_of(name, "lease"), token)

    @bounded
    async def ping(self) -> None:
        await self._redis.ping()

    @bounded
    async def close(self) -> None:
        await self._redis.aclose()

    async def _record(self, tenant: str, key: bytes) -> Record | None:
        """A record with its value unpacked; None when it is gone although its index still had it."""
        cached = self._values.get((tenant, key))
        if cached is not None:
            return Record(value=cached)
        raw = await self._redis.get(record_key(tenant, key))
        if raw is None:
            return None
        record = Record.decode(raw)
        if record.value is not None:
            record.value = await unpack_async(record.value)
            self._remember(tenant, key, record.value)
        return record

    def _remember(self, tenant: str, key: bytes, value: bytes) -> None:
        self._values.put((tenant, key), value, size=len(value) + 200, ttl=self.options.checkpoint_ttl)

    async def _renew(self, tenant: str, anchor: bytes, line: Line) -> None:
        """Half of its life is over and it is still in use. A server that can't write just now can still be read."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.pexpire(record_key(tenant, line.key), milliseconds(self.options.checkpoint_ttl))
        self._file(pipe, tenant, anchor, line)
        with contextlib.suppress(RedisError):
            await pipe.execute()

    def _file(self, pipe: Any, tenant: str, anchor: bytes, line: Line) -> None:
        index, ttl = index_key(tenant, anchor), self.options.checkpoint_ttl
        pipe.zadd(index, {line.encode(): self.options.clock() + ttl})
        pipe.zremrangebyrank(index, 0, -PER_ANCHOR - 1)
        pipe.pexpire(index, milliseconds(ttl))

    def _list(self, pipe: Any, kind: str, of: str, member: bytes, stamp: float, ttl: float) -> None:
        """A line in a list for the console; lines past their life and past the bound leave."""
        key = key_of(of, kind)
        pipe.zadd(key, {member: stamp})
        pipe.zremrangebyscore(key, "-inf", self.options.clock() - ttl)
        pipe.zremrangebyrank(key, 0, -PER_LIST - 1)
        pipe.pexpire(key, milliseconds(ttl))

    async def _page(self, kind: str, of: str, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Members of one page, newest first, and the cursor of the next. Equal stamps are in the members' order, as in Redis."""
        size, read = page_size(limit), 0
        place = cursor_place(cursor, bytes) if cursor else (float("inf"), b"")
        if place is None:
            return [], ""
        lines: list[tuple[bytes, float]] = []
        while len(lines) <= size:
            some = await self._redis.zrevrangebyscore(
                key_of(of, kind), place[0], "-inf", start=read, num=size + 1, withscores=True
            )
            read += len(some)
            lines += [(member, stamp) for member, stamp in some if not cursor or (stamp, member) < place]
            if len(some) <= size:
                break
        after = cursor_after(lines[size - 1][1], lines[size - 1][0]) if len(lines) > size else ""
        return [member for member, _ in lines[:size]], after


def _session_of(fields: dict[bytes, bytes]) -> Session | None:
    # A session that was not yet wholly written has no name: the next lookup finds it.
    return session_of({name.decode(): value for name, value in fields.items()}) if b"id" in fields else None
