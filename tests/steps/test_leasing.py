"""Replicas that want the same at the same time, and replicas that die or stop with a lease in their hands."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from app.edge.stores.memory import MemoryStore
from app.errors import StoreFailed
from app.ports import Summary, SummaryJob
from app.request import Context
from app.settings import Policy
from app.steps import leasing
from tests.story import House, Talk, policy, texts, words

BRIEF = 0.3


@pytest.fixture
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that end soon."""
    monkeypatch.setattr(leasing, "LEASE_SECONDS", BRIEF)


def summarizes(**more: Any) -> Policy:
    return policy(**{"strategy": "summarize", "summary_timeout": 5, **more})


class Slow(House):
    """A replica whose summaries take so many seconds."""

    def __init__(self, store: MemoryStore, seconds: float, says: str = "They met.") -> None:
        super().__init__(says, store=store)
        write, self.asked = self.writer.summarize, asyncio.Event()

        async def summarize(job: SummaryJob) -> Summary:
            self.asked.set()
            await asyncio.sleep(seconds)
            return await write(job)

        self.writer.summarize = summarize  # type: ignore[method-assign]


async def archives(store: MemoryStore) -> list[str]:
    return [archive.id for archive in (await store.archives())[0]]


@pytest.mark.parametrize("strategy", ["sliding_window", "summarize", "tool_result_clearing"])
@pytest.mark.parametrize("replicas", [1, 3])
async def test_identical_requests_at_once_leave_one_archive_and_one_record(strategy: str, replicas: int) -> None:
    store = MemoryStore()
    houses = [House(store=store) for _ in range(replicas)]
    talk = Talk.of(8)
    talk.items[2:2] = Talk().ask("Go.").round(900).round(900).round(200).round(200).round(200).answer().items
    rules = policy(strategy=strategy)
    outcomes = await asyncio.gather(*(houses[n % replicas].decide(talk, rules) for n in range(12)))
    assert len({outcome.body for outcome in outcomes}) == 1
    assert sorted(outcome.result for outcome in outcomes) == ["compacted"] + ["replayed"] * 11
    [kept] = await archives(store)
    assert {outcome.archive.split("/")[-2] for outcome in outcomes} == {kept}
    assert len((await store.compactions())[0]) == 1
    assert sum(len(house.writer.jobs) for house in houses) == (strategy == "summarize")


@pytest.mark.usefixtures("_brief")
async def test_a_holder_that_died_delays_nobody_for_longer_than_a_lease() -> None:
    store = MemoryStore()
    dead, heir = Slow(store, 60), House("They met again.", store=store)
    task = asyncio.create_task(dead.decide(Talk.of(10), summarizes(summary_timeout=60)))
    await dead.asked.wait()
    dead.guarded.release = nothing  # type: ignore[method-assign]
    for running in asyncio.all_tasks() - {asyncio.current_task(), task}:  # what a kill does: nothing is given back
        running.cancel()
    begun = time.monotonic()
    outcome = await heir.decide(Talk.of(10), summarizes())
    assert BRIEF / 2 < time.monotonic() - begun < BRIEF + 1
    assert "They met again." in texts(outcome)[0]
    task.cancel()


async def nothing(*_: Any) -> None: ...


@pytest.mark.usefixtures("_brief")
async def test_a_holder_that_lives_keeps_its_lease_for_as_long_as_it_works() -> None:
    store = MemoryStore()
    slow, other = Slow(store, BRIEF * 4), House("Another summary.", store=store)
    first = asyncio.create_task(slow.decide(Talk.of(10), summarizes()))
    await slow.asked.wait()
    second = await other.decide(Talk.of(10), summarizes())
    assert (await first).body == second.body
    assert not other.writer.jobs
    assert not list(store._leases.values())


