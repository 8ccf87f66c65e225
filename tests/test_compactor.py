"""One request's story, told through every way out: what is forwarded, and the name and reason of what was done.

Everything is real but the network: the compactor, a memory store behind its guard, and a summariser that says what it is told to.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.core.notes import CONTINUATION, is_note
from app.edge.stores.base import StoreOptions
from app.edge.stores.memory import MemoryStore
from app.errors import StoreFailed
from app.records import Archive, Compaction, Found, StoredCheckpoint
from app.request import Outcome
from app.steps.eligibility import MAX_REJECTIONS
from tests.story import BASE, House, Talk, policy, sent, texts, words


def story(outcome: Outcome) -> tuple[str, str]:
    return outcome.result, outcome.reason


def notice(count: int) -> str:
    subject = f"{count} earlier messages were" if count > 1 else "1 earlier message was"
    return f"[{subject} removed here by compaction (sliding window); what they said may be missing.]"


# Passing


class Deaf(MemoryStore):
    """A store that counts how often it is looked into."""

    looked = 0

    async def lookup(self, *args: Any) -> Found:
        self.looked += 1
        return await super().lookup(*args)


async def test_a_short_request_passes_and_nobody_is_asked() -> None:
    house = House(store=(store := Deaf()))
    talk = Talk().ask("Hello?")
    asked = talk.asked(policy())
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == ("passed", "below_threshold")
    assert outcome.body is asked.opened.body
    assert not outcome.changed
    assert outcome.before == outcome.after > 0
    assert outcome.source == "approximate"
    assert store.looked == 0


@pytest.mark.parametrize("tokens", [4, 90, 130])
async def test_below_the_trigger_the_very_same_bytes_go_on(tokens: int) -> None:
    house = House()
    talk = Talk.of(6, tokens)
    asked = talk.asked(policy())
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == ("passed", "below_threshold")
    assert outcome.body is asked.opened.body
    assert not house.witness.faults


async def test_off_is_off() -> None:
    house = House(store=(store := Deaf()))
    outcome = await house.decide(Talk.of(30), policy(mode="off"))
    assert story(outcome) == ("passed", "mode_off")
    assert store.looked == 0


async def test_a_client_that_compacts_by_itself_is_left_alone() -> None:
    talk = Talk.of(30).answer().ask("Your task is to create a detailed summary of the conversation so far.")
    assert story(await House().decide(talk, policy())) == ("passed", "client_compaction")


async def test_a_history_that_is_elsewhere_is_left_alone() -> None:
    items = [{"role": "user", "content": words(2_000)}] * 3
    talk = Talk(*items, form="openai-responses", previous_response_id="resp_1")
    assert story(await House().decide(talk, policy())) == ("passed", "server_history")


@pytest.mark.parametrize("history", ["[]", '"one long text"'])
async def test_a_request_without_items_is_left_alone(history: str) -> None:
    body = f'{{"input": {history}, "instructions": "{words(2_000)}"}}'.encode()
    outcome = await House().decide(Talk(form="openai-responses"), policy(), body=body)
    assert story(outcome) == ("passed", "no_history")
    assert outcome.body is body


async def test_an_item_that_can_not_be_read_is_left_alone() -> None:
    body = Talk.of(30).body.replace(b"Answer 3.", b"Answer \xff.")
    outcome = await House().decide(Talk(), policy(), body=body)
    assert story(outcome) == ("passed", "not_json")
    assert outcome.body is body


async def test_an_item_that_is_nested_too_deep_is_left_alone() -> None:
    deep = b'{"role": "user", "content": ' + b"[" * 400 + b"]" * 400 + b"}"
    body = Talk.of(30).body.replace(b'"messages": [', b'"messages": [' + deep + b", ")
    house = House()
    outcome = await house.decide(Talk(), policy(), body=body)
    assert story(outcome) in {("passed", "too_deep"), ("compacted", "threshold")}
    assert outcome.result == "compacted" or outcome.body is body
    assert not house.witness.faults


async def test_a_history_of_too_many_values_is_not_parsed() -> None:
    """They would take seconds and thirty times their bytes."""
    many = b'{"role": "user", "content": [' + b"[]," * 500_000 + b"1]}"
    body = Talk.of(30).body.replace(b'"messages": [', b'"messages": [' + many + b", ")
    house = House()
    outcome = await house.decide(Talk(), policy(), body=body)
    assert story(outcome) == ("passed", "too_many_items")
    assert outcome.body is body
    assert not house.witness.faults


async def test_a_key_that_stands_twice_costs_no_summary_and_leaves_no_trace() -> None:
    house = House(store=(store := MemoryStore()))
    body = Talk.of(30).body.replace(b'{"model": "m"', b'{"model": "m", "model": "m"', 1)
    outcome = await house.decide(Talk(), policy(strategy="summarize"), body=body)
    assert story(outcome) == ("passed", "duplicate_key")
    assert outcome.body is body
    assert not house.writer.jobs
    assert (await store.compactions())[0] == (await store.archives())[0] == []


async def test_a_fault_of_our_own_forwards_the_original() -> None:
    house = House(RuntimeError("lost my mind"))
    asked = Talk.of(30).asked(policy(strategy="summarize"))
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == ("failed", "internal_error")
    assert outcome.body is asked.opened.body
    assert [where for where, _ in house.witness.faults] == ["decide"]


# Compacting and replaying


async def test_a_compaction_tells_all_about_itself() -> None:
    house = House()
    talk = Talk.of(10)
    outcome = await house.decide(talk, policy(), session="s")
    assert story(outcome) == ("compacted", "threshold")
    assert (outcome.strategy, outcome.level, outcome.source) == ("sliding_window", 1, "tiktoken")
    assert (outcome.session, outcome.compactions) == ("s", 1)
    assert texts(outcome) == [notice(16), *(item["content"] for item in talk.items[16:])]
    assert outcome.before > 1_000 > outcome.after > 0
    assert outcome.archive.startswith(f"{BASE}/compactd/archives/compaction_s_")
    assert outcome.changed
    assert not house.witness.faults
    assert house.witness.archives == [("store", "ok")]


async def test_kept_items_and_all_else_keep_their_bytes() -> None:
    talk = Talk.of(10)
    body = talk.body.replace(b'{"model": "m"', b'{ "temperature":1e2,\n"model" :"m\\u00e9"')
    body = body.removesuffix(b"]}") + '] , "é":"\\ud800"}'.encode()
    outcome = await House().decide(talk, policy(), body=body)
    assert outcome.result == "compacted"
    head, _, rest = body.partition(b"[")
    note = json.dumps({"role": "user", "content": notice(16)}, separators=(",", ":")).encode()
    kept = rest[rest.index(b'{"role": "user", "content": "Question 8') :]
    assert outcome.body == head + b"[" + note + b"," + kept


async def test_the_next_requests_replay_it_byte_for_byte() -> None:
    house = House()
    talk = Talk.of(10)
    before = sent(first := await house.decide(talk, policy()))
    for n in range(3):
        talk.answer(f"Well {n}.").ask(f"And {n}?")
        outcome = await house.decide(talk, policy())
        assert story(outcome) == ("replayed", "checkpoint")
        assert sent(outcome) == [*before, *talk.items[-2 * (n + 1) :]]
        assert outcome.body.startswith(first.body.removesuffix(b"]}"))
        assert (outcome.strategy, outcome.level, outcome.archive) == ("sliding_window", 1, first.archive)
        assert outcome.before > outcome.after


async def test_grown_again_it_is_compacted_again_on_top() -> None:
    house = House()
    talk = Talk.of(10)
    await house.decide(talk, policy())
    for n in range(10):
        talk.answer().ask(f"More {n}. {words(150)}")
    outcome = await house.decide(talk, policy())
    assert story(outcome) == ("compacted", "threshold")
    assert outcome.compactions == 2
    assert texts(outcome) == [notice(len(talk.items) - 5), *(item["content"] for item in talk.items[-5:])]


async def test_steps_are_large_and_rare() -> None:
    """From the trigger down to the target, and not again until the trigger is reached."""
    house, made, requests = House(), 0, 40
    talk = Talk()
    for n in range(requests):
        talk.ask(f"{n}. {words(80)}")
        outcome = await house.decide(talk, policy())
        made += outcome.result == "compacted"
        talk.answer()
    assert made == 4
    assert outcome.result in ("replayed", "compacted")


async def test_level_2_keeps_the_running_turn() -> None:
    talk = Talk.of(6).round().round()
    outcome = await House().decide(talk, policy())
    assert (outcome.result, outcome.level) == ("compacted", 2)
    assert sent(outcome)[1:] == talk.items[12:]


async def test_a_draft_to_go_on_from_is_compacted_before_its_question() -> None:
    talk = Talk.of(10).answer("I think that")
    outcome = await House().decide(talk, policy())
    assert (outcome.result, outcome.level) == ("compacted", 0)
    assert texts(outcome)[-2:] == ["And now?", "I think that"]


async def test_standing_instructions_stay_at_the_head() -> None:
    talk = Talk({"role": "system", "content": "Be brief."}, *Talk.of(10).items)
    outcome = await House().decide(talk, policy())
    assert texts(outcome)[:2] == ["Be brief.", notice(16)]


@pytest.mark.parametrize("heads", [1, 2])
async def test_a_clock_in_the_instructions_at_the_head_costs_no_second_compaction(heads: int) -> None:
    """They stay as each request has them, so what they say changes nothing about what was compacted behind them."""
    house, sessions = House("The story so far."), set()
    talk = Talk(*({"role": "system", "content": "Be brief."} for _ in range(heads)), *Talk.of(10).items)
    for n in range(4):
        talk.items[heads - 1] = {"role": "system", "content": f"It is 12:0{n}. {words(100)} {words(20 * n)}"}
        outcome = await house.decide(talk, policy(strategy="summarize"))
        assert story(outcome) == (("replayed", "checkpoint") if n else ("compacted", "threshold"))
        assert sent(outcome)[heads - 1] == talk.items[heads - 1]
        assert "The story so far." in texts(outcome)[heads]
        sessions.add(outcome.session)
        talk.answer().ask(f"And {n}?")
    assert len(house.writer.jobs) == len(sessions) == 1


async def test_one_question_under_other_instructions_is_another_session() -> None:
    async def session(instructions: str) -> str:
        talk = Talk({"role": "system", "content": instructions}, *Talk.of(10).items)
        return (await House().decide(talk, policy())).session

    assert (
        await session("It is 12:03. Translate.") == await session("It is 9:17. Translate.") != await session("Count.")
    )


async def test_reasoning_that_a_client_takes_out_once_its_turn_is_over_costs_no_second_compaction() -> None:
    """DeepSeek's documentation has clients clear `reasoning_content` when the next question begins."""
    house = House("The story so far.")
    talk, rules = Talk.of(6).round().round(), policy(strategy="summarize")
    for item in talk.items:
        if item["role"] == "assistant":
            item["reasoning_content"] = f"Hm, {words(20)}"
    assert story(await house.decide(talk, rules)) == ("compacted", "threshold")
    for item in talk.answer().items:
        item.pop("reasoning_content", None)
    outcome = await house.decide(talk.ask("And then?"), rules)
    assert story(outcome) == ("replayed", "checkpoint")
    assert sent(outcome)[1:] == talk.items[12:]
    assert len(house.writer.jobs) == 1


