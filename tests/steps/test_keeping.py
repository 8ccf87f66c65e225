"""What a request finds in the store and leaves there; and that nothing of it ever stops a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.core.plan import Checkpoint
from app.edge.stores.memory import MemoryStore
from app.errors import StoreFailed
from app.records import StoredCheckpoint, anchor_of
from app.request import Context, Outcome
from app.settings import Policy
from tests.story import House, Talk, policy, sent, texts, words

RULES = policy()


def context(outcome: Outcome) -> Context:
    assert outcome.context is not None
    return outcome.context


def grown(talk: Talk, turns: int = 10) -> Talk:
    for n in range(turns):
        talk.answer().ask(f"More {n}. {words(150)}")
    return talk


# Checkpoints


async def test_a_checkpoint_is_filed_under_the_prefix_that_it_covers() -> None:
    class Told(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.put: list[tuple[str, StoredCheckpoint]] = []

        async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
            self.put.append((tenant, checkpoint))
            return await super().put_checkpoint(tenant, checkpoint)

    house = House(store=(store := Told()))
    outcome = await house.decide(Talk.of(10), RULES, tenant="mine")
    ((tenant, stored),) = store.put
    links = context(outcome).chain
    assert (tenant, stored.depth) == ("mine", 16)
    assert stored.key == links[15]
    assert stored.anchor == anchor_of(links, 16) == links[15]
    checkpoint = Checkpoint.decode(stored.value)
    assert checkpoint is not None
    assert (checkpoint.covered, checkpoint.strategy, checkpoint.level, checkpoint.number) == (
        16,
        "sliding_window",
        1,
        1,
    )
    assert checkpoint.archive == outcome.archive


@pytest.mark.parametrize("value", [b"", b"garbage", b'{"v":2}', Checkpoint(900, (), "t", 1).encode()])
async def test_a_record_that_can_not_be_used_is_as_good_as_none(value: bytes) -> None:
    """Another version's, or damaged: the request is compacted as if it were the first."""

    class Odd(MemoryStore):
        async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
            return await super().put_checkpoint(tenant, replace(checkpoint, value=value))

    store = Odd()
    talk = Talk.of(10)
    await House(store=store).decide(talk, RULES)
    outcome = await House(store=store).decide(talk, RULES)
    assert outcome.result == "compacted"
    assert sent(outcome)[1:] == talk.items[-5:]


async def test_the_deepest_checkpoint_is_replayed_and_an_edited_past_finds_none() -> None:
    house = House()
    talk = Talk.of(10)
    first = await house.decide(talk, RULES)
    second = await house.decide(grown(talk), RULES)
    again = await house.decide(talk.answer().ask("And?"), RULES)
    assert sent(again)[:-2] == sent(second)
    branch = Talk(*talk.items[:21]).answer("Another answer.").ask("And now?")
    assert sent(await house.decide(branch, RULES))[: len(sent(first))] == sent(first)
    edited = Talk(*talk.items)
    edited.items[3] = {"role": "assistant", "content": "I never said that."}
    assert (await house.decide(edited, RULES)).result == "compacted"


async def test_a_checkpoint_is_decoded_once() -> None:
    house = House()
    talk = Talk.of(10)
    await house.decide(talk, RULES)
    outcomes = [await house.decide(talk.answer().ask("And?"), RULES) for _ in range(3)]
    checkpoints = {id(context(outcome).checkpoint) for outcome in outcomes}
    assert len(checkpoints) == 1


# Records and sessions


@pytest.mark.parametrize("rules", [RULES, policy(strategy="summarize", prepare_threshold=900)])
async def test_a_client_that_goes_back_keeps_its_question(rules: Policy) -> None:
    """A second question came into a running turn, and the first one left with what stood before it; then it is the current one again."""
    house = House()
    running = Talk.of(3).ask("Read them all.").round(300, "a").round(300, "b").answer("Reading.")
    interrupted = Talk(*running.items).ask("Or rather: how many?").answer().round(300, "c")
    other = await house.decide(interrupted, rules)
    await asyncio.gather(*house.compactor._preparer._running.values())
    assert other.result == "compacted"
    back = await house.decide(running.round(300, "d"), rules)
    assert {"role": "user", "content": "Read them all."} in sent(back)
    assert (await house.decide(running, rules)).body == back.body
    assert sent(await house.decide(interrupted, rules)) == sent(other)


async def test_what_was_decoded_gives_way_to_what_the_store_has_now() -> None:
    """Two replicas that were cut off from their store have each made a checkpoint for the same prefix: one of them counts in the end."""
    house, talk = House(), Talk.of(10)
    await house.decide(talk, RULES)
    own = await house.decide(talk, RULES)
    made = context(own).checkpoint
    assert made is not None
    theirs = replace(made, pieces=made.pieces[1:], archive="http://theirs")
    stored = StoredCheckpoint.of(context(own).chain, made.covered, theirs.encode())
    assert isinstance(house.store, MemoryStore)
    house.store.replace_checkpoint("t", stored)
    for _ in range(2):
        again = await house.decide(talk, RULES)
        assert (again.result, again.archive) == ("replayed", "http://theirs")
        assert sent(again) == sent(own)[1:]


