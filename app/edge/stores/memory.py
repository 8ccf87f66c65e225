"""The store of tests and benchmarks, and of `Guarded` while the real one is away: dictionaries with bounds.

Nothing here awaits, so every method is atomic. The clock comes with the options, so tests move time instead of waiting.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from app.edge.stores.base import PER_ANCHOR, StoreOptions, cursor_after, cursor_place, on_chain, page_size
from app.edge.stores.lru import Lru
from app.edge.stores.sessions import changed, checked
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, anchors

ITEMS = 100_000
CHECKPOINTS, ANCHORS, SESSIONS, ARCHIVES, COMPACTIONS, LEASES = 6 / 16, 1 / 16, 2 / 16, 5 / 16, 1 / 16, 1 / 16
"""Shares of all bytes."""
CHECKPOINT_BYTES, ANCHOR_BYTES, FILED_BYTES, LEASE_BYTES = 550, 450, 60, 400
SESSION_BYTES, MARK_BYTES = 1_000, 300
"""What a checkpoint takes in this process besides its record, an anchor, each checkpoint filed under it, a lease, a session, and each
figure of a provider's in it; all measured."""
T = TypeVar("T")


class MemoryStore:
    """At most `options.max_bytes` in all, and of anything at most `max_items`."""

    def __init__(self, options: StoreOptions | None = None, *, max_items: int = ITEMS) -> None:
        self.options = options or StoreOptions(max_bytes=256 << 20)
        most, clock = self.options.max_bytes, self.options.clock
        self._checkpoints: Lru[tuple[str, bytes], StoredCheckpoint] = Lru(max_items, int(most * CHECKPOINTS), clock)
        self._anchors: Lru[tuple[str, bytes], dict[bytes, None]] = Lru(max_items, int(most * ANCHORS), clock)
        self._sessions: Lru[tuple[str, str], Session] = Lru(max_items, int(most * SESSIONS), clock)
        self._archives: Lru[str, Archive] = Lru(max_items, int(most * ARCHIVES), clock)
        self._compactions: Lru[str, Compaction] = Lru(max_items, int(most * COMPACTIONS), clock)
        self._leases: Lru[str, str] = Lru(max_items, int(most * LEASES), clock)

    @classmethod
    def from_url(cls, url: str, options: StoreOptions) -> MemoryStore:
        """`memory://`. Raises ValueError for anything more."""
        if url != "memory://":
            raise ValueError("a memory store has neither address nor path; write memory://")
        return cls(options)

    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        best: StoredCheckpoint | None = None
        quarantined = 0
        for anchor in anchors(chain):
            for key in self._anchors.get((tenant, anchor)) or ():
                there = self._checkpoints.get((tenant, key))
                if there is None or not on_chain(chain, there.depth, key):
                    continue
                if there.quarantined:
                    quarantined = max(quarantined, there.depth)
                elif best is None or there.depth > best.depth:
                    best = there
        if best is not None:
            self._checkpoints.get((tenant, best.key), ttl=self.options.checkpoint_ttl)
            filed = self._anchors.get((tenant, best.anchor), ttl=self.options.checkpoint_ttl) or {}
            filed[best.key] = filed.pop(best.key, None)  # last in the line of those that leave
        return Found(best, quarantined, self._sessions.get((tenant, session)))

    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        new = self._checkpoints.get((tenant, checkpoint.key)) is None
        if new:
            self.replace_checkpoint(tenant, checkpoint)
        return new

    def replace_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        """Keep it, whatever was there (for `Guarded`, which learns from the real store)."""
        ttl = self.options.checkpoint_ttl
        size = CHECKPOINT_BYTES + len(checkpoint.value)
        self._checkpoints.put((tenant, checkpoint.key), checkpoint, size=size, ttl=ttl)
        filed = self._anchors.get((tenant, checkpoint.anchor)) or {}
        filed.pop(checkpoint.key, None)
        filed[checkpoint.key] = None
        while len(filed) > PER_ANCHOR:
            del filed[next(iter(filed))]
        size = ANCHOR_BYTES + FILED_BYTES * len(filed)
        self._anchors.put((tenant, checkpoint.anchor), filed, size=size, ttl=ttl)

    def forget_checkpoint(self, tenant: str, key: bytes) -> None:
        self._checkpoints.pop((tenant, key))

    def replace_session(self, session: Session) -> None:
        size = SESSION_BYTES + MARK_BYTES * len(session.usages)
        self._sessions.put((session.tenant, session.id), session, size=size, ttl=self.options.session_ttl)

    def is_quarantined(self, tenant: str, key: bytes) -> bool:
        there = self._checkpoints.get((tenant, key))
        return there is not None and there.quarantined

    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        self.replace_checkpoint(tenant, replace(checkpoint, value=b"", quarantined=True))

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        now = self.options.clock()
        there = self._sessions.get((tenant, session)) or Session(session, tenant, created=now)
        self.replace_session(changed(there, checked(change), now))

    async def put_archive(self, archive: Archive) -> None:
        self._archives.put(archive.id, archive, size=len(archive.document) + 500, ttl=self.options.archive_ttl)

    async def get_archive(self, archive_id: str) -> Archive | None:
        return self._archives.get(archive_id)

    async def put_compaction(self, compaction: Compaction) -> None:
        self._compactions.put(compaction.id, compaction, size=1_000, ttl=self.options.archive_ttl)

    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        return self._compactions.get(compaction_id)

    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        return _page(self._sessions.values(), lambda s: (s.updated, f"{s.tenant}\0{s.id}"), cursor, limit)

    async def get_session(self, session: str) -> Session | None:
        matches = (one for one in self._sessions.values() if one.id == session)
        return max(matches, key=lambda s: s.updated, default=None)

    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        matches = (one for one in self._compactions.values() if session in ("", one.session))
        return _page(matches, lambda c: (c.created, c.id), cursor, limit)

    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        matches = (one for one in self._archives.values() if session in ("", one.session))
        lines, after = _page(matches, lambda a: (a.created, a.id), cursor, limit)
        return [replace(line, document=b"") for line in lines], after

    async def acquire(self, name: str, seconds: float) -> str | None:
        if self._leases.get(name) is not None:
            return None
        token = secrets.token_hex(16)
        self._leases.put(name, token, size=LEASE_BYTES, ttl=seconds)
        return token

    async def renew(self, name: str, token: str, seconds: float) -> bool:
        held = self._leases.get(name) == token
        if held:
            self._leases.put(name, token, size=LEASE_BYTES, ttl=seconds)
        return held

    async def release(self, name: str, token: str) -> None:
        if self._leases.get(name) == token:
            self._leases.pop(name)

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None


def _page(lines: Iterable[T], place: Callable[[T], tuple[float, str]], cursor: str, limit: int) -> tuple[list[T], str]:
    ordered = sorted(lines, key=place, reverse=True)
    if cursor:
        start = cursor_place(cursor, str)
        ordered = [line for line in ordered if place(line) < start] if start else []
    size = page_size(limit)
    page = ordered[:size]
    return page, cursor_after(*place(page[-1])) if len(ordered) > size else ""
