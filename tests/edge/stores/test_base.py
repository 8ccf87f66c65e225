from __future__ import annotations

import asyncio
import time

import pytest

from app.edge.stores import RedisStore, SqliteStore, open_store
from app.edge.stores.base import StoreOptions, bounded, cursor_after, cursor_place, on_chain, patience
from app.errors import ConfigInvalid, StoreFailed
from tests.contract.test_stores import archive


class Sample:
    options = StoreOptions(timeout=0.05)

    @bounded
    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    @bounded
    async def fail(self, error: Exception) -> None:
        raise error


async def test_bounded_limits_the_time() -> None:
    assert await Sample().sleep(0) == "slept"
    begun = time.monotonic()
    with pytest.raises(StoreFailed, match=r"^sleep: TimeoutError$"):
        await Sample().sleep(30)
    assert time.monotonic() - begun < 5


async def test_bounded_lets_no_foreign_text_out() -> None:
    with pytest.raises(StoreFailed) as caught:
        await Sample().fail(RuntimeError("redis://:password@host said: the user's words"))
    assert str(caught.value) == "fail: RuntimeError"
    assert caught.value.__suppress_context__
    with pytest.raises(StoreFailed, match="ours"):
        await Sample().fail(StoreFailed("ours"))


async def test_bounded_does_not_turn_a_cancellation_into_a_failure() -> None:
    task = asyncio.create_task(Sample().sleep(30))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("stamp", "tie"), [(1.5, 7), (1_760_000_000.123456, "t\0é"), (-0.0, b"\xff\x00")])
def test_a_cursor_says_where_it_was(stamp: float, tie: str | int | bytes) -> None:
    cursor = cursor_after(stamp, tie)
    assert cursor_place(cursor, type(tie)) == (stamp, tie)
    assert cursor.isascii()
    assert "=" not in cursor


def test_on_chain() -> None:
    chain = [b"a", b"b"]
    assert on_chain(chain, 2, b"b")
    assert not on_chain(chain, 1, b"b")
    assert not on_chain(chain, 3, b"b")
    assert not on_chain(chain, 0, b"b")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "postgres://user:secret@host/db",
            r"postgres://, which is no known store\. Use one of memory://, sqlite://, redis",
        ),
        ("redis+cluster://:secret@a:1,b:2/3", r"not a usable redis\+cluster:// address"),
        ("redis+sentinel://:secret@a:1,b:2", r"not a usable redis\+sentinel:// address"),
        ("redis+cluster://:secret@a:1,,b:2", r"not a usable redis\+cluster:// address"),
        ("redis+other://:secret@a:1", r"redis\+other://, which is no known store"),
        ("data/secret.db", "has no scheme"),
        ("secret secret://x", "has no scheme"),
        ("memory://secret", "write memory://"),
        ("sqlite://secret.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///secret/", "three slashes"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///secret.db?mode=ro", "a path and nothing else"),
        ("redis://:secret@host:port/0", "not a usable redis:// address"),
    ],
)
def test_a_url_that_is_no_store_is_explained_without_being_repeated(url: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as caught:
        open_store(url, StoreOptions())
    assert "secret" not in str(caught.value)
    assert caught.value.faults[0].endswith(".")


def test_opening_asks_nobody() -> None:
    assert isinstance(open_store("redis://nowhere.invalid:1/3", StoreOptions()), RedisStore)
    assert isinstance(open_store("rediss://user:pw@nowhere.invalid:1/3", StoreOptions()), RedisStore)
    assert isinstance(open_store("redis+sentinel://u:pw@nowhere.invalid:1,b/main/0", StoreOptions()), RedisStore)
    assert isinstance(open_store("redis+cluster://u:pw@nowhere.invalid:1,b?ssl=true", StoreOptions()), RedisStore)
    assert isinstance(open_store("sqlite:////nowhere/at/all.db", StoreOptions()), SqliteStore)


class TestPatience:
    def test_an_archive_has_more_time_the_larger_it_is(self) -> None:
        assert patience(0.25, "put_checkpoint", b"x") == 0.25
        small, large = (
            patience(0.25, "put_archive", archive("a", document=bytes(size))) for size in (10_000, 32 << 20)
        )
        assert 0.25 < small < 0.26
        assert 4 < large < 5

    def test_nobody_waits_for_reading_one_but_whoever_reads(self) -> None:
        assert patience(0.25, "get_archive", "id") == 2.0
