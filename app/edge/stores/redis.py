"""The store of several replicas: Redis or Valkey (6.2 and later), one server or many, one round trip on the hot path.

A checkpoint is two keys: its record, found by its own chain hash, and a line in the small index of its anchor. A lookup reads the
indexes of the conversation's anchors and the session in one pipeline; the record itself never changes, so a second
trip is needed only for one that this process has not seen yet. Every command touches one key. Every key has a time to live. Nothing is
scanned.

A record is written once, and the first writer wins: that is the fence behind a lease. Whoever has lost its lease without noticing can
still write no more than what nobody has written yet.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from redis.exceptions import RedisError

from app.edge.stores.base import PER_ANCHOR, StoreOptions, TooLarge, bounded, on_chain
from app.edge.stores.lru import Lru
from app.edge.stores.packing import Packing, about_archive, about_checkpoint, about_compaction, about_document
from app.edge.stores.redis_cluster import Cluster
from app.edge.stores.redis_keys import (
    QUARANTINED,
    Line,
    index_key,
    key_of,
    milliseconds,
    record_key,
    session_key,
    text,
)
from app.edge.stores.redis_lists import Lists
from app.edge.stores.redis_records import Records
from app.edge.stores.redis_servers import Call, Servers, Single, call
from app.edge.stores.redis_tls import Unusable
from app.edge.stores.sessions import KINDS, checked, closed, increments, replacements
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, anchors, home_of

CACHE_ITEMS, CACHE_BYTES, LISTED_BYTES, CACHE_SECONDS = 20_000, 8 << 20, 2 << 20, 60
"""Of checkpoints' records that are not asked for again, and of sessions that were listed lately. The last: after a server has lost its
data, another replica may have made another checkpoint for the same prefix."""
TRIES = 4
"""Records asked for in one lookup, deepest first, while they turn out to be gone."""
LARGEST_RECORD = 32 << 20
"""Bytes, packed: a larger archive would hold up everybody else's calls to this server."""
LIST_SECONDS = 60
"""How old a session's line in the lists may get while it goes on: these few keys are everybody's."""

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
REPLACE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end return 0"


