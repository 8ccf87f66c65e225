"""The embedded store: one SQLite file, spoken to by one thread.

Each method of the port is one hop into that thread and three short statements on the hot path. SQL stands next to the method
that needs it; the file itself (opening, schema, damage, size) is `sqlite_file`'s matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from app.edge.stores.base import PER_ANCHOR, StoreOptions, bounded, cursor_after, cursor_place, on_chain, page_size
from app.edge.stores.packing import (
    Packing,
    about_archive,
    about_checkpoint,
    about_compaction,
    about_document,
)
from app.edge.stores.sessions import checked, closed, increments, replacements
from app.edge.stores.sqlite_file import SqliteFile
from app.edge.stores.sqlite_rows import ARCHIVE_COLUMNS, SESSION_COLUMNS, Rows
from app.edge.stores.worker import Worker
from app.errors import StoreFailed
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint, anchors

T = TypeVar("T")


class SqliteStore:
    """Safe with several processes on one file of one machine. The file is opened (and made) by the first call."""

    def __init__(self, path: Path, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self._file = SqliteFile(path, self.options)
        self._worker = Worker("compactd-sqlite")
        self._packing = Packing(self.options.seal)
        self._rows = Rows(self._packing)

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
            usable: list[tuple[int, bytes, int, float]] = []  # depth, key, row id, expires
            quarantined = 0
            under = anchors(chain)
            for row, depth, key, is_quarantined, expires in db.execute(
                "SELECT id, depth, key, quarantined, expires FROM checkpoints "
                f"WHERE anchor IN ({', '.join('?' * len(under))}) AND tenant = ? AND expires > ?",
                (*under, tenant, now),
            ):
                if on_chain(chain, depth, key):
                    if is_quarantined:
                        quarantined = max(quarantined, depth)
                    else:
                        usable.append((depth, key, row, expires))
            checkpoint, renewable = None, None
            for depth, key, row, expires in sorted(usable, reverse=True):
                # The key is asked for again, lest another process has just deleted the row and reused its number.
                there = db.execute(
                    "SELECT value FROM checkpoints WHERE id = ? AND key = ? AND tenant = ?", (row, key, tenant)
                ).fetchone()
                value = self._packing.read(there[0], about_checkpoint(tenant, key)) if there else None
                if value is not None:
                    checkpoint = StoredCheckpoint.of(chain, depth, value)
                    renewable = row if expires < soon else None
                    break
            state = db.execute(
                f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.id = ? AND s.tenant = ? AND s.expires > ?",
                (session, tenant, now),
            ).fetchone()
            return Found(checkpoint, quarantined, self._rows.session(state)), renewable

        return await self._worker.run(partial(self._file.read, look))

    @bounded
    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        key, about = checkpoint.key, about_checkpoint(tenant, checkpoint.key)
        expires, value = self._checkpoint_expiry(), await self._packing.pack_async(checkpoint.value, about)

        def put(db: sqlite3.Connection) -> bool:
            there = db.execute(
                "SELECT id, expires, quarantined, value FROM checkpoints WHERE key = ? AND tenant = ?", (key, tenant)
            ).fetchone()
            if there:
                row, end, is_quarantined, packed = there
                if end > self.options.clock() and (is_quarantined or self._packing.read(packed, about) is not None):
                    return False
                db.execute(
                    "DELETE FROM checkpoints WHERE id = ?", (row,)
                )  # past its life, or of no use to anybody here
            db.execute(
                "INSERT INTO checkpoints (tenant, key, anchor, depth, expires, value) VALUES (?, ?, ?, ?, ?, ?)",
                (tenant, key, checkpoint.anchor, checkpoint.depth, expires, value),
            )
            db.execute(
                "DELETE FROM checkpoints WHERE id IN (SELECT id FROM checkpoints WHERE anchor = ? AND tenant = ? "
                "ORDER BY expires DESC, id DESC LIMIT -1 OFFSET ?)",
                (checkpoint.anchor, tenant, PER_ANCHOR),
            )
            return True

        return await self._write(put)

    @bounded
    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        await self._write(lambda db: db.execute(
            "INSERT INTO checkpoints (tenant, key, anchor, depth, quarantined, expires, value) VALUES (?, ?, ?, ?, 1, ?, '') "
            "ON CONFLICT (key, tenant) DO UPDATE SET quarantined = 1, value = '', expires = excluded.expires",
            (tenant, checkpoint.key, checkpoint.anchor, checkpoint.depth, self._checkpoint_expiry()),
        ))  # fmt: skip

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        await self._update_session(tenant, session, checked(change))

    @bounded
    async def _update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        now = self.options.clock()
        put, add = closed(replacements(change, now), self._packing, tenant, session), increments(change)
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
        expires = self.options.clock() + self.options.archive_ttl
        document = await self._packing.pack_async(archive.document, about_document(archive.id))
        capability: str | bytes = archive.capability
        if self._packing.seals:
            capability = self._packing.pack(archive.capability.encode(), about_archive(archive.id))
        await self._write(lambda db: db.execute(
            f"INSERT OR REPLACE INTO archives ({ARCHIVE_COLUMNS}, expires, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (archive.id, capability, archive.tenant, archive.session, archive.created, archive.previous, expires, document),
        ))  # fmt: skip

    @bounded
    async def get_archive(self, archive_id: str) -> Archive | None:
        row = await self._one(
            f"SELECT {ARCHIVE_COLUMNS}, document FROM archives WHERE id = ? AND expires > ?", archive_id
        )
        head = self._rows.head(row[:-1]) if row else None
        document = await self._packing.read_async(row[-1], about_document(archive_id)) if row and head else None
        return replace(head, document=document) if head is not None and document is not None else None

    @bounded
    async def put_compaction(self, compaction: Compaction) -> None:
        expires = self.options.clock() + self.options.archive_ttl
        record: bytes = msgspec.json.encode(compaction)
        if self._packing.seals:
            record = self._packing.pack(record, about_compaction(compaction.id))
        await self._write(lambda db: db.execute(
            "INSERT OR REPLACE INTO compactions (id, session, created, expires, record) VALUES (?, ?, ?, ?, ?)",
            (compaction.id, compaction.session, compaction.created, expires, record),
        ))  # fmt: skip

    @bounded
    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        row = await self._one("SELECT id, record FROM compactions WHERE id = ? AND expires > ?", compaction_id)
        return self._rows.compaction(row) if row else None

    @bounded
    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        rows, after = await self._page(f"{SESSION_COLUMNS} FROM sessions s", "updated", "", cursor, limit)
        return [line for row in rows if (line := self._rows.session(row)) is not None], after

    @bounded
    async def get_session(self, session: str) -> Session | None:
        newest = f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE id = ? AND expires > ? ORDER BY updated DESC LIMIT 1"
        return self._rows.session(await self._one(newest, session))

    @bounded
    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        rows, after = await self._page("id, record FROM compactions", "created", session, cursor, limit)
        return [line for row in rows if (line := self._rows.compaction(row)) is not None], after

    @bounded
    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        rows, after = await self._page(f"{ARCHIVE_COLUMNS} FROM archives", "created", session, cursor, limit)
        return [line for row in rows if (line := self._rows.head(row)) is not None], after

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
    async def renew(self, name: str, token: str, seconds: float) -> bool:
        now = self.options.clock()
        return bool(await self._write(lambda db: db.execute(
            "UPDATE leases SET expires = ? WHERE name = ? AND token = ? AND expires > ?", (now + seconds, name, token, now)
        ).rowcount))  # fmt: skip

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


def _renew(row: int, expires: float, db: sqlite3.Connection) -> None:
    db.execute("UPDATE checkpoints SET expires = ? WHERE id = ? AND NOT quarantined", (expires, row))
