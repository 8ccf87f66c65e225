"""The file of the embedded store: opened privately, brought to the newest schema, kept small, replaced when it is damaged.

Everything here runs in the store's one thread and blocks. Several processes may have the same file open: SQLite's WAL lets
them read and write side by side, every write takes the write lock at once (`BEGIN IMMEDIATE`), and waiting for it is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from app.edge.stores.base import StoreOptions
from app.edge.stores.sqlite_schema import BULKY, EXPIRING, MIGRATIONS
from app.errors import StoreFailed

try:
    import fcntl
except ImportError:  # not on Windows, where one process per file is the rule
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT)
"""Failures that say nothing against the connection."""

SWEEP_WRITES, SWEEP_SECONDS, SWEEP_ROWS = 256, 60.0, 200
SPARE_PAGES = 256
PAGE_BYTES = 4096
WAL_BYTES = 32 << 20

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]


class SqliteFile:
    """Opens at the first job, and again after a failure that may be the connection's."""

    def __init__(self, path: Path, options: StoreOptions) -> None:
        self.path = path
        self._options = options
        self._db: sqlite3.Connection | None = None
        self._file_id: tuple[int, int] | None = None
        self._writes = 0
        self._sweep_at = time.monotonic() + SWEEP_SECONDS
        self.sweep_due = False

    def read(self, job: Job[T]) -> T:
        """The job's result. Raises StoreFailed, naming SQLite's error and no content."""
        try:
            return self._run(job)
        except sqlite3.Error as error:
            raise StoreFailed(f"sqlite: {_name(error)}") from None
        except OSError as error:
            raise StoreFailed(f"sqlite: {type(error).__name__}") from None

    def write(self, job: Job[T]) -> T:
        """As `read`, in one transaction: all of it is kept or none."""

        def transaction(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            try:
                result = job(db)
                self.sweep_due |= self._used(db) > self._limit
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        try:
            return self.read(transaction)
        finally:
            self._writes += 1
            self.sweep_due |= self._writes >= SWEEP_WRITES or time.monotonic() >= self._sweep_at

    def sweep(self) -> None:
        """A little tidying: a batch of expired rows, what is above the bound, a few pages back to the disk."""
        self._writes, self._sweep_at, self.sweep_due = 0, time.monotonic() + SWEEP_SECONDS, False
        if self._file_id != self._identity():
            self._close()  # somebody moved the file away; the next job makes or opens the one at its place
            return
        with contextlib.suppress(StoreFailed):
            self.sweep_due = self.write(self._delete_expired)
            self.sweep_due |= self.read(self._used) > self._limit and self.write(self._delete_bulk)
            self.sweep_due |= self.read(_give_back)

    def close(self) -> None:
        self._close()

    @property
    def _limit(self) -> int:
        """Bytes above which bulk gives way: below the hard bound, so that writing goes on meanwhile."""
        return self._options.max_bytes * 9 // 10

    def _run(self, job: Job[T]) -> T:
        replaced = False
        while True:
            try:
                return job(self._opened())
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code == sqlite3.SQLITE_FULL:
                    self.sweep_due = True
                if code not in PASSING:
                    self._close()
                if code not in DAMAGE or replaced:
                    raise
                self._set_aside(_name(error))
                replaced = True

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._make_private()
            self._file_id = self._identity()
            db = sqlite3.connect(
                self.path, timeout=self._options.timeout * 0.8, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _make_private(self) -> None:
        """Owner only: the file, SQLite's -wal and -shm (which take the file's mode), and a folder that is made for it."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            # Never open and close a file that may be in use: that drops this process's locks on it
            # (source: https://www.sqlite.org/howtocorrupt.html, 2.2).
            if self.path.stat().st_mode & 0o077:
                try:
                    self.path.chmod(0o600)
                except PermissionError:
                    log.warning("others may read the store's file %s: it belongs to another user", self.path)

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # both count only for a new file
        self._turn_to_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        page_bytes: int = db.execute("PRAGMA page_size").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {max(self._options.max_bytes // page_bytes, 1)}")
        db.execute("CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied REAL NOT NULL)")
        if _version(db) < len(MIGRATIONS):
            self._migrate(db)
        if _version(db) > len(MIGRATIONS):
            raise StoreFailed("sqlite: the file was written by a newer version of compactd")

    def _turn_to_wal(self, db: sqlite3.Connection) -> None:
        """Turning a new file to WAL needs it alone for a moment, and SQLite does not wait for that by itself."""
        give_up = time.monotonic() + self._options.timeout * 0.8
        while True:
            try:
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.005)
        if mode != "wal":
            log.warning("the store's file %s can't use WAL here (a network file system?): it will be slow", self.path)

    def _migrate(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            done = _version(db)  # another process may have been faster
            for version, steps in enumerate(MIGRATIONS[done:], start=done + 1):
                for step in steps:
                    db.execute(step)
                db.execute("INSERT INTO migrations VALUES (?, ?)", (version, self._options.clock()))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _set_aside(self, reason: str) -> None:
        """Move a damaged file out of the way, unless another process has done so."""
        damaged = self._file_id
        with self._alone():
            if self._identity() != damaged:
                return
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            target = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
            while target.exists():
                target = target.with_name(target.name + "x")
            for suffix in ("-wal", "-shm", ""):  # a new file must never meet the old one's WAL
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + suffix).rename(f"{target}{suffix}")
        log.error(
            "the store's file %s is damaged (%s): it was set aside as %s and a new one is begun. Checkpoints and archives "
            "in it are lost to running conversations, which will be compacted anew.",
            self.path, reason, target.name,
        )  # fmt: skip

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time decides about a damaged file."""
        if fcntl is None:
            yield
            return
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _delete_expired(self, db: sqlite3.Connection) -> bool:
        """Whether there may be more."""
        now, full = self._options.clock(), False
        for table in EXPIRING:
            done = db.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE expires <= ? LIMIT ?)",
                (now, SWEEP_ROWS),
            )
            full |= done.rowcount >= SWEEP_ROWS
        return full

    def _delete_bulk(self, db: sqlite3.Connection) -> bool:
        """Delete what would expire first, archives before checkpoints, until the bound holds or a batch is full."""
        for table in BULKY:
            for _ in range(SWEEP_ROWS):
                if self._used(db) <= self._limit:
                    return False
                if not db.execute(
                    f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} ORDER BY expires LIMIT 1)"
                ).rowcount:
                    break
        return True

    def _used(self, db: sqlite3.Connection) -> int:
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        used: int = (pages - free) * size
        return used

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _give_back(db: sqlite3.Connection) -> bool:
    """Return a batch of free pages to the disk; whether more than a batch is left."""
    db.execute(f"PRAGMA incremental_vacuum({SPARE_PAGES})").fetchall()
    left: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    return left > SPARE_PAGES


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0]
    return version


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", type(error).__name__)