class RedisStore:
    """Nothing connects before the first call, and a call never retries: the next request is the retry."""

    def __init__(self, servers: Servers, options: StoreOptions) -> None:
        self.options = options
        self._servers = servers
        self._lists = Lists(servers, options)
        self._packing = Packing(options.seal)
        self._records = Records(self._packing)
        self._values: Lru[tuple[str, bytes], bytes] = Lru(CACHE_ITEMS, CACHE_BYTES, options.clock)
        self._listed: Lru[tuple[str, str], bool] = Lru(CACHE_ITEMS, LISTED_BYTES, options.clock)

    @classmethod
    def from_url(cls, url: str, options: StoreOptions) -> RedisStore:
        """One of the schemes in `SERVERS`. Raises ValueError when the URL can't be read; its text repeats nothing of it, for it may hold a
        password."""
        try:
            servers = SERVERS[url.partition("://")[0]](url, options.timeout)
        except Unusable:
            raise
        except Exception:
            raise ValueError("it can't be read; a password with / ? or # in it must be percent-encoded") from None
        return cls(servers, options)

    @bounded
    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        now = self.options.clock()
        # The first anchors have homes of their own; all others share one, so that one command reads their indexes.
        indexes: dict[bytes, list[str]] = {}
        for at, anchor in enumerate(anchors(chain)):
            home = home_of(chain, 1 << at)
            indexes.setdefault(home, []).append(index_key(tenant, home, anchor))
        *lines, fields = await self._servers.run([
            *(call("zunion", *keys, withscores=True) for keys in indexes.values()),
            call("hgetall", session_key(tenant, session)),
        ])  # fmt: skip
        usable: dict[int, tuple[Line, float]] = {}
        quarantined: set[int] = set()
        for member, expires in itertools.chain(*lines):
            line = Line.decode(member)
            if expires > now and on_chain(chain, line.depth, line.key):
                if line.quarantined:
                    quarantined.add(line.depth)
                else:
                    usable[line.depth] = line, expires
        found = None
        for depth in sorted(usable.keys() - quarantined, reverse=True)[:TRIES]:
            line, expires = usable[depth]
            value, marked = await self._value(tenant, home_of(chain, depth), line.key)
            if marked:
                quarantined.add(depth)
            elif value is not None:
                found = StoredCheckpoint.of(chain, depth, value)
                if expires < now + self.options.checkpoint_ttl / 2:
                    await self._renew(tenant, found)
                break
        return Found(found, max(quarantined, default=0), self._records.session(fields))

    @bounded
    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        where, life = record_key(tenant, checkpoint.home, checkpoint.key), milliseconds(self.options.checkpoint_ttl)
        about = about_checkpoint(tenant, checkpoint.key)
        packed = await self._packing.pack_async(checkpoint.value, about)
        # The line also when another replica was first: had it died between its two writes, the record would never be found.
        first, *_ = await self._servers.run([
            call("set", where, packed, nx=True, px=life),
            *self._filed(tenant, checkpoint),
        ])  # fmt: skip
        if not first:
            [there] = await self._servers.run([call("get", where)])
            if there and self._packing.read(there, about) is None:  # of no use to anybody here
                [first] = await self._servers.run([call("eval", where, REPLACE, there, packed, life)])
        if first:
            self._remember(tenant, checkpoint.key, checkpoint.value)
        return bool(first)

    @bounded
    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        """The record loses its value (so that no `put_checkpoint` brings it back), and the index says so."""
        self._values.pop((tenant, checkpoint.key))
        marked = replace(checkpoint, quarantined=True)
        await self._servers.run([
            call("set", record_key(tenant, checkpoint.home, checkpoint.key), QUARANTINED, px=milliseconds(self.options.checkpoint_ttl)),
            *self._filed(tenant, marked),
        ])  # fmt: skip

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        await self._update_session(tenant, session, checked(change))

    @bounded
    async def _update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        now = self.options.clock()
        put = replacements(change, now)
        key, ttl = session_key(tenant, session), self.options.session_ttl
        written = closed(put, self._packing, tenant, session)
        calls = [
            call("hsetnx", key, "created", repr(now)),
            call("hset", key, mapping={"id": session, "tenant": tenant} | {name: text(value) for name, value in written.items()}),
            *(
                call("hincrby" if KINDS[name] is int else "hincrbyfloat", key, name, amount)
                for name, amount in increments(change).items()
            ),
            call("pexpire", key, milliseconds(ttl)),
        ]  # fmt: skip
        if "updated" in change.put or not self._listed.get((tenant, session)):
            stamp = float(put["updated"])
            calls += self._lists.line("sessions", "", msgspec.msgpack.encode((tenant, session)), stamp, ttl)
            calls += self._lists.line("tenants", session, tenant.encode(), stamp, ttl)
        await self._servers.run(calls)
        self._listed.put((tenant, session), True, size=400, ttl=min(LIST_SECONDS, ttl / 4))

    @bounded
    async def put_archive(self, archive: Archive) -> None:
        key, ttl = key_of(archive.id, "archive"), self.options.archive_ttl
        document = await self._packing.pack_async(archive.document, about_document(archive.id))
        if len(document) > LARGEST_RECORD:
            raise TooLarge("put_archive: the archive is too large for this store")
        about = self._packing.pack(msgspec.msgpack.encode(replace(archive, document=b"")), about_archive(archive.id))
        calls = [
            call("hset", key, mapping={"about": about, "document": document}),
            call("pexpire", key, milliseconds(ttl)),
        ]
        for session in ("", archive.session):
            calls += self._lists.line("archives", session, archive.id.encode(), archive.created, ttl)
        await self._servers.run(calls)

    @bounded
    async def get_archive(self, archive_id: str) -> Archive | None:
        [(about, packed)] = await self._servers.run([
            call("hmget", key_of(archive_id, "archive"), "about", "document"),
        ])  # fmt: skip
        head = self._records.head(archive_id, about)
        document = await self._packing.read_async(packed, about_document(archive_id)) if head and packed else None
        return replace(head, document=document) if head is not None and document is not None else None

    @bounded
    async def put_compaction(self, compaction: Compaction) -> None:
        ttl, record = self.options.archive_ttl, msgspec.msgpack.encode(compaction)
        packed = self._packing.pack(record, about_compaction(compaction.id))
        calls = [call("set", key_of(compaction.id, "compaction"), packed, px=milliseconds(ttl))]
        for session in ("", compaction.session):
            calls += self._lists.line("compactions", session, compaction.id.encode(), compaction.created, ttl)
        await self._servers.run(calls)

    @bounded
    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        [packed] = await self._servers.run([call("get", key_of(compaction_id, "compaction"))])
        return self._records.compaction(compaction_id, packed)

    @bounded
    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        members, after = await self._lists.page("sessions", "", cursor, limit)
        found = await self._each([
            call("hgetall", session_key(*msgspec.msgpack.decode(member, type=tuple[str, str]))) for member in members
        ])  # fmt: skip
        return [line for fields in found if (line := self._records.session(fields)) is not None], after

    @bounded
    async def get_session(self, session: str) -> Session | None:
        [tenants] = await self._servers.run([call("zrevrange", key_of(session, "tenants"), 0, TRIES)])
        for fields in await self._each([call("hgetall", session_key(tenant.decode(), session)) for tenant in tenants]):
            found = self._records.session(fields)
            if found is not None:
                return found
        return None

    @bounded
    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        members, after = await self._lists.page("compactions", session, cursor, limit)
        names = [member.decode() for member in members]
        packed = await self._each([call("get", key_of(name, "compaction")) for name in names])
        lines = map(self._records.compaction, names, packed)
        return [line for line in lines if line is not None], after

    @bounded
    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        members, after = await self._lists.page("archives", session, cursor, limit)
        names = [member.decode() for member in members]
        heads = await self._each([call("hget", key_of(name, "archive"), "about") for name in names])
        lines = map(self._records.head, names, heads)
        return [line for line in lines if line is not None], after

    @bounded
    async def acquire(self, name: str, seconds: float) -> str | None:
        token = secrets.token_hex(16)
        [taken] = await self._servers.run(
            [call("set", key_of(name, "lease"), token, nx=True, px=milliseconds(seconds))]
        )
        return token if taken else None

    @bounded
    async def renew(self, name: str, token: str, seconds: float) -> bool:
        [held] = await self._servers.run([call("eval", key_of(name, "lease"), RENEW, token, milliseconds(seconds))])
        return bool(held)

    @bounded
    async def release(self, name: str, token: str) -> None:
        await self._servers.run([call("eval", key_of(name, "lease"), RELEASE, token)])

    @bounded
    async def ping(self) -> None:
        await self._servers.ping()

    @bounded
    async def close(self) -> None:
        await self._servers.aclose()

    async def _value(self, tenant: str, home: bytes, key: bytes) -> tuple[bytes | None, bool]:
        """A checkpoint's value, None when there is none that can be read; whether it is quarantined."""
        cached = self._values.get((tenant, key))
        if cached is not None:
            return cached, False
        [packed] = await self._servers.run([call("get", record_key(tenant, home, key))])
        if not packed:
            return None, packed == QUARANTINED
        value = await self._packing.read_async(packed, about_checkpoint(tenant, key))
        if value is not None:
            self._remember(tenant, key, value)
        return value, False

    def _remember(self, tenant: str, key: bytes, value: bytes) -> None:
        life = min(CACHE_SECONDS, self.options.checkpoint_ttl)
        self._values.put((tenant, key), value, size=len(value) + 400, ttl=life)

    async def _renew(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        """Half of its life is over and it is still in use. A server that can't write just now can still be read."""
        where, life = record_key(tenant, checkpoint.home, checkpoint.key), milliseconds(self.options.checkpoint_ttl)
        with contextlib.suppress(RedisError):
            await self._servers.run([call("pexpire", where, life), *self._filed(tenant, checkpoint)])

    def _filed(self, tenant: str, checkpoint: StoredCheckpoint) -> list[Call]:
        index, ttl = index_key(tenant, checkpoint.home, checkpoint.anchor), self.options.checkpoint_ttl
        line = Line(checkpoint.depth, checkpoint.quarantined, checkpoint.key)
        return [
            call("zadd", index, {line.encode(): self.options.clock() + ttl}),
            call("zremrangebyrank", index, 0, -PER_ANCHOR - 1),
            call("pexpire", index, milliseconds(ttl)),
        ]

    async def _each(self, calls: list[Call]) -> list[Any]:
        return await self._servers.run(calls) if calls else []


SERVERS: dict[str, Callable[[str, float], Servers]] = {
    "redis": Single.of,
    "rediss": Single.of,
    "redis+sentinel": Single.behind_sentinels,
    "rediss+sentinel": Single.behind_sentinels,
    "redis+cluster": Cluster.of,
    "rediss+cluster": Cluster.of,
}
"""URL scheme -> how its servers are reached."""
