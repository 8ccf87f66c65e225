"""Summaries made before they are needed: nobody waits, nobody pays twice, and nothing is sent that no longer fits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.archive import full_document
from app.edge.stores.memory import MemoryStore
from app.errors import SummaryFailed
from app.ports import Summary, SummaryJob
from app.records import StoredCheckpoint
from app.settings import Policy
from tests.story import House, Talk, policy, sent, texts, words


def prepares(**more: Any) -> Policy:
    return policy(**{"strategy": "summarize", "prepare_threshold": 600, **more})


def talk(turns: int) -> Talk:
    """About 165 tokens a turn: the fourth is near the trigger, the sixth behind it."""
    return Talk.of(turns)


async def settled(house: House) -> None:
    """Wait for what is being prepared."""
    await asyncio.gather(*house.compactor._preparer._running.values(), return_exceptions=True)


def grow(talk: Talk, turns: int, tokens: int = 150) -> Talk:
    for n in range(turns):
        talk.answer(f"Said {n}.").ask(f"More {n}. {words(tokens)}")
    return talk


async def test_what_was_prepared_is_there_when_the_trigger_comes() -> None:
    house, asked = House("They met."), talk(5)
    early = await house.decide(asked, prepares())
    assert (early.result, early.reason) == ("passed", "below_threshold")
    await settled(house)
    assert len(house.writer.jobs) == 1
    assert ("summary_prepared", {"strategy": "summarize"}) in house.witness.notes
    later = await house.decide(grow(asked, 2), prepares())
    assert (later.result, later.strategy) == ("compacted", "summarize")
    assert len(house.writer.jobs) == 1
    assert "They met." in texts(later)[0]
    assert sent(later)[1:] == asked.items[10:]  # all that was said since, word for word
    again = await house.decide(asked.answer().ask("And?"), prepares())
    assert (again.result, again.reason) == ("replayed", "checkpoint")
    assert sent(again)[: len(sent(later))] == sent(later)


async def test_standing_rules_hold_for_what_was_said_since() -> None:
    """A long result behind the prepared summary is cut from the first request on, as every replay of it will be."""
    rules, asked = prepares(max_tool_result_tokens=100), talk(5)
    store = MemoryStore()
    house = House("They met.", store=store)
    await house.decide(asked, rules)
    await settled(house)
    later = await house.decide(grow(asked, 2).round(800), rules)
    assert (later.result, later.strategy, len(house.writer.jobs)) == ("compacted", "summarize", 1)
    assert "cut by compaction" in texts(later)[-1]
    for replica in (house, House(store=store)):
        again = await replica.decide(asked, rules)
        assert (again.result, again.after) == ("replayed", later.after)
        assert again.body == later.body


async def test_its_archive_and_its_cost_are_kept() -> None:
    house, asked = House(store=(store := MemoryStore())), talk(5)
    await house.decide(asked, prepares(), session="s")
    await settled(house)
    outcome = await house.decide(grow(asked, 2), prepares(), session="s")
    document = await full_document(store, await house.archive(outcome))
    assert [item["item"] for item in document["items"]] == asked.items[:10]
    session = await store.get_session("s")
    assert session is not None
    assert (session.compactions, session.summary_input_tokens, session.summary_output_tokens, session.summary_cost) == (
        1,
        100,
        10,
        0.5,
    )


async def test_another_replica_finds_it() -> None:
    house, asked = House("They met."), talk(5)
    await house.decide(asked, prepares())
    await settled(house)
    other = House(store=house.store)
    outcome = await other.decide(grow(asked, 2), prepares())
    assert outcome.result == "compacted"
    assert "They met." in texts(outcome)[0]
    assert not other.writer.jobs


async def test_it_is_prepared_once() -> None:
    house, asked = House(), talk(4)
    for _ in range(4):
        await house.decide(asked, prepares())
        await settled(house)
        asked.answer().ask("And?")
    assert len(house.writer.jobs) == 1


async def test_conversations_that_share_a_session_are_each_prepared() -> None:
    """Agents of one client, or conversations that only their instructions tell apart: those name no session."""
    house = House()
    for name in ("One", "Two"):
        asked = Talk({"role": "system", "content": f"You are {name}."}).ask("Hello.").answer(f"I am {name}.")
        asked = grow(asked.ask("Go on."), 5)
        assert (await house.decide(asked, prepares())).reason == "below_threshold"
        await settled(house)
    assert len(house.writer.jobs) == 2


async def test_two_requests_at_once_prepare_once() -> None:
    house, asked = House(), talk(5)
    await asyncio.gather(*(house.decide(asked, prepares()) for _ in range(5)))
    await settled(house)
    assert len(house.writer.jobs) == 1


@pytest.mark.parametrize(
    ("turns", "rules"),
    [
        (3, {}),
        (5, {"prepare_threshold": None}),
        (5, {"mode": "observe"}),
        (5, {"strategy": "sliding_window"}),
        (5, {"strategy": "tool_result_clearing"}),
        (5, {"summary_model": "extractive"}),
    ],
)
async def test_where_it_is_of_no_use_nothing_is_prepared(turns: int, rules: dict[str, Any]) -> None:
    house = House()
    await house.decide(talk(turns), prepares(**rules))
    assert not house.compactor._preparer._running
    assert not house.writer.jobs


async def test_what_is_prepared_is_not_replayed_before_the_trigger() -> None:
    house, asked = House(), talk(5)
    await house.decide(asked, prepares())
    await settled(house)
    outcome = await house.decide(asked.answer().ask("And?"), prepares())
    assert (outcome.result, outcome.reason) == ("passed", "below_threshold")


async def test_what_is_no_longer_enough_is_made_anew() -> None:
    """So much was said since that the request would still be too long."""
    house, asked = House("They met.", "They met and talked."), talk(5)
    await house.decide(asked, prepares())
    await settled(house)
    outcome = await house.decide(grow(asked, 9), prepares())
    assert outcome.result == "compacted"
    assert len(house.writer.jobs) == 2
    assert "They met and talked." in texts(outcome)[0]


class Slow(House):
    """A house whose summariser waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__("They met.")
        self.go, self.asked, said = asyncio.Event(), asyncio.Event(), self.writer.summarize

        async def summarize(job: SummaryJob) -> Summary:
            summary = await said(job)
            self.asked.set()
            await self.go.wait()
            return summary

        self.writer.summarize = summarize  # type: ignore[method-assign]


