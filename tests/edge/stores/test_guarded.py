"""The store that requests see, in front of one that fails, hangs, comes back, or is somebody else's too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from app.edge.stores import Guarded, MemoryStore, StoreOptions
from app.edge.stores.asking import WRITES
from app.edge.stores.base import TooLarge
from app.edge.stores.breaker import Breaker
from app.errors import StoreFailed
from app.records import Found, SessionChange, StoredCheckpoint
from tests.contract.test_stores import archive, checkpoint, compaction, links


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Wayward(MemoryStore):
    """A store that can be `broken` (raises that), or `hangs`; `only` limits both to some methods. Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: Exception | None = None
        self.hangs = False
        self.only: tuple[str, ...] = ()
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith(("_", "replace", "is_", "forget")) or not asyncio.iscoroutinefunction(value):
            return value

        async def call(*args: Any) -> Any:
            self.calls.append(name)
            if not self.only or name in self.only:
                if self.hangs:
                    await asyncio.Event().wait()
                if self.broken:
                    raise self.broken
            return await value(*args)

        return call


class Recorder:
    def __init__(self) -> None:
        self.seconds: list[str] = []
        self.errors: list[str] = []
        self.told: list[tuple[str, dict[str, str]]] = []

    def store_seconds(self, op: str, seconds: float) -> None:
        assert seconds >= 0
        self.seconds.append(op)

    def store_error(self, op: str) -> None:
        self.errors.append(op)

    def note(self, event: str, **facts: str) -> None:
        self.told.append((event, facts))

    warn = note


