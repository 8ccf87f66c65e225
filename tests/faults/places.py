"""The stores of the matrix and what can go wrong with each: a fault is turned on, and off again, on the real thing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from app.edge.stores import StoreOptions, open_store
from app.ports import Store
from tests.redis_server import ClusterOfThree, RedisServer, Replicated

TIMEOUT = 0.1
"""Seconds; `store.timeout`."""
GARBAGE = b"\x07 nothing that anybody here wrote"


@dataclass
class Place:
    """Where stores keep their data. `opened` are the store objects on it, one per replica."""

    url: str
    empty: Callable[[], None]
    opened: list[Any] = field(default_factory=list)

    def open(self) -> Store:
        store = open_store(self.url, StoreOptions(timeout=TIMEOUT))
        self.opened.append(store)
        return store

    async def close(self) -> None:
        for store in self.opened:
            await store.close()
        self.opened.clear()


@dataclass(frozen=True)
class Fault:
    """`on` and `off` are told the place. `forgets`: what was stored may be gone afterwards. `answers`: the store goes on answering, so that
    nobody has to call it away."""

    name: str
    on: Callable[[Any], Any]
    off: Callable[[Any], Any]
    forgets: bool = False
    answers: bool = False


async def done(told: Any) -> None:
    if isinstance(told, Awaitable):
        await told


def nothing(place: Any) -> None: ...


# SQLite


@dataclass
class File(Place):
    path: Path = Path()
    other: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    async def pragma(self, text: str) -> None:
        """On the connections of the stores themselves, those that they open later included."""
        for store in self.opened:
            file, prepare = store._file, type(store._file)._prepare

            def prepared(db: sqlite3.Connection, file: Any = file, prepare: Any = prepare) -> None:
                prepare(file, db)
                db.execute(text).fetchall()

            file._prepare = prepared
            with suppress(Exception):
                await store._worker.run(partial(file.read, lambda db: db.execute(text).fetchall()))


def file_at(folder: Path) -> File:
    def empty() -> None:
        for one in folder.glob("*"):
            one.unlink()

    folder.mkdir(parents=True, exist_ok=True)
    return File(f"sqlite:///{folder}/store.db", empty, path=folder / "store.db")


def lock(place: File) -> None:
    place.other = place.connect()
    place.other.execute("BEGIN IMMEDIATE")


def unlock(place: File) -> None:
    assert place.other is not None
    place.other.rollback()
    place.other.close()


def hang(place: File) -> None:
    for store in place.opened:
        store._worker.submit(partial(time.sleep, TIMEOUT * 12))


def damage(place: File) -> None:
    """The pages of the tables are overwritten, also those that are still in the log."""
    with suppress(sqlite3.Error):
        db = place.connect()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.close()
    whole = place.path.read_bytes()
    with place.path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(max(0, len(whole) - 4096)))


def spoil_rows(place: File) -> None:
    with suppress(sqlite3.Error):
        db = place.connect()
        db.execute("PRAGMA busy_timeout = 2000")
        db.execute("UPDATE checkpoints SET value = ?", (GARBAGE,))
        db.execute("UPDATE archives SET document = ?", (GARBAGE,))
        db.execute("UPDATE sessions SET usages = ?", (GARBAGE,))
        db.close()


async def fill(place: File) -> None:
    """No page more, and none to spare: what is small may still find room in a page that is there."""
    await place.pragma("PRAGMA max_page_count = 1")
    junk = "INSERT INTO leases VALUES (hex(randomblob(1500)), '', 9e9)"
    for store in place.opened:
        with suppress(Exception):
            while True:
                await store._worker.run(partial(store._file.write, lambda db: db.execute(junk)))


SQLITE = [
    Fault("locked by another process", lock, unlock),
    Fault("hanging disk", hang, nothing),
    Fault("full disk", fill, lambda p: p.pragma("PRAGMA max_page_count = 500000"), answers=True),
    Fault("read-only", lambda p: p.pragma("PRAGMA query_only = 1"), lambda p: p.pragma("PRAGMA query_only = 0")),
    Fault("damaged file", damage, nothing, forgets=True, answers=True),
    Fault(
        "file removed", lambda p: [one.unlink() for one in p.path.parent.glob("*")], nothing, forgets=True, answers=True
    ),
    Fault("records of somebody else", spoil_rows, nothing, forgets=True, answers=True),
]


# Redis


@dataclass
class Servers(Place):
    servers: Any = None


class Group(Servers):
    """A primary, its replica and a sentinel; new ones after a failover."""

    def __init__(self, make: Callable[[], Replicated]) -> None:
        super().__init__("", self._empty)
        self._make = make
        self.spent = True

    def _empty(self) -> None:
        if self.spent:
            self.stop()
            self.servers, self.spent = self._make(), False
            self.url = self.servers.url
        self.servers.flush()

    def stop(self) -> None:
        if self.servers is not None:
            self.servers.stop()

    def lose_primary(self) -> None:
        self.spent = True
        self.servers.primary.stop()


def served(servers: RedisServer | Replicated | ClusterOfThree) -> Servers:
    return Servers(servers.url, servers.flush, servers=servers)


def spoil_keys(place: Servers) -> None:
    """Values of another program under our names, some of another type."""
    client = place.servers.client
    for number, key in enumerate(sorted(client.scan_iter())):
        kind = client.type(key)
        if kind == b"string":
            client.set(key, GARBAGE, keepttl=True)
        elif kind == b"hash" and number % 2:
            client.hset(key, mapping=dict.fromkeys(client.hkeys(key), GARBAGE))
        else:
            client.delete(key)
            client.set(key, GARBAGE, px=400)


def restart(place: Servers) -> None:
    place.servers.stop()
    place.servers.start()


REDIS = [
    Fault("refusing connections", lambda p: p.servers.stop(), lambda p: p.servers.start()),
    Fault("hanging", lambda p: p.servers.freeze(), lambda p: p.servers.thaw()),
    Fault("restarted", restart, nothing, answers=True),
    Fault(
        "full (OOM)",
        lambda p: p.servers.client.config_set("maxmemory", 1),
        lambda p: p.servers.client.config_set("maxmemory", 0),
    ),
    Fault(
        "read-only",
        lambda p: p.servers.client.replicaof("127.0.0.1", 1),
        lambda p: p.servers.client.replicaof("NO", "ONE"),
    ),
    Fault("emptied", lambda p: p.servers.flush(), nothing, forgets=True, answers=True),
    Fault("records of somebody else", spoil_keys, lambda _: asyncio.sleep(0.4), forgets=True, answers=True),
    Fault("connections cut", lambda p: p.servers.client.client_kill_filter(_type="normal"), nothing, answers=True),
]
SENTINEL = [
    Fault("failover", lambda p: p.lose_primary(), lambda p: p.servers.taken_over(), forgets=True),
    Fault("primary and replica hanging", lambda p: [s.freeze() for s in (p.servers.primary, p.servers.replica)],
          lambda p: [s.thaw() for s in (p.servers.primary, p.servers.replica)]),
]  # fmt: skip
CLUSTER = [
    Fault(
        "one server hanging", lambda p: p.servers.nodes[1].freeze(), lambda p: p.servers.nodes[1].thaw(), answers=True
    ),
    Fault(
        "all servers hanging",
        lambda p: [n.freeze() for n in p.servers.nodes],
        lambda p: [n.thaw() for n in p.servers.nodes],
    ),
]