async def test_a_request_at_the_trigger_waits_for_what_is_under_way() -> None:
    house, asked = Slow(), talk(5)
    await house.decide(asked, prepares())
    waiting = asyncio.create_task(house.decide(grow(asked, 2), prepares()))
    await house.asked.wait()
    house.go.set()
    outcome = await waiting
    assert outcome.result == "compacted"
    assert len(house.writer.jobs) == 1
    assert sent(outcome)[1:] == asked.items[10:]


async def test_a_preparation_that_fails_stops_nothing() -> None:
    for failure in (SummaryFailed("refused"), RuntimeError("broken")):
        house, asked = House(failure, "They met."), talk(5)
        rules = prepares(summary_fallback="pass")
        assert (await house.decide(asked, rules)).result == "passed"
        await settled(house)
        assert [where for where, _ in house.witness.faults] == (
            ["prepare"] if isinstance(failure, RuntimeError) else []
        )
        outcome = await house.decide(grow(asked, 2), rules)
        assert outcome.result == "compacted"
        assert len(house.writer.jobs) == 2


async def test_what_was_refused_is_not_taken_again() -> None:
    house, asked = House("They met.", "They met again."), talk(5)
    await house.decide(asked, prepares())
    await settled(house)
    outcome = await house.decide(grow(asked, 2), prepares())
    await house.compactor.reject(outcome)
    again = await house.decide(asked, prepares())
    assert "They met." not in texts(again)[0]
    assert (again.result, again.reason) in {("declined", "quarantined"), ("compacted", "threshold")}


async def test_policies_share_no_preparation() -> None:
    house, asked = House("They met.", "Other words."), talk(5)
    await house.decide(asked, prepares(name="one"))
    await settled(house)
    outcome = await house.decide(grow(asked, 2), prepares(name="other"))
    assert outcome.result == "compacted"
    assert "Other words." in texts(outcome)[0]


async def test_a_store_that_fails_prepares_nothing_and_stops_nothing() -> None:
    class Broken(MemoryStore):
        async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:  # noqa: ARG002
            raise RuntimeError("broken")

    house, asked = House(store=Broken()), talk(5)
    await house.decide(asked, prepares())
    await settled(house)
    assert (await house.decide(grow(asked, 2), prepares())).result == "compacted"
    assert not [where for where, _ in house.witness.faults if where == "decide"]