@pytest.mark.usefixtures("_brief")
async def test_a_holder_that_was_out_of_breath_can_only_take_over_what_was_settled() -> None:
    """The fence: its lease went to another replica, which was done first."""

    class Forgetful(MemoryStore):
        async def renew(self, name: str, token: str, seconds: float) -> bool:  # noqa: ARG002
            return False

    store = Forgetful()
    slow, quick = Slow(store, BRIEF * 4, "Too late."), House("In time.", store=store)
    first = asyncio.create_task(slow.decide(Talk.of(10), summarizes()))
    await slow.asked.wait()
    second = await quick.decide(Talk.of(10), summarizes())
    assert "In time." in texts(second)[0]
    assert (await first).body == second.body
    assert len(await archives(store)) == 1
    again = await House(store=store).decide(Talk.of(10), summarizes())
    assert again.body == second.body


class TestPreparing:
    async def test_two_replicas_prepare_once(self) -> None:
        store, rules = MemoryStore(), summarizes(prepare_threshold=600)
        houses = [Slow(store, 0.1), Slow(store, 0.1)]
        talk = Talk.of(5)
        for house in houses:
            assert (await house.decide(talk, rules)).reason == "below_threshold"
        for house in houses:
            await asyncio.gather(*house.compactor._preparer._running.values())
        assert sum(len(house.writer.jobs) for house in houses) == 1
        assert len(await archives(store)) == 1

    async def test_a_request_at_its_trigger_takes_what_another_replica_is_preparing(self) -> None:
        store, rules = MemoryStore(), summarizes(prepare_threshold=600, keep_recent_turns=2)
        early, late = Slow(store, 0.3), House("Another summary.", store=store)
        talk = Talk.of(6)
        await early.decide(talk, rules.model_copy(update={"trigger_threshold": 2_000}))
        await early.asked.wait()
        outcome = await late.decide(talk, rules)
        assert outcome.result == "compacted"
        assert "They met." in texts(outcome)[0]
        assert not late.writer.jobs

    async def test_what_was_prepared_but_is_still_too_long_holds_nobody_up(self) -> None:
        store, rules = MemoryStore(), summarizes(prepare_threshold=600)
        house = House("They met.", "They met again.", store=store)
        talk = Talk.of(5)
        await house.decide(talk, rules)
        await asyncio.gather(*house.compactor._preparer._running.values())
        talk.answer().ask(words(1_500)).answer().ask("And?")
        outcome = await asyncio.wait_for(House("Anew.", store=store).decide(talk, rules), 3)
        assert outcome.result == "compacted"
        assert "Anew." in texts(outcome)[0]


class Odd:
    """A store of leases that fails at one call."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise StoreFailed(name)

    async def acquire(self, name: str, seconds: float) -> str | None:  # noqa: ARG002
        self._call("acquire")
        return "token"

    async def renew(self, name: str, token: str, seconds: float) -> bool:  # noqa: ARG002
        self._call("renew")
        return True

    async def release(self, name: str, token: str) -> None:  # noqa: ARG002
        self._call("release")

    async def has_moved_on(self, context: Context) -> bool:  # noqa: ARG002
        self._call("has_moved_on")
        return False


@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize("fails", ["acquire", "renew", "release", "has_moved_on"])
async def test_a_store_that_fails_lets_everybody_go_on(fails: str) -> None:
    store = Odd(fails)
    leases = leasing.Leasing(store, store.has_moved_on)  # type: ignore[arg-type]
    context: Any = None
    assert await leases.hold(context, "name", 60)
    await asyncio.sleep(BRIEF)
    await leases.release("name")
    assert ("renew" in store.calls) == (fails != "acquire")
    before = len(store.calls)
    await asyncio.sleep(BRIEF)
    assert len(store.calls) == before  # nobody keeps what was given back


@pytest.mark.usefixtures("_brief")
async def test_a_lease_that_nobody_gives_back_ends() -> None:
    store = Odd("")
    context: Any = None
    assert await leasing.Leasing(store, store.has_moved_on).hold(context, "name", BRIEF)
    await asyncio.sleep(BRIEF * 2)
    before = len(store.calls)
    await asyncio.sleep(BRIEF)
    assert len(store.calls) == before
