"""What is the embedded store's own: statements, the thread, damage, locks, size. The rest is in the contract."""

# ruff: noqa: ASYNC240 (a test may wait for its disk)

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.edge.stores import SqliteStore, StoreOptions, open_store
from app.edge.stores.sqlite_file import SqliteFile
from app.errors import StoreFailed
from app.records import Archive, Found, SessionChange
from tests.contract.test_stores import checkpoint, links


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, StoreOptions(timeout=5.0))
    yield store
    await store.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def archive(number: int, size: int) -> Archive:
    return Archive(f"a{number}", "c", "t", "s", time.time(), "", os.urandom(size))


class TestFile:
    async def test_the_file_and_all_beside_it_are_the_owners_alone(self, store: SqliteStore, path: Path) -> None:
        before = os.umask(0)
        try:
            await store.update_session("t", "s", SessionChange(add={"requests": 1}))
        finally:
            os.umask(before)
        assert {entry.name: mode(entry) for entry in path.parent.iterdir()} == {
            "store.db": 0o600,
            "store.db-wal": 0o600,
            "store.db-shm": 0o600,
        }
        assert mode(path.parent) == 0o700

    async def test_a_file_that_others_could_read_is_closed_to_them(self, path: Path) -> None:
        path.parent.mkdir()
        path.touch(mode=0o644)
        path.chmod(0o644)
        store = SqliteStore(path, StoreOptions(timeout=5.0))
        await store.ping()
        assert mode(path) == 0o600
        await store.close()

    async def test_three_slashes_are_relative_to_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for url, where in (
            ("sqlite:///here/a.db", "here/a.db"),
            (f"sqlite:///{tmp_path}/b%20c.db", "b c.db"),
        ):
            store = open_store(url, StoreOptions(timeout=5.0))
            await store.ping()
            await store.close()
            assert (tmp_path / where).is_file()

    async def test_where_no_file_can_be_is_a_failure_that_may_pass(self, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        store = SqliteStore(tmp_path / "data" / "store.db", StoreOptions(timeout=5.0))
        with pytest.raises(StoreFailed, match=r"^sqlite: \w+$"):
            await store.ping()
        (tmp_path / "data").unlink()
        await store.ping()
        await store.close()

    async def test_a_newer_versions_file_is_left_alone(self, store: SqliteStore, path: Path) -> None:
        await store.ping()
        await store.close()
        with sqlite3.connect(path) as db:
            db.execute("INSERT INTO migrations VALUES (99, 0)")
        db.close()
        newer = SqliteStore(path, StoreOptions(timeout=5.0))
        with pytest.raises(StoreFailed, match="newer version"):
            await newer.ping()
        await newer.close()
        assert [entry.name for entry in path.parent.glob("*corrupt*")] == []

    async def test_a_file_that_was_moved_away_is_noticed(self, path: Path) -> None:
        store = SqliteStore(path, StoreOptions(timeout=5.0))
        await store.ping()
        path.rename(path.with_name("backup.db"))
        for _ in range(300):
            await store.update_session("t", "s", SessionChange(add={"requests": 1}))
        await store.ping()
        session = await store.get_session("s")
        assert session is not None
        assert session.requests < 300
        assert path.exists()
        await store.close()


class TestDamage:
    async def test_a_file_that_is_no_database_is_set_aside_loudly(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path.parent.mkdir()
        path.write_bytes(b"this is not a database, whatever its name says. " * 100)
        chain = links(3)
        stores = [SqliteStore(path, StoreOptions(timeout=5.0)) for _ in range(3)]
        with caplog.at_level(logging.ERROR):
            await asyncio.gather(*(store.put_checkpoint("t", checkpoint(chain, 2)) for store in stores))
        for store in stores:
            assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
            await store.close()
        [aside] = path.parent.glob("store.db.corrupt-*")
        assert aside.read_bytes().startswith(b"this is not a database")
        assert mode(aside) == 0o600
        [record] = caplog.records
        assert "damaged (SQLITE_NOTADB)" in record.getMessage()
        assert aside.name in record.getMessage()

    def test_two_processes_that_find_the_same_damage_set_one_file_aside(self, path: Path) -> None:
        files = [SqliteFile(path, StoreOptions(timeout=5.0)) for _ in range(2)]
        for file in files:
            file.read(lambda db: db.execute("SELECT 1 FROM migrations").fetchone())
        for file in files:
            file.close()
            file._set_aside("SQLITE_CORRUPT")
            file.write(lambda db: db.execute("INSERT INTO leases VALUES (hex(randomblob(8)), '', 0)").close())
        assert (
            len([entry for entry in path.parent.glob("store.db.corrupt-*") if entry.name[-4:] not in ("-wal", "-shm")])
            == 1
        )
        for file in files:
            assert file.read(lambda db: db.execute("SELECT count(*) FROM leases").fetchone()) == (2,)
            file.close()

    async def test_damage_that_shows_later_is_survived_by_the_call_that_meets_it(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain, store = links(3), SqliteStore(path, StoreOptions(timeout=5.0))
        for number in range(20):
            await store.put_archive(archive(number, 20_000))
        await store.put_checkpoint("t", checkpoint(chain, 2))
        await store.close()
        whole = path.read_bytes()
        path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
        again = SqliteStore(path, StoreOptions(timeout=5.0))
        with caplog.at_level(logging.ERROR):
            assert (await again.lookup("t", chain, "s")).checkpoint is None
            assert await again.put_checkpoint("t", checkpoint(chain, 2))
        assert (await again.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        await again.close()
        assert len(list(path.parent.glob("store.db.corrupt-*"))) == 1
        assert "SQLITE_CORRUPT" in caplog.text

    async def test_a_value_that_is_nonsense_is_passed_over_and_makes_place_for_the_next(
        self, store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain = links(3)
        await store.put_checkpoint("t", checkpoint(chain, 2))
        with sqlite3.connect(path) as db:
            db.execute("UPDATE checkpoints SET value = 'secret words'")
        db.close()
        assert await store.lookup("t", chain, "s") == Found()
        assert await store.put_checkpoint("t", checkpoint(chain, 2, b"again"))
        assert await store.lookup("t", chain, "s") == Found(checkpoint(chain, 2, b"again"))
        assert "passed over" in caplog.text
        assert "secret" not in caplog.text


class TestWaiting:
    async def test_a_locked_file_can_be_read_and_fails_writing_in_time(self, path: Path) -> None:
        chain, store = links(3), SqliteStore(path, StoreOptions(timeout=0.2))
        await store.put_checkpoint("t", checkpoint(chain, 2))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(StoreFailed):
            await store.put_checkpoint("t", checkpoint(chain, 3))
        assert time.monotonic() - begun < 2
        assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        other.execute("ROLLBACK")
        other.close()
        assert await store.put_checkpoint("t", checkpoint(chain, 3))
        await store.close()

    async def test_a_disk_that_hangs_costs_each_call_its_timeout_and_what_was_given_up_is_not_done(
        self, path: Path
    ) -> None:
        store, disk, stuck = SqliteStore(path, StoreOptions(timeout=0.1)), threading.Event(), threading.Event()
        await store.ping()
        store._worker.submit(lambda: (stuck.set(), disk.wait(20)))
        assert await asyncio.to_thread(stuck.wait, 10)
        begun = time.monotonic()
        change = SessionChange(add={"requests": 1})
        results = await asyncio.gather(
            *(store.update_session("t", "s", change) for _ in range(600)), return_exceptions=True
        )
        assert time.monotonic() - begun < 5
        assert {type(result) for result in results} == {StoreFailed}
        disk.set()
        await asyncio.sleep(0.05)  # what was given up is thrown out of the queue
        await store.ping()
        assert await store.get_session("s") is None
        await store.close()

    async def test_a_caller_that_leaves_does_not_disturb_the_others(self, store: SqliteStore) -> None:
        chain = links(3)
        await store.put_checkpoint("t", checkpoint(chain, 2))
        tasks = [asyncio.create_task(store.lookup("t", chain, "s")) for _ in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(found.checkpoint == checkpoint(chain, 2) for found in results[1::2])

    async def test_after_closing_every_call_fails(self, store: SqliteStore) -> None:
        await store.close()
        with pytest.raises(StoreFailed):
            await store.ping()


class TestSize:
    async def test_a_full_file_makes_room_and_is_never_larger_than_its_bound(self, path: Path) -> None:
        bound = 4 << 20
        chain, store = links(3), SqliteStore(path, StoreOptions(timeout=5.0, max_bytes=bound))
        await store.put_checkpoint("t", checkpoint(chain, 2))
        failures = 0
        for number in range(150):
            try:
                await store.put_archive(archive(number, 100_000))
            except StoreFailed:
                failures += 1
        assert path.stat().st_size <= bound
        assert failures == 0
        await store.put_archive(archive(1_000, 100_000))
        assert await store.get_archive("a1000")
        assert await store.get_archive("a0") is None
        assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 2)
        await store.close()

    async def test_what_can_never_fit_fails_and_says_so(self, path: Path) -> None:
        store = SqliteStore(path, StoreOptions(timeout=5.0, max_bytes=1 << 20))
        with pytest.raises(StoreFailed, match=r"^sqlite: SQLITE_FULL$"):
            await store.put_archive(archive(1, 3 << 20))
        await store.put_archive(archive(2, 1_000))
        assert await store.get_archive("a2")
        await store.close()

    async def test_expired_rows_are_swept_and_their_space_given_back(self, path: Path) -> None:
        clock = Clock()
        options = StoreOptions(timeout=5.0, session_ttl=10, checkpoint_ttl=10, archive_ttl=10, clock=clock)
        store = SqliteStore(path, options)
        for number in range(250):
            await store.put_archive(archive(number, 3_000))
            await store.put_checkpoint("t", checkpoint(links(2, name=f"c{number}"), 2))
        clock.now += 11
        for _ in range(2_000):
            await store.update_session("t", "s", SessionChange(add={"requests": 1}))
        await store.close()
        with sqlite3.connect(path) as db:
            left = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("archives", "checkpoints")]
            free = db.execute("PRAGMA freelist_count").fetchone()[0]
        db.close()
        assert left == [0, 0]
        assert free <= 256


async def test_a_lookup_is_three_statements_and_finds_by_anchor(store: SqliteStore) -> None:
    chain, statements = links(300), []
    await store.put_checkpoint("t", checkpoint(chain, 290))
    store._file.read(lambda db: db.set_trace_callback(statements.append))
    assert (await store.lookup("t", chain, "s")).checkpoint == checkpoint(chain, 290)
    assert len(statements) == 3
    store._file.read(lambda db: db.set_trace_callback(None))
    plans = [
        row[3]
        for sql in statements
        for row in store._file.read(lambda db, sql=sql: db.execute(f"EXPLAIN QUERY PLAN {sql}"))
    ]
    searches = [plan for plan in plans if "CONSTANT" not in plan]
    assert any("USING INDEX checkpoints_by_anchor (anchor=?)" in plan for plan in searches)
    assert not [plan for plan in searches if plan.startswith("SCAN") and ("checkpoints" in plan or "sessions" in plan)]