async def test_instructions_that_move_along_with_the_question_cost_no_second_compaction() -> None:
    """What stays in front of the question (a clock, what was looked up for it) need not be there again."""
    house = House("The story so far.")
    talk = Talk.of(10)
    for n in range(4):
        clock = {"role": "system", "content": f"It is 12:0{n}."}
        moved = Talk(*talk.items[:-1], clock, talk.items[-1])
        outcome = await house.decide(moved, policy(strategy="summarize"))
        assert story(outcome) == (("replayed", "checkpoint") if n else ("compacted", "threshold"))
        assert sent(outcome)[-2:] == [clock, talk.items[-1]]
        talk.answer().ask(f"And {n}?")
    assert len(house.writer.jobs) == 1


# Declining


@pytest.mark.parametrize(
    ("talk", "rules", "told"),
    [
        (Talk.of(10), {"min_messages_before_compaction": 99}, ("declined", "too_few_messages")),
        (Talk.of(10), {"max_compactions_per_session": 0}, ("declined", "max_compactions")),
        (Talk().ask(words(2_000)), {}, ("passed", "nothing_before_turn")),
        (Talk({"role": "system", "content": words(2_000)}).ask("Well?"), {}, ("passed", "nothing_before_turn")),
        (Talk().answer(words(2_000)).answer("More."), {}, ("declined", "no_request")),
        (Talk().ask("Go.").round(2_000), {}, ("declined", "nothing_to_compact")),
        (Talk.of(10), {"keep_recent_messages": 99}, ("declined", "nothing_to_compact")),
        (Talk.of(10), {"compact_first_request": False}, ("passed", "first_request")),
        (Talk.of(10), {"clear_at_least": 5_000}, ("declined", "gain_too_small")),
        (Talk.of(10, 10).ask(words(5_000)), {"clear_at_least": 1}, ("declined", "gain_too_small")),
    ],
)
async def test_each_reason_not_to_compact_has_its_name(
    talk: Talk, rules: dict[str, Any], told: tuple[str, str]
) -> None:
    house = House()
    asked = talk.asked(policy(**rules))
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == told
    assert outcome.body is asked.opened.body
    assert outcome.before == outcome.after >= 1_000
    assert not house.witness.faults