async def test_a_compaction_leaves_a_record() -> None:
    house = House("They met.")
    outcome = await house.decide(Talk.of(10), policy(strategy="summarize"), session="s")
    ((record,), _) = await house.store.compactions("s")
    assert (record.tenant, record.session, record.format, record.model) == ("t", "s", "openai-chat", "m")
    assert (record.strategy, record.level, record.count_source) == ("summarize", 1, "tiktoken")
    assert (record.tokens_before, record.tokens_after) == (outcome.before, outcome.after)
    assert (record.summary_input_tokens, record.summary_output_tokens, record.summary_cost) == (100, 10, 0.5)
    assert record.archive == outcome.archive


async def test_a_record_that_can_not_be_written_loses_nothing_else() -> None:
    class Broken(MemoryStore):
        async def put_compaction(self, compaction: Any) -> None:  # noqa: ARG002
            raise StoreFailed("no")

    house = House(store=Broken())
    await house.decide(Talk.of(10), RULES, session="s")
    session = await house.store.get_session("s")
    assert session is not None
    assert session.compactions == 1


async def test_a_refusal_counts_and_is_remembered_everywhere() -> None:
    house = House()
    other = House(store=house.store)
    talk = Talk.of(10)
    await house.decide(talk, RULES, session="s")
    outcome = await other.decide(talk.answer().ask("And?"), RULES, session="s")
    assert outcome.result == "replayed"
    await other.compactor.reject(outcome)
    session = await house.store.get_session("s")
    assert session is not None
    assert session.rejections == 1
    assert (await house.decide(talk, RULES, session="s")).result != "replayed"


async def test_what_never_came_to_a_context_is_settled_in_silence() -> None:
    house = House()
    for outcome in (await house.decide(Talk().ask("Hi"), RULES), Outcome(b"", "failed", "internal_error")):
        await house.compactor.settle(outcome, 100)
        await house.compactor.reject(outcome)
    assert (await house.store.sessions())[0] == []


async def test_only_what_was_counted_becomes_a_mark() -> None:
    house = House()
    far = policy(trigger_threshold=900_000, target_threshold=1_000, compact_first_request=False)
    outcome = await house.decide(Talk.of(60), far, session="far")
    assert not context(outcome).counted.exact
    await house.compactor.settle(outcome, 5_000)
    near = await house.decide(Talk.of(4), policy(compact_first_request=False), session="near")
    await house.compactor.settle(near, 0)
    for name in ("far", "near"):
        session = await house.store.get_session(name)
        assert session is not None
        assert (session.requests, session.usages) == (1, ())


async def test_marks_are_few() -> None:
    house = House()
    rules = policy(trigger_threshold=5_000, target_threshold=1_000, compact_first_request=False)
    talk = Talk.of(3)
    for n in range(12):
        outcome = await house.decide(talk.answer().ask("And?"), rules, session="s")
        await house.compactor.settle(outcome, 1_000 + n)
    session = await house.store.get_session("s")
    assert session is not None
    assert [mark.reported for mark in session.usages] == [*range(1_011, 1_003, -1)]


async def test_while_the_store_is_away_no_usage_is_learned_and_nothing_fails() -> None:
    class Away(MemoryStore):
        async def lookup(self, *args: Any) -> Any:  # noqa: ARG002
            raise StoreFailed("away")

    house = House(store=Away())
    outcome = await house.decide(Talk.of(10), RULES, session="s")
    assert (outcome.result, outcome.reason) == ("compacted", "store_unavailable")
    await house.compactor.settle(outcome, 500)
    assert not [fault for fault in house.witness.faults if fault[0] == "settle"]


class Beaten(MemoryStore):
    """Somebody else's checkpoint is there by the time that ours comes."""

    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        ours = Checkpoint.decode(checkpoint.value)
        assert ours is not None
        theirs = Checkpoint(ours.covered, ours.pieces[1:], "theirs", 1, "http://theirs", 7)
        await super().put_checkpoint(tenant, replace(checkpoint, value=theirs.encode()))
        return False


async def test_a_race_is_won_by_whoever_was_first() -> None:
    """The loser forwards the winner's bytes and writes no record of its own."""
    house = House(store=Beaten())
    talk = Talk.of(10)
    outcome = await house.decide(talk, RULES)
    assert (outcome.result, outcome.strategy, outcome.archive) == ("compacted", "theirs", "http://theirs")
    assert sent(outcome) == talk.items[-5:]
    assert (await house.store.compactions())[0] == []
    assert sent(await house.decide(talk.answer().ask("And?"), RULES))[:5] == sent(outcome)


async def test_standing_rules_hold_for_the_winners_bytes() -> None:
    house, rules = House(store=Beaten()), policy(max_tool_result_tokens=100)
    outcome = await house.decide(talk := Talk.of(10).round(800), rules)
    assert (outcome.result, outcome.strategy) == ("compacted", "theirs")
    assert "cut by compaction" in texts(outcome)[-1]
    again = await house.decide(talk, rules)
    assert (again.result, again.body, again.after) == ("replayed", outcome.body, outcome.after)


async def test_many_requests_of_one_session_at_once() -> None:
    house = House()
    talks = [Talk.of(10).ask(f"Branch {n}.") for n in range(8)]
    outcomes = await asyncio.gather(*(house.decide(talk, RULES, session="s") for talk in talks))
    assert {outcome.result for outcome in outcomes} <= {"compacted", "replayed"}
    assert len({texts(outcome)[0] for outcome in outcomes}) == 1
    assert not house.witness.faults
