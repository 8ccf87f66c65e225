"""Roles, order and endings of Anthropic's messages, kept and broken."""

from __future__ import annotations

from typing import Any

from .samples import anthropic, assistant, message, result, server_result, server_use, thinking, use, user
from .samples import rules as rules_of

ASK = user("Read it.")
SYSTEM = message("system", "Be brief.")
MANUAL: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
COMPACTION = {"type": "compaction", "content": "Before: much."}


def rules(*messages: Any, quirks: frozenset[str] = frozenset(), **more: Any) -> set[str]:
    return rules_of("anthropic-messages", anthropic(*messages, **more), quirks=quirks)


def spoken(*messages: Any) -> set[str]:
    """On a model that takes system messages in mid-conversation."""
    return rules(*messages, model="claude-opus-5")


def test_A15_the_user_is_first() -> None:
    assert rules(ASK) == set()
    assert rules(assistant("Hello."), ASK) == {"A15"}
    assert rules(ASK, message("tool", "done")) == {"A15"}


def test_A16_neighbours_of_one_role_are_merged_but_not_by_gateways() -> None:
    assert rules(ASK, ASK, assistant("a"), assistant("b"), ASK) == set()
    assert rules(ASK, ASK, quirks=frozenset({"alternating_roles"})) == {"A16"}
    assert rules(ASK, assistant("a"), ASK, quirks=frozenset({"alternating_roles"})) == set()


def test_A17_a_note_before_a_result_carrier_separates_it_from_its_call() -> None:
    assert rules(ASK, assistant(use()), user("Summary."), user(result())) == {"A1", "A4"}


def test_A18_there_is_a_message() -> None:
    assert rules() == {"A18"}
    assert rules(*[ASK] * 100_001) == {"A18"}


def test_A19_a_system_message_has_few_places() -> None:
    assert spoken(ASK, SYSTEM) == set()
    assert spoken(ASK, SYSTEM, assistant("Yes."), ASK) == set()
    assert spoken(ASK, assistant(use()), user(result()), SYSTEM) == set()
    assert spoken(ASK, assistant(server_use(), server_result()), SYSTEM) == set()
    assert spoken(SYSTEM, ASK) == {"A19"}
    assert spoken(SYSTEM, assistant("Yes."), ASK) == {"A19"}
    assert spoken(ASK, SYSTEM, ASK) == {"A19"}
    assert spoken(ASK, assistant("Yes."), SYSTEM) == {"A19"}
    assert "A19" in spoken(ASK, assistant(use()), SYSTEM, user(result()))


def test_A20_several_system_messages_are_one_section() -> None:
    assert spoken(ASK, SYSTEM, SYSTEM, assistant("Yes."), ASK) == set()
    assert spoken(ASK, SYSTEM, SYSTEM, ASK) == {"A19"}


def test_A23_older_models_take_no_system_message() -> None:
    assert rules(ASK, SYSTEM, model="claude-opus-4-8") == set()
    assert rules(ASK, SYSTEM, model="claude-sonnet-5") == {"A23"}
    assert rules(ASK, SYSTEM, model="claude-sonnet-4-5") == {"A23"}


def test_A27_a_prefill_does_not_end_in_whitespace() -> None:
    assert rules(ASK, assistant("{")) == set()
    assert rules(ASK, assistant("{ ")) == {"A27"}
    assert rules(ASK, assistant("{", "x\n")) == {"A27"}


def test_A27a_newer_models_and_thinking_take_no_prefill() -> None:
    assert rules(ASK, assistant("{"), model="claude-opus-4-5") == set()
    assert rules(ASK, assistant("{"), model="claude-opus-4-6") == {"A27a"}
    assert rules(ASK, assistant(thinking(), "{"), **MANUAL) == {"A27a"}


def test_A27b_a_paused_turn_may_be_last() -> None:
    assert rules(ASK, assistant("Searching.", server_use()), model="claude-opus-5") == set()
    call = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "s", "input": {}}
    assert rules(ASK, assistant("Calling.", call), model="claude-opus-5") == set()
    assert rules(ASK, assistant("Searching."), model="claude-opus-5") == {"A27a"}


def test_A30_manual_thinking_begins_the_turn() -> None:
    assert rules(ASK, assistant(thinking(), use()), user(result()), **MANUAL) == set()
    assert rules(ASK, assistant(use()), user(result()), **MANUAL) == {"A30"}
    assert rules(ASK, assistant("Reading.", thinking(), use()), user(result()), **MANUAL) == {"A30"}


def test_A30_later_steps_of_the_turn_and_adaptive_thinking_are_free() -> None:
    steps = (assistant(thinking(), use("a")), user(result("a")), assistant(use("b")), user(result("b")))
    assert rules(ASK, *steps, **MANUAL) == set()
    assert rules(ASK, *steps[2:], **MANUAL) == {"A30"}
    assert rules(ASK, *steps[2:], model="claude-opus-5", thinking={"type": "adaptive"}) == set()


def test_A31_thinking_of_finished_turns_may_be_left_out() -> None:
    assert rules(ASK, assistant(use()), user(result()), assistant("Done."), ASK, **MANUAL) == set()


def test_A60_the_list_may_open_on_a_compaction() -> None:
    assert rules(assistant(COMPACTION, "So far."), ASK) == set()
    assert rules(assistant("So far."), ASK) == {"A15"}


def test_A62_a_fresh_compaction_may_be_last() -> None:
    assert rules(ASK, assistant(COMPACTION), model="claude-opus-5") == set()
