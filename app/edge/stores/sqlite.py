"""The embedded store: one SQLite file, spoken to by one thread.

Each method of the port is one hop into that thread and at most two statements on the hot path. SQL stands next to the method
that needs it; the file itself (opening, schema, damage, size) is `sqlite_file`'s matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from app.edge.stores.base import PER_ANCHOR, StoreOptions, bounded, cursor_after, cursor_place, on_chain, page_size
from app.edge.stores.packing import pack_async, unpack, unpack_async
from app.edge.stores.sessions import checked, increments, replacements, session_of
from app.edge.stores.sqlite_file import SqliteFile
from app.edge.stores.worker import Worker
from app.errors import StoreFailed
from app.ports import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, anchors

SESSION_FIELDS = tuple(field.name for field in fields(Session))
SESSION_COLUMNS = ", ".join(f"s.{name}" for name in SESSION_FIELDS)
ARCHIVE_COLUMNS = "id, capability, tenant, session, created, previous"

T = TypeVar("T")


class SqliteStore:
    """Safe with several processes on one file of one machine. The file is opened (and made) by the first call."""

    def __init__(self, path: Path, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self._file = SqliteFile(path, self.options)
        self._worker = Worker("compactd-sqlite")

    @classmethod
    def from_url(cls, url: str, options: StoreOptions) -> SqliteStore:
        """`sqlite:///relative.db` (to the working directory) or `sqlite:////absolute.db`. ValueError for anything else."""
        rest = url.removeprefix("sqlite://")
        path = unquote(rest.removeprefix("/"))
        if not rest.startswith("/") or not path or path.endswith("/"):
            raise ValueError("write sqlite:///relative.db (three slashes) or sqlite:////absolute.db (four)")
        if "?" in rest or path == ":memory:":
            raise ValueError("it takes a path and nothing else; a store without a file is memory://")
        return cls(Path(path), options)

    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        found, renewable = await self._lookup(tenant, chain, session)
        if renewable is not None:
            # Renewing is for later: no request waits for a write, and a store that can't write can still read.
            with contextlib.suppress(StoreFailed):
                self._worker.submit(partial(self._file.write, partial(_renew, renewable, self._checkpoint_expiry())))
        return found

    @bounded
    async def _lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> tuple[Found, int | None]:
        now, soon = self.options.clock(), self.options.clock() + self.options.checkpoint_ttl / 2

        def look(db: sqlite3.Connection) -> tuple[Found, int | None]:
            best: tuple[int, bytes, int, bytes, float] | None = None  # depth, key, row id, anchor, expires
            quarantined = 0
            under = anchors(chain)
            for row, depth, key, anchor, is_quarantined, expires in db.execute(
                "SELECT id, depth, key, anchor, quarantined, expires FROM checkpoints "
                f"WHERE anchor IN ({', '.join('?' * len(under))}) AND tenant = ? AND expires > ?",
                (*under, tenant, now),
            ):
                if not on_chain(chain, depth, key):
                    continue
                if is_quarantined:
                    quarantined = max(quarantined, depth)
                elif best is None or depth > best[0]:
                    best = depth, key, row, anchor, expires
            # The key is asked for again, lest another process has just deleted the row and reused its number.
            value, *state = db.execute(
                f"SELECT c.value, {SESSION_COLUMNS} FROM (SELECT 1) "
                "LEFT JOIN checkpoints c ON c.id = ? AND c.key = ? AND c.tenant = ? "
                "LEFT JOIN sessions s ON s.id = ? AND s.tenant = ? AND s.expires > ?",
                (*((best[2], best[1], tenant) if best else (None, None, None)), session, tenant, now),
            ).fetchone()
            checkpoint = None
            if best is not None and value is not None:
                checkpoint = StoredCheckpoint(best[1], best[3], best[0], unpack(value))
            renewable = best[2] if best is not None and best[4] < soon else None
            return Found(checkpoint, quarantined, _session(state)), renewable

        return await self._worker.run(partial(self._file.read, look))

    @bounded
    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        expires, value = self._checkpoint_expiry(), await pack_async(checkpoint.value)
        key, anchor, depth = checkpoint.key, checkpoint.anchor, checkpoint.depth

        def put(db: sqlite3.Connection) -> bool:
            db.execute(
                "DELETE FROM checkpoints WHERE key = ? AND tenant = ? AND expires <= ?",
                (key, tenant, self.options.clock()),
            )
            kept = db.execute(
                "INSERT INTO checkpoints (tenant, key, anchor, depth, expires, value) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (tenant, key, anchor, depth, expires, value),
            ).rowcount
            if kept:
                db.execute(
                    "DELETE FROM checkpoints WHERE id IN (SELECT id FROM checkpoints WHERE anchor = ? AND tenant = ? "
                    "ORDER BY expires DESC, id DESC LIMIT -1 OFFSET ?)",
                    (anchor, tenant, PER_ANCHOR),
                )
            else:  # what was quarantined before it was known stays so, and gets its place
                db.execute(
                    "UPDATE checkpoints SET anchor = ?, depth = ? WHERE key = ? AND tenant = ? AND depth = 0",
                    (anchor, depth, key, tenant),
                )
            return bool(kept)

        return await self._write(put)

    @bounded
    async def quarantine(self, tenant: str, key: bytes) -> None:
        await self._write(lambda db: db.execute(
            "INSERT INTO checkpoints (tenant, key, anchor, depth, quarantined, expires, value) VALUES (?, ?, '', 0, 1, ?, '') "
            "ON CONFLICT (key, tenant) DO UPDATE SET quarantined = 1, value = '', expires = excluded.expires",
            (tenant, key, self._checkpoint_expiry()),
        ))  # fmt: skip

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        await self._update_session(tenant, session, checked(change))

    @bounded
    async def _update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        now = self.options.clock()
        put, add = replacements(change, now), increments(change)
        values = {"created": now} | put | add | {"expires": now + self.options.session_ttl}
        sets = [f"{name} = excluded.{name}" for name in (*put, "expires")]
        sets += [f"{name} = {name} + excluded.{name}" for name in add]

        def update(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM sessions WHERE id = ? AND tenant = ? AND expires <= ?", (session, tenant, now))
            db.execute(
                f"INSERT INTO sessions (id, tenant, {', '.join(values)}) VALUES (?, ?{', ?' * len(values)}) "
                f"ON CONFLICT (id, tenant) DO UPDATE SET {', '.join(sets)}",
                (session, tenant, *values.values()),
            )

        await self._write(update)

    @bounded
    async def put_archive(self, archive: Archive) -> None:
        expires, document = self.options.clock() + self.options.archive_ttl, await pack_async(archive.document)
        await self._write(lambda db: db.execute(
            f"INSERT OR REPLACE INTO archives ({ARCHIVE_COLUMNS}, expires, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (archive.id, archive.capability, archive.tenant, archive.session, archive.created, archive.previous,
             expires, document),
        ))  # fmt: skip

    @bounded
    async def get_archive(self, archive_id: str) -> Archive | None:
        row = await self._one(
            f"SELECT {ARCHIVE_COLUMNS}, document FROM archives WHERE id = ? AND expires > ?", archive_id
        )
        return replace(Archive(*row), document=await unpack_async(row[-1])) if row else None

    @bounded
    async def put_compaction(self, compaction: Compaction) -> None:
        expires = self.options.clock() + self.options.archive_ttl
        await self._write(lambda db: db.execute(
            "INSERT OR REPLACE INTO compactions (id, session, created, expires, record) VALUES (?, ?, ?, ?, ?)",
            (compaction.id, compaction.session, compaction.created, expires, msgspec.json.encode(compaction)),
        ))  # fmt: skip

    @bounded
    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        row = await self._one("SELECT record FROM compactions WHERE id = ? AND expires > ?", compaction_id)
        return msgspec.json.decode(row[0], type=Compaction) if row else None

    @bounded
    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        rows, after = await self._page(f"{SESSION_COLUMNS} FROM sessions s", "updated", "", cursor, limit)
        return [session_of(dict(zip(SESSION_FIELDS, row, strict=True))) for row in rows], after

    @bounded
    async def get_session(self, session: str) -> Session | None:
        newest = f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE id = ? AND expires > ? ORDER BY updated DESC LIMIT 1"
        return _session(await self._one(newest, session))

    @bounded
    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        rows, after = await self._page("record FROM compactions", "created", session, cursor, limit)
        return [msgspec.json.decode(row[0], type=Compaction) for row in rows], after

    @bounded
    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        rows, after = await self._page(f"{ARCHIVE_COLUMNS}, x'' FROM archives", "created", session, cursor, limit)
        return [Archive(*row) for row in rows], after

    @bounded
    async def acquire(self, name: str, seconds: float) -> str | None:
        now, token = self.options.clock(), secrets.token_hex(16)
        taken = await self._write(lambda db: db.execute(
            "INSERT INTO leases (name, token, expires) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET token = excluded.token, expires = excluded.expires WHERE leases.expires <= ?",
            (name, token, now + seconds, now),
        ).rowcount)  # fmt: skip
        return token if taken else None

    @bounded
    async def release(self, name: str, token: str) -> None:
        await self._write(lambda db: db.execute("DELETE FROM leases WHERE name = ? AND token = ?", (name, token)))

    @bounded
    async def ping(self) -> None:
        """Opens the file if need be, and reads from it."""
        await self._worker.run(partial(self._file.read, lambda db: db.execute("SELECT 1 FROM migrations").fetchone()))

    async def close(self) -> None:
        """What was accepted is written first, unless that takes longer than a call may."""
        with contextlib.suppress(StoreFailed, TimeoutError):
            async with asyncio.timeout(max(self.options.timeout, 1.0)):
                await self._worker.run(self._file.close)
        self._worker.close()

    def _checkpoint_expiry(self) -> float:
        return self.options.clock() + self.options.checkpoint_ttl

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._worker.run(partial(self._file.write, job))
        finally:
            if self._file.sweep_due:
                self._file.sweep_due = False
                with contextlib.suppress(StoreFailed):
                    self._worker.submit(self._file.sweep)

    async def _one(self, query: str, key: str) -> tuple[Any, ...] | None:
        """The first row of a query by key (a text) that is alive now."""
        values = key, self.options.clock()
        row: tuple[Any, ...] | None = await self._worker.run(
            partial(self._file.read, lambda db: db.execute(query, values).fetchone())
        )
        return row

    async def _page(
        self, what: str, stamp: str, session: str, cursor: str, limit: int
    ) -> tuple[list[tuple[Any, ...]], str]:
        """Rows of one page, newest first, and the cursor of the next."""
        size, now = page_size(limit), self.options.clock()
        place = cursor_place(cursor, int) if cursor else (float("inf"), 0)
        if place is None:
            return [], ""
        query = f"SELECT rowid, {stamp}, {what} WHERE expires > ? AND ({stamp}, rowid) < (?, ?)"
        parameters: tuple[str | float, ...] = (now, *place)
        if session:
            query, parameters = f"{query} AND session = ?", (*parameters, session)
        query += f" ORDER BY {stamp} DESC, rowid DESC LIMIT {size + 1}"
        rows = await self._worker.run(partial(self._file.read, lambda db: db.execute(query, parameters).fetchall()))
        after = cursor_after(rows[size - 1][1], rows[size - 1][0]) if len(rows) > size else ""
        return [row[2:] for row in rows[:size]], after


def _session(row: Sequence[Any] | None) -> Session | None:
    """A session from its columns; the columns of a join that found none are all NULL."""
    return session_of(dict(zip(SESSION_FIELDS, row, strict=True))) if row and row[0] is not None else None


def _renew(row: int, expires: float, db: sqlite3.Connection) -> None:
    db.execute("UPDATE checkpoints SET expires = ? WHERE id = ? AND NOT quarantined", (expires, row))