async def test_a_note_that_is_longer_than_what_it_replaces_is_no_gain() -> None:
    talk = Talk().ask("A?").answer("B.").ask(words(2_000))
    outcome = await House("too much " * 300).decide(talk, policy(strategy="summarize"))
    assert story(outcome) == ("declined", "no_gain")


async def test_at_most_so_many_compactions_in_a_session() -> None:
    house, rules = House(), policy(max_compactions_per_session=2)
    talk, told = Talk.of(10), []
    for _ in range(4):
        told.append(story(await house.decide(talk, rules)))
        for n in range(12):
            talk.answer().ask(f"More {n}. {words(150)}")
    assert told == [("compacted", "threshold")] * 2 + [("replayed", "max_compactions")] * 2


async def test_a_conversation_that_was_seen_before_is_no_first_request() -> None:
    house, rules = House(), policy(compact_first_request=False)
    talk = Talk.of(2)
    outcome = await house.decide(talk, rules)
    await house.compactor.settle(outcome, 0)
    for n in range(10):
        talk.answer().ask(f"More {n}. {words(150)}")
    assert (await house.decide(talk, rules)).result == "compacted"


async def test_a_plan_that_breaks_a_rule_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate asks the rules again, whatever a strategy believes."""
    monkeypatch.setattr("app.strategies.stretch.rules.cuts", lambda facts: [True] * (len(facts) + 1))
    house = House()
    talk = Talk.of(10).answer().round().answer().ask("And?")
    asked = talk.asked(policy(keep_recent_messages=3))
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == ("declined", "would_violate")
    assert outcome.body is asked.opened.body
    assert house.witness.faults == [("gate", None)]


async def test_a_fault_that_the_client_brought_freezes_nothing_and_is_not_repaired() -> None:
    """A call without an answer and an answer without a call: the one may leave, the other stays as it came."""
    for late in (False, True):
        broken = Talk().ask("Go.").round()
        del broken.items[-1]
        broken.items.append({"role": "tool", "tool_call_id": "call_lost", "content": "What?"})
        talk = Talk(*(broken.items if not late else []), *Talk.of(10).items)
        if late:
            talk.items[-1:-1] = [*broken.items, {"role": "assistant", "content": "Hm."}]
        outcome = await House().decide(talk, policy(keep_recent_messages=4))
        assert outcome.result == "compacted"
        assert sent(outcome)[1:] == talk.items[-4:]


# Observing


async def test_observing_forwards_the_original_and_tells_what_would_be() -> None:
    house = House(store=(store := MemoryStore()))
    asked = Talk.of(10).asked(policy(mode="observe"), session="s")
    outcome = await house.compactor.decide(asked)
    assert story(outcome) == ("observed", "threshold")
    assert outcome.body is asked.opened.body
    assert not outcome.changed
    assert outcome.before > outcome.after > 0
    assert outcome.archive == ""
    assert outcome.compactions == 0
    assert (await store.archives())[0] == []
    session = await store.get_session("s")
    assert session is not None
    assert session.compactions == 0


async def test_what_was_observed_is_never_replayed_by_a_policy_that_is_on() -> None:
    house = House()
    talk = Talk.of(10)
    await house.decide(talk, policy(mode="observe"))
    again = await house.decide(talk, policy(mode="observe"))
    assert story(again) == ("observed", "checkpoint")
    outcome = await house.decide(talk, policy())
    assert story(outcome) == ("compacted", "threshold")
    assert outcome.archive


async def test_what_would_be_declined_is_declined_while_observing_too() -> None:
    outcome = await House().decide(Talk.of(10), policy(mode="observe", keep_recent_messages=99))
    assert story(outcome) == ("declined", "nothing_to_compact")


# When


async def test_a_conversation_that_rested_has_a_lower_trigger() -> None:
    rules = policy(trigger_threshold=3_000, idle_threshold=1_000, cache_ttl=300)
    for rest, told in ((0, ("passed", "below_threshold")), (600, ("compacted", "threshold"))):
        house = House(store=MemoryStore(StoreOptions(clock=lambda rest=rest: time.time() - rest)))  # type: ignore[misc]
        talk = Talk.of(10)
        await house.compactor.settle(await house.decide(talk, rules), 0)
        talk.answer().ask("Back again.")
        assert story(await house.decide(talk, rules)) == told


@pytest.mark.parametrize("turns", [3, 10])
async def test_after_an_overflow_the_count_was_wrong(turns: int) -> None:
    """Also where nothing had been worth counting."""
    house, rules = House(), policy(trigger_threshold=0.8, target_threshold=0.5)
    talk = Talk.of(turns)
    assert (await house.decide(talk, rules, window=100_000)).result == "passed"
    outcome = await house.decide(talk, rules, True, window=100_000)
    assert story(outcome) == ("compacted", "threshold")
    assert outcome.before >= 99_999
    assert outcome.after < outcome.before


async def test_the_trigger_may_be_a_share_of_the_window() -> None:
    rules = policy(trigger_threshold=0.8, target_threshold=0.5)
    talk = Talk.of(10)
    assert (await House().decide(talk, rules, window=3_000)).result == "passed"
    assert (await House().decide(talk, rules, window=1_900)).result == "compacted"


# After the answer


async def test_a_refused_compaction_is_never_used_again() -> None:
    house = House(store=(store := MemoryStore()))
    other = House(store=store)
    talk = Talk.of(10)
    await house.compactor.reject(await house.decide(talk, policy()))
    for replica in (house, other):
        assert story(await replica.decide(talk, policy())) == ("declined", "quarantined")
    for n in range(3):
        talk.answer().ask(f"More {n}.")
    outcome = await other.decide(talk, policy())
    assert story(outcome) == ("compacted", "threshold")
    assert texts(outcome)[0] == notice(len(talk.items) - 5)


async def test_a_refused_replay_falls_back_to_the_compaction_before_it() -> None:
    house = House()
    talk = Talk.of(10)
    first = sent(await house.decide(talk, policy()))
    for n in range(10):
        talk.answer().ask(f"More {n}. {words(150)}")
    await house.compactor.reject(await house.decide(talk, policy()))
    outcome = await house.decide(talk, policy())
    assert story(outcome) == ("replayed", "quarantined")
    assert sent(outcome)[: len(first)] == first


async def test_too_many_refusals_end_it() -> None:
    house, talk = House(), Talk.of(10)
    for n in range(MAX_REJECTIONS):
        outcome = await house.decide(talk, policy())
        assert outcome.result == "compacted"
        await house.compactor.reject(outcome)
        talk.answer().ask(f"More {n}.")
    assert story(await house.decide(talk, policy())) == ("declined", "rejected_before")


async def test_usage_that_was_reported_counts_from_then_on() -> None:
    """The second request's estimate is what was reported plus what is new, on the provider's scale."""
    house = House()
    rules = policy(trigger_threshold=20_000, target_threshold=10_000, compact_first_request=False)
    talk = Talk.of(30)
    first = await house.decide(talk, rules)
    assert first.source == "tiktoken"
    reported = int(first.before * 1.37)
    await house.compactor.settle(first, reported)
    talk.answer(words(400)).ask(words(300))
    second = await house.decide(talk, rules)
    assert second.source == "usage"
    assert second.before == pytest.approx(reported + 1.37 * 710, rel=0.02)


async def test_usage_of_a_compacted_request_scales_what_it_was_reported_for() -> None:
    house = House()
    talk = Talk.of(10)
    first = await house.decide(talk, policy())
    await house.compactor.settle(first, first.after * 2)
    second = await house.decide(talk.answer().ask("And?"), policy())
    assert second.source == "usage"
    assert second.after == pytest.approx(first.after * 2 + 22, rel=0.02)
    assert second.before > second.after


async def test_a_session_counts_what_happened() -> None:
    house = House(store=(store := MemoryStore()))
    talk = Talk.of(10)
    cleared = 0
    for n in range(3):
        outcome = await house.decide(talk, policy(strategy="summarize", keep_recent_turns=2), session="s")
        await house.compactor.settle(outcome, 100 + n)
        cleared += outcome.before - outcome.after
        talk.answer().ask(f"More {n}.")
    session = await store.get_session("s")
    assert session is not None
    assert (session.requests, session.compactions, session.rejections) == (3, 1, 0)
    assert (session.summary_input_tokens, session.summary_output_tokens, session.summary_cost) == (100, 10, 0.5)
    assert session.tokens_cleared == cleared
    assert (session.strategy, session.level, session.format, session.model) == ("summarize", 1, "openai-chat", "m")
    assert session.last_archive == outcome.archive
    assert [mark.reported for mark in session.usages] == [102, 101, 100]


# Whose it is


async def test_tenants_share_nothing() -> None:
    house = House()
    talk = Talk.of(10)
    mine = await house.decide(talk, policy(), tenant="mine")
    theirs = await house.decide(talk, policy(), tenant="theirs")
    assert mine.result == theirs.result == "compacted"
    assert mine.archive != theirs.archive
    assert mine.session != theirs.session


async def test_a_session_is_named_by_the_client_or_by_how_it_began() -> None:
    house = House()
    talk = Talk({"role": "system", "content": "S"}, *Talk.of(10).items)
    assert (await house.decide(talk, policy(), session="given")).session == "given"
    derived = (await house.decide(talk, policy())).session
    talk.answer().ask("More?")
    assert (await house.decide(talk, policy())).session == derived
    other = Talk({"role": "system", "content": "S"}, {"role": "user", "content": "Else"}, *Talk.of(10).items)
    assert (await house.decide(other, policy())).session != derived


async def test_the_fold_of_a_running_turn_goes_on_request_after_request() -> None:
    """protect_current_turn: false. The recap and its continuation are all that is left, and still the next fold has to come."""
    house = House()
    rules = policy(strategy="summarize", protect_current_turn=False)
    talk, told = Talk().ask("Do it."), []
    for _ in range(12):
        talk.round(200)
        outcome = await house.decide(talk, rules)
        told.append(outcome.result)
        if outcome.result == "compacted":
            assert [is_note(text) for text in texts(outcome)] == [True, True]
            assert texts(outcome)[1] == CONTINUATION
    assert told.count("compacted") >= 2, told
    assert set(told) == {"passed", "replayed", "compacted"}


# Replicas


class Together(MemoryStore):
    """A store that knows of no leases, and in which the replicas see the same at their first two looks: nobody goes on before all have
    looked."""

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self._looks, self._all = 2 * replicas, asyncio.Barrier(replicas)

    async def lookup(self, *args: Any) -> Found:
        found = await super().lookup(*args)
        if self._looks > 0:
            self._looks -= 1
            await self._all.wait()
        return found

    async def acquire(self, name: str, seconds: float) -> str | None:  # noqa: ARG002
        raise StoreFailed("acquire")


async def test_racing_replicas_forward_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Together(3)
    seconds = iter(range(1_000_000, 2_000_000, 7))
    monkeypatch.setattr(
        "app.archive.time.time", lambda: float(next(seconds))
    )  # so that each would name its archive differently
    replicas = [House(store=store) for _ in range(3)]
    talk = Talk.of(10)
    rules = policy(strategy="tool_result_clearing")
    talk.items[2:2] = Talk().ask("Go.").round(900).round(900).round(200).round(200).round(200).answer().items
    outcomes = await asyncio.gather(*(replica.decide(talk, rules) for replica in replicas))
    assert len({outcome.body for outcome in outcomes}) == 1
    assert len({outcome.archive for outcome in outcomes}) == 1
    assert outcomes[0].archive.encode() in outcomes[0].body
    assert {outcome.result for outcome in outcomes} == {"compacted"}
    assert len((await store.compactions())[0]) == 1
    later = await asyncio.gather(*(replica.decide(talk.answer().ask("And?"), rules) for replica in replicas))
    assert len({outcome.body for outcome in later}) == 1
    assert {outcome.result for outcome in later} == {"replayed"}


async def test_whoever_looks_again_and_compacts_after_all_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica was first, and what it made was refused or lost meanwhile."""
    house, talk = House(), Talk.of(10)
    firsts, faults = iter([False]), list[Any]()

    async def first_to_write(*_: Any) -> bool:
        ran.append(house.compactor.running(asked))
        return next(firsts, True)

    monkeypatch.setattr(house.compactor._filler, "first_to_write", first_to_write)
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    asked, ran = talk.asked(policy()), list[Any]()
    assert story(await house.compactor.decide(asked)) == ("compacted", "threshold")
    await asyncio.sleep(0)
    assert (faults, house.compactor.running(asked)) == ([], None)
    assert ran[0] is ran[1] is not None