class Setting:
    def __init__(self) -> None:
        self.clock, self.recorder, self.store = Clock(), Recorder(), Wayward()
        self.guarded = self.another()

    def another(self) -> Guarded:
        """One more process in front of the same store."""
        return Guarded(self.store, 0.05, self.recorder, breaker=lambda: Breaker(failures=5, clock=self.clock))

    async def settle(self) -> None:
        """Let the background finish."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def here() -> Setting:
    return Setting()


CHAIN = links(9)
DOWN = ConnectionError("redis://:secret@host refused: the user's words")

CALLS: dict[str, Callable[[Guarded], Awaitable[Any]]] = {
    "lookup": lambda g: g.lookup("t", CHAIN, "s"),
    "put_checkpoint": lambda g: g.put_checkpoint("t", checkpoint(CHAIN, 5)),
    "quarantine": lambda g: g.quarantine("t", checkpoint(CHAIN, 5)),
    "update_session": lambda g: g.update_session("t", "s", SessionChange(add={"requests": 1})),
    "acquire": lambda g: g.acquire("l", 5),
    "put_archive": lambda g: g.put_archive(archive("a")),
    "get_archive": lambda g: g.get_archive("a"),
    "put_compaction": lambda g: g.put_compaction(compaction("c")),
    "get_compaction": lambda g: g.get_compaction("c"),
    "sessions": lambda g: g.sessions(),
    "get_session": lambda g: g.get_session("s"),
    "compactions": lambda g: g.compactions(),
    "archives": lambda g: g.archives(),
    "ping": lambda g: g.ping(),
}
LOCAL = ("lookup", "put_checkpoint", "quarantine", "update_session", "acquire")


class TestBounds:
    @pytest.mark.parametrize("op", CALLS)
    @pytest.mark.parametrize("trouble", ["broken", "hangs"])
    async def test_every_call_ends_in_time_with_a_local_answer_or_a_failure(
        self, here: Setting, op: str, trouble: str
    ) -> None:
        here.store.broken, here.store.hangs = (DOWN, False) if trouble == "broken" else (None, True)
        begun = time.monotonic()
        if op in LOCAL:
            await CALLS[op](here.guarded)
        else:
            with pytest.raises(StoreFailed) as caught:
                await CALLS[op](here.guarded)
            assert "secret" not in str(caught.value)
            assert "words" not in str(caught.value)
        assert time.monotonic() - begun < 3
        assert here.guarded.degraded
        assert here.recorder.errors == here.recorder.seconds == [op]

    async def test_a_store_that_will_not_be_cancelled_holds_nobody_up(self, here: Setting) -> None:
        """As a client library may."""
        stubborn = asyncio.Event()

        async def ping() -> None:
            while not stubborn.is_set():
                with suppress(asyncio.CancelledError):
                    await stubborn.wait()

        here.store.ping = ping  # type: ignore[method-assign]
        begun = time.monotonic()
        try:
            with pytest.raises(StoreFailed, match="ping: TimeoutError"):
                await here.guarded.ping()
            assert time.monotonic() - begun < 1
        finally:
            stubborn.set()

    @pytest.mark.parametrize("op", CALLS)
    async def test_a_call_that_goes_well_is_not_degraded(self, here: Setting, op: str) -> None:
        here.guarded._asking.degraded = True
        await CALLS[op](here.guarded)
        assert not here.guarded.degraded
        assert (here.recorder.errors, here.recorder.seconds) == ([], [op])

    async def test_degraded_is_read_right_after_the_call_also_among_others(self, here: Setting) -> None:
        here.store.only, here.store.broken = ("update_session",), DOWN

        async def ask(op: str) -> bool:
            await CALLS[op](here.guarded)
            return here.guarded.degraded

        seen = await asyncio.gather(*(ask(op) for op in ["lookup", "update_session"] * 20))
        assert seen == [False, True] * 20

    async def test_a_cancelled_caller_is_no_failure_of_the_store(self, here: Setting) -> None:
        here.store.hangs = True
        for _ in range(10):
            task = asyncio.create_task(here.guarded.lookup("t", CHAIN, "s"))
            await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert here.guarded.healthy
        assert here.recorder.errors == []

    async def test_a_change_that_makes_no_sense_is_told_and_no_failure(self, here: Setting) -> None:
        with pytest.raises(ValueError, match="counter"):
            await here.guarded.update_session("t", "s", SessionChange(add={"nonsense": 1}))
        assert here.store.calls == []

    async def test_closing_never_raises_and_never_hangs(self, here: Setting) -> None:
        here.store.broken = DOWN
        await here.guarded.close()
        other = Setting()
        other.store.hangs = True
        begun = time.monotonic()
        await other.guarded.close()
        assert time.monotonic() - begun < 5


class TestBreaker:
    async def open(self, here: Setting) -> None:
        here.store.broken = DOWN
        for _ in range(5):
            await here.guarded.lookup("t", CHAIN, "s")
        assert not here.guarded.healthy
        here.store.calls.clear()

    async def test_after_five_failures_nobody_asks_any_more(self, here: Setting) -> None:
        await self.open(here)
        here.store.hangs = True
        begun = time.monotonic()
        for _ in range(200):
            assert await here.guarded.lookup("t", CHAIN, "s") == Found()
            assert here.guarded.degraded
            with pytest.raises(StoreFailed, match="away"):
                await here.guarded.get_archive("a")
        assert time.monotonic() - begun < 2
        assert here.store.calls == []
        assert len(here.recorder.errors) == 5

    async def test_a_probe_in_the_background_brings_it_back(self, here: Setting) -> None:
        await self.open(here)
        here.clock.now += 1
        await here.guarded.lookup("t", CHAIN, "s")
        await here.settle()
        assert here.store.calls == ["ping"]
        assert not here.guarded.healthy
        here.store.broken = None
        await here.guarded.lookup("t", CHAIN, "s")
        assert here.store.calls == ["ping"]
        here.clock.now += 2
        await here.guarded.lookup("t", CHAIN, "s")
        assert here.guarded.degraded
        await here.settle()
        assert here.store.calls == ["ping", "ping"]
        assert here.guarded.healthy
        await here.guarded.lookup("t", CHAIN, "s")
        assert not here.guarded.degraded
        degraded = ("store_degraded", {"why": "lookup: ConnectionError"})
        assert here.recorder.told == [degraded, ("store_recovered", {})]

    async def test_the_start_says_what_is_wrong_once_it_is_sure(self, here: Setting) -> None:
        here.guarded.try_out()
        await here.settle()
        assert (here.store.calls, here.recorder.told) == (["ping"], [])
        here.store.calls.clear()
        here.store.broken = DOWN
        here.guarded.try_out()
        await here.settle()
        assert (here.store.calls, here.recorder.told) == (
            ["ping"] * 3,
            [("store_degraded", {"why": "ping: ConnectionError"})],
        )
        assert here.guarded.healthy

    async def test_a_probe_that_hangs_holds_up_no_request(self, here: Setting) -> None:
        await self.open(here)
        here.store.hangs = True
        here.clock.now += 1
        async with asyncio.timeout(0.04):
            for _ in range(50):
                await here.guarded.lookup("t", CHAIN, "s")
        await here.guarded.close()

    async def test_a_ping_probes_itself(self, here: Setting) -> None:
        await self.open(here)
        with pytest.raises(StoreFailed):
            await here.guarded.ping()
        assert here.store.calls == []
        here.store.broken = None
        here.clock.now += 1
        await here.guarded.ping()
        assert here.store.calls == ["ping"]
        assert here.guarded.healthy


FULL = ConnectionError("OOM command not allowed")


class TestWritesAlone:
    """A store that is full or read-only: it answers, and keeps nothing."""

    async def open(self, here: Setting) -> None:
        here.store.broken, here.store.only = FULL, tuple(WRITES)
        for _ in range(5):
            await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 5))
            assert here.guarded.degraded
        here.store.calls.clear()

    async def test_it_is_read_all_the_same_and_writes_are_given_up(self, here: Setting) -> None:
        await here.store.put_checkpoint("t", checkpoint(CHAIN, 3))
        await self.open(here)
        assert not here.guarded.healthy
        assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 5)  # its own
        assert not here.guarded.degraded
        assert await here.another().lookup("t", CHAIN, "s") == Found(checkpoint(CHAIN, 3))
        here.store.calls.clear()
        assert await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        assert here.guarded.degraded
        assert here.store.calls == []

    async def test_ping_says_so_and_a_written_probe_brings_it_back(self, here: Setting) -> None:
        await self.open(here)
        with pytest.raises(StoreFailed, match="no writes"):
            await here.guarded.ping()
        here.clock.now += 1
        with pytest.raises(StoreFailed, match="no writes"):
            await here.guarded.ping()
        assert "acquire" in here.store.calls
        here.store.broken = None
        here.clock.now += 2
        await here.guarded.ping()
        assert here.guarded.healthy
        assert await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 7))
        assert not here.guarded.degraded

    async def test_a_store_that_is_away_is_not_written_to_either(self, here: Setting) -> None:
        here.store.broken = DOWN
        for _ in range(5):
            await here.guarded.lookup("t", CHAIN, "s")
        here.store.calls.clear()
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 5))
        await here.settle()
        assert here.store.calls == []

    async def test_what_is_too_large_says_nothing_against_the_store(self, here: Setting) -> None:
        here.store.broken = TooLarge("too large")
        for _ in range(9):
            with pytest.raises(TooLarge):
                await here.guarded.put_archive(archive("a"))
        assert here.guarded.healthy
        assert here.recorder.errors == []


class TestAway:
    async def test_replay_goes_on_with_what_was_written_before_and_while(self, here: Setting) -> None:
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 3))
        here.store.broken = DOWN
        assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 3)
        assert await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        assert here.guarded.degraded
        assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 6)
        await here.guarded.quarantine("t", checkpoint(CHAIN, 6))
        assert await here.guarded.lookup("t", CHAIN, "s") == Found(checkpoint(CHAIN, 3), 6)

    async def test_replay_goes_on_with_what_was_only_read_before(self, here: Setting) -> None:
        await here.store.put_checkpoint("t", checkpoint(CHAIN, 6))
        await here.store.quarantine("t", checkpoint(CHAIN, 9))
        await here.store.put_checkpoint("t", checkpoint(CHAIN, 9))
        await here.store.update_session("t", "s", SessionChange(add={"requests": 4}))
        before = await here.guarded.lookup("t", CHAIN, "s")
        assert before.quarantined == 9
        here.store.broken = DOWN
        assert await here.guarded.lookup("t", CHAIN, "s") == before

    async def test_a_session_goes_on(self, here: Setting) -> None:
        await here.store.update_session("t", "s", SessionChange(add={"compactions": 4}))
        await here.guarded.lookup("t", CHAIN, "s")
        here.store.broken = DOWN
        await here.guarded.update_session("t", "s", SessionChange(add={"compactions": 1}))
        session = (await here.guarded.lookup("t", CHAIN, "s")).session
        assert session is not None
        assert session.compactions == 5

    async def test_one_flight_per_prefix_within_the_process(self, here: Setting) -> None:
        here.store.broken = DOWN
        tokens = await asyncio.gather(*(here.guarded.acquire("prefix", 60) for _ in range(20)))
        [token] = [token for token in tokens if token]
        await here.guarded.release("prefix", "another")
        assert await here.guarded.acquire("prefix", 60) is None
        await here.guarded.release("prefix", token)
        assert await here.guarded.acquire("prefix", 60)

    async def test_a_lease_taken_before_holds_while_the_store_is_away(self, here: Setting) -> None:
        assert await here.guarded.acquire("prefix", 60)
        here.store.broken = DOWN
        assert await here.guarded.acquire("prefix", 60) is None

    async def test_a_lease_of_another_replica_holds_and_is_not_kept_here(self, here: Setting) -> None:
        token = await here.another().acquire("prefix", 60)
        assert await here.guarded.acquire("prefix", 60) is None
        await here.another().release("prefix", str(token))
        mine = await here.guarded.acquire("prefix", 60)
        assert mine
        await here.guarded.release("prefix", mine)
        assert await here.store.acquire("prefix", 60)


class TestBack:
    async def test_what_the_store_missed_is_used_and_given_to_it(self, here: Setting) -> None:
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 3))
        here.store.broken = DOWN
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        here.store.broken = None
        assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 6)
        assert not here.guarded.degraded
        await here.settle()
        assert (await here.another().lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 6)

    async def test_a_quarantine_that_the_store_missed_holds_and_is_given_to_it(self, here: Setting) -> None:
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 3))
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        here.store.broken = DOWN
        await here.guarded.quarantine("t", checkpoint(CHAIN, 6))
        here.store.broken = None
        assert await here.guarded.lookup("t", CHAIN, "s") == Found(checkpoint(CHAIN, 3), 6)
        await here.settle()
        assert await here.another().lookup("t", CHAIN, "s") == Found(checkpoint(CHAIN, 3), 6)

    async def test_a_quarantine_by_another_replica_holds_against_our_own_copy(self, here: Setting) -> None:
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        await here.another().quarantine("t", checkpoint(CHAIN, 6))
        assert await here.guarded.lookup("t", CHAIN, "s") == Found(None, 6)
        await here.settle()
        here.store.broken = DOWN
        assert await here.guarded.lookup("t", CHAIN, "s") == Found(None, 6)

    async def test_the_first_one_of_another_replica_counts(self, here: Setting) -> None:
        assert await here.another().put_checkpoint("t", checkpoint(CHAIN, 6, b"theirs"))
        assert not await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6, b"ours"))
        for trouble in (None, DOWN):
            here.store.broken = trouble
            assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 6, b"theirs")

    async def test_a_put_that_lost_is_not_replayed_when_the_store_goes_away_at_once(self, here: Setting) -> None:
        await here.another().put_checkpoint("t", checkpoint(CHAIN, 6, b"theirs"))
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6, b"ours"))
        here.store.broken = DOWN
        assert await here.guarded.lookup("t", CHAIN, "s") == Found()

    async def test_a_store_that_takes_no_writes_is_not_asked_without_end(self, here: Setting) -> None:
        here.store.only, here.store.hangs = ("put_checkpoint",), True
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        for _ in range(100):
            assert (await here.guarded.lookup("t", CHAIN, "s")).checkpoint == checkpoint(CHAIN, 6)
            await asyncio.sleep(0)
        assert here.store.calls.count("put_checkpoint") <= 17
        await here.guarded.close()

    async def test_the_store_is_asked_once_per_lookup_when_all_is_well(self, here: Setting) -> None:
        await here.guarded.put_checkpoint("t", checkpoint(CHAIN, 6))
        here.store.calls.clear()
        for _ in range(5):
            await here.guarded.lookup("t", CHAIN, "s")
        await here.settle()
        assert here.store.calls == ["lookup"] * 5


async def test_the_local_store_is_bounded() -> None:
    setting = Setting()
    local = MemoryStore(StoreOptions(max_bytes=20_000))
    guarded = Guarded(setting.store, 0.05, setting.recorder, local=local)
    for number in range(50):
        chain = links(2, name=f"c{number}")
        await guarded.put_checkpoint("t", StoredCheckpoint.of(chain, 2, bytes(1_000)))
    setting.store.broken = DOWN
    alive = 0
    for number in range(50):
        alive += (await guarded.lookup("t", links(2, name=f"c{number}"), "s")).checkpoint is not None
    assert 0 < alive < 10
