"""Reasoning that is bound to its prefix: asked to be dropped, taken out, or a reason to leave the request alone (AB1 to AB5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.formats.anthropic_messages import BINDING_BETA
from app.request import Outcome
from tests.story import House, Item, Talk, policy, sent, words

QUIRKS = ("binds_thinking",)
ADAPTIVE = {"thinking": {"type": "adaptive"}}


def thought(*blocks: Item) -> Item:
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, *blocks]}


def said(text: str) -> Item:
    return {"type": "text", "text": text}


def talk(*tail: Item, **fields: Any) -> Talk:
    """Ten turns that were thought about, and a question or a tail of its own."""
    items: list[Item] = []
    for n in range(10):
        items += [{"role": "user", "content": f"{n}. {words(150)}"}, thought(said(f"Answer {n}."))]
    return Talk(
        *items, *(tail or [{"role": "user", "content": "And now?"}]), form="anthropic-messages", max_tokens=9, **fields
    )


def running(**fields: Any) -> Talk:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    return talk({"role": "user", "content": "Go."}, thought(use), {"role": "user", "content": [result]}, **fields)


def thoughts(outcome: Outcome) -> int:
    return outcome.body.count(b'"signature"')


def rest(outcome: Outcome) -> Item:
    body: Item = json.loads(outcome.body)
    return {key: value for key, value in body.items() if key != "messages"}


async def test_the_provider_is_asked_to_drop_what_does_not_fit() -> None:
    house = House()
    asked = talk(**ADAPTIVE)
    for result in ("compacted", "replayed"):
        outcome = await house.decide(asked, policy(), quirks=QUIRKS)
        assert outcome.result == result
        assert outcome.beta == BINDING_BETA
        assert rest(outcome)["thinking"] == {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        }
        assert sent(outcome)[1:] == asked.items[-5:]
    assert not house.witness.warnings


async def test_in_a_tool_loop_too() -> None:
    outcome = await House().decide(running(**ADAPTIVE), policy(), quirks=QUIRKS)
    assert (outcome.result, outcome.beta, thoughts(outcome)) == ("compacted", BINDING_BETA, 2)


async def test_a_client_that_has_asked_already_is_left_as_it_is() -> None:
    fields = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    asked = talk(**fields)
    outcome = await House().decide(asked, policy(), quirks=QUIRKS)
    assert (outcome.result, outcome.beta) == ("compacted", "")
    assert rest(outcome) == asked.fields
    assert thoughts(outcome) == 2


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}, {}),
        (ADAPTIVE, {"thinking_binding": "error"}),
    ],
)
async def test_where_an_error_is_wanted_the_request_is_left_alone(fields: Item, rules: Item) -> None:
    asked = talk(**fields).asked(policy(**rules), quirks=QUIRKS)
    outcome = await House().compactor.decide(asked)
    assert (outcome.result, outcome.reason) == ("declined", "thinking_bound")
    assert outcome.body is asked.opened.body


@pytest.mark.parametrize(
    ("fields", "rules"), [(ADAPTIVE, {"thinking_binding": "strip"}), ({}, {}), ({"thinking": {"type": "disabled"}}, {})]
)
async def test_what_can_not_be_asked_for_is_taken_out(fields: Item, rules: Item) -> None:
    house = House()
    asked = talk(**fields)
    outcome = await house.decide(asked, policy(**rules), quirks=QUIRKS)
    assert (outcome.result, outcome.beta, thoughts(outcome)) == ("compacted", "", 0)
    assert rest(outcome) == asked.fields
    assert [item["content"] for item in sent(outcome)[2::2]] == [[said("Answer 8.")], [said("Answer 9.")]]
    assert [event for event, _ in house.witness.warnings] == ["reasoning_removed"]
    assert house.witness.warnings[0][1]["strategy"] == "sliding_window"
    asked.items += [thought(said("Well.")), {"role": "user", "content": "And?"}]
    again = await house.decide(asked, policy(**rules), quirks=QUIRKS)
    assert (again.result, thoughts(again)) == ("replayed", 1)  # made behind what is replayed, so it fits
    assert sent(again)[: len(sent(outcome))] == sent(outcome)


@pytest.mark.parametrize(("fields", "rules"), [(ADAPTIVE, {"thinking_binding": "strip"}), ({}, {})])
async def test_the_running_rounds_blocks_are_never_taken(fields: Item, rules: Item) -> None:
    """A28: they have to come back as they are."""
    house = House()
    outcome = await house.decide(running(**fields), policy(**rules), quirks=QUIRKS)
    assert (outcome.result, outcome.reason) == ("declined", "thinking_bound")
    assert not house.witness.warnings


async def test_blocks_that_leave_anyway_are_no_matter() -> None:
    house = House()
    outcome = await house.decide(talk(), policy(keep_recent_messages=1, thinking_binding="error"), quirks=QUIRKS)
    assert outcome.result == "compacted"
    assert thoughts(outcome) == 0


async def test_clearing_changes_the_prefix_of_what_follows() -> None:
    items: list[Item] = [{"role": "user", "content": "Go."}]
    for n in range(6):
        use = {"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": words(300)}
        items += [thought(use), {"role": "user", "content": [result]}]
    asked = Talk(
        *items, thought(said("Done.")), {"role": "user", "content": "And?"}, form="anthropic-messages", max_tokens=9
    )
    outcome = await House().decide(asked, policy(strategy="tool_result_clearing"), quirks=QUIRKS)
    assert outcome.result == "compacted"
    kept = [item["content"][0]["type"] for item in sent(outcome) if item["role"] == "assistant"]
    assert kept == ["thinking"] + ["tool_use"] * 5 + ["text"]


async def test_a_message_of_nothing_else_keeps_a_line() -> None:
    """A26."""
    asked = talk(thought(), {"role": "user", "content": "Go on."})
    asked.items.insert(-2, {"role": "user", "content": "Well?"})
    outcome = await House().decide(asked, policy(), quirks=QUIRKS)
    assert outcome.result == "compacted"
    assert sent(outcome)[-2]["content"] == [said("[Reasoning removed by compaction.]")]


async def test_other_models_are_asked_for_nothing() -> None:
    outcome = await House().decide(talk(**ADAPTIVE), policy(thinking_binding="strip"))
    assert (outcome.result, outcome.beta, thoughts(outcome)) == ("compacted", "", 2)
    assert rest(outcome)["thinking"] == {"type": "adaptive"}


async def test_what_is_not_compacted_is_not_asked_about() -> None:
    for rules in (policy(trigger_threshold=5_000), policy(mode="observe")):
        asked = talk(**ADAPTIVE).asked(rules, quirks=QUIRKS)
        outcome = await House().compactor.decide(asked)
        assert outcome.body is asked.opened.body
        assert outcome.beta == ""