async def test_what_one_replica_saw_refused_another_does_not_send() -> None:
    """The refusal comes while the other is at work."""

    class Late(MemoryStore):
        async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
            await super().put_checkpoint(tenant, checkpoint)
            await self.quarantine(tenant, checkpoint)
            return False

    asked = Talk.of(10).asked(policy())
    outcome = await House(store=Late()).compactor.decide(asked)
    assert story(outcome) == ("passed", "quarantined")
    assert outcome.body is asked.opened.body


# A store that fails

METHODS = [
    "lookup", "put_checkpoint", "quarantine", "update_session", "put_archive", "put_compaction", "acquire", "release",
]  # fmt: skip


class Failing(MemoryStore):
    """A store whose `broken` methods do as `fault` says."""

    def __init__(self, broken: list[str], fault: Callable[[], Any]) -> None:
        super().__init__()
        for name in broken:
            setattr(self, name, self._failing(fault))

    @staticmethod
    def _failing(fault: Callable[[], Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
            return await fault()

        return call


async def refuses() -> None:
    raise StoreFailed("refused")


async def breaks() -> None:
    raise RuntimeError("broken")


async def hangs() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("fault", [refuses, breaks, hangs])
@pytest.mark.parametrize("broken", [*([method] for method in METHODS), METHODS], ids=lambda names: "+".join(names)[:30])
async def test_a_failing_store_stops_no_request(broken: list[str], fault: Callable[[], Any]) -> None:
    house = House(store=Failing(broken, fault), timeout=0.02)
    talk, told = Talk.of(10), []
    for n in range(3):
        outcome = await house.decide(talk, policy(strategy="summarize"), session="s")
        await house.compactor.settle(outcome, 500)
        told.append(outcome)
        talk.answer().ask(f"More {n}.")
    assert [outcome.result for outcome in told] == ["compacted", "replayed", "replayed"]
    assert all(outcome.body.startswith(told[0].body.removesuffix(b"]}")) for outcome in told)
    assert (told[0].archive == "") == ("put_archive" in broken)
    assert len(house.writer.jobs) == 1
    assert (told[2].reason == "store_unavailable") == ("lookup" in broken)
    await house.compactor.reject(told[2])
    assert (await house.decide(talk, policy(strategy="summarize"), session="s")).result in ("declined", "compacted")
    assert not [fault for fault in house.witness.faults if fault[0] == "decide"]


async def test_without_an_archive_no_note_refers_to_one() -> None:
    house = House(store=Failing(["put_archive"], refuses))
    outcome = await house.decide(Talk.of(10), policy(strategy="summarize"))
    assert outcome.result == "compacted"
    assert outcome.archive == ""
    assert b"/compactd/archives/" not in outcome.body
    assert house.witness.archives == [("store", "StoreFailed")]


async def test_a_later_failure_does_not_forget_earlier_archives() -> None:
    house = House(store=(store := MemoryStore()))
    talk = Talk.of(10)
    first = await house.decide(talk, policy())
    for n in range(10):
        talk.answer().ask(f"More {n}. {words(150)}")
    setattr(store, "put_archive", Failing._failing(refuses))  # noqa: B010
    second = await house.decide(talk, policy())
    assert second.result == "compacted"
    assert second.archive == first.archive


# Leaving


async def test_a_client_that_leaves_finds_it_done_later() -> None:
    class Slow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.go, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def put_archive(self, archive: Archive) -> None:
            self.asked.set()
            await self.go.wait()
            await super().put_archive(archive)

        async def put_compaction(self, compaction: Compaction) -> None:
            await super().put_compaction(compaction)
            self.done.set()

    house = House(store=(store := Slow()))
    talk = Talk.of(10)
    task = asyncio.create_task(house.decide(talk, policy()))
    await store.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.go.set()
    await store.done.wait()
    assert story(await house.decide(talk, policy())) == ("replayed", "checkpoint")
    assert not house.witness.faults


async def test_body_that_is_not_utf8_passes_whatever_strategy_and_standing_rule() -> None:
    talk = Talk.of(10, x="\u00e4")
    body = talk.body.replace("\u00e4".encode(), b"\xe4")
    for rules in (policy(), policy(strategy="summarize"), policy(history_mode="messages_only")):
        house = House()
        outcome = await house.decide(talk, rules, body=body)
        assert (outcome.body, outcome.result, outcome.reason) == (body, "passed", "not_utf8")
        assert not house.writer.jobs


async def test_what_the_providers_own_compaction_has_replaced_counts_no_more_and_is_no_gain() -> None:
    """Anthropic ignores all that stands before its `compaction` block, and clients go on sending it (A59)."""
    rules, talk = policy(strategy="summarize", summary_model=None), Talk.of(20, form="anthropic-messages", max_tokens=9)
    block = {"type": "compaction", "content": "Twenty questions were asked."}
    talk.items.append({"role": "assistant", "content": [block, {"type": "text", "text": "I go on."}]})
    house = House("The story since.")
    outcome = await house.decide(talk.ask("And now?"), rules)
    assert story(outcome) == ("passed", "below_threshold")
    assert outcome.before < 100
    dead = len(talk.items) - 1
    for n in range(8):
        talk.answer(f"Answer {n}.").ask(f"Question {n}. {words(150)}")
    outcome = await house.decide(talk, rules)
    assert story(outcome) == ("compacted", "threshold")
    assert sent(outcome)[:dead] == talk.items[:dead]
    assert "The story since." in texts(outcome)[dead]
    assert sent(outcome)[dead + 1 :] == talk.items[-1:]
    assert outcome.after < outcome.before < 2_000
