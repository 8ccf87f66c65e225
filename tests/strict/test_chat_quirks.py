"""The rules of servers that speak the chat format but refuse more than OpenAI does."""

from __future__ import annotations

from typing import Any

from .samples import calls, chat, tool
from .samples import rules as rules_of

SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "Read it."}
DONE = {"role": "assistant", "content": "Done."}
ROUND = (calls("a"), tool("a"))


def rules(quirk: str, *messages: Any) -> set[str]:
    assert rules_of("openai-chat", chat(*messages)) == set()  # OpenAI itself accepts them
    return rules_of("openai-chat", chat(*messages), quirks=frozenset({quirk}))


def test_Q1_as_many_answers_as_calls() -> None:
    assert rules("mistral_order", ASK, calls("a", "b"), tool("a"), tool("b")) == set()
    body = chat(ASK, calls("a", "b"), tool("a"), DONE, ASK)
    assert "Q1" in rules_of("openai-chat", body, quirks=frozenset({"mistral_order"}))
    body = chat(ASK, calls("a", "b"), tool("a"))
    assert "Q1" in rules_of("openai-chat", body, quirks=frozenset({"mistral_order"}))
    body = chat(ASK, calls("a"), tool("b"))
    assert "Q1" in rules_of("openai-chat", body, quirks=frozenset({"mistral_order"}))


def test_Q2_no_user_straight_after_a_tool() -> None:
    assert rules("mistral_order", ASK, *ROUND, DONE, ASK) == set()
    assert rules("mistral_order", ASK, *ROUND, ASK) == {"Q2"}


def test_Q3_first_and_last_roles() -> None:
    assert rules("mistral_order", SYSTEM, ASK) == set()
    assert rules("mistral_order", DONE, ASK) == {"Q3"}
    assert rules("mistral_order", ASK, DONE) == {"Q3"}
    assert rules("mistral_order", ASK, DONE | {"prefix": True}) == set()
    assert rules("mistral_order", ASK, DONE | {"prefix": True}, ASK) == {"Q3"}


def test_Q4_ids_of_nine_characters() -> None:
    assert rules("mistral_ids", ASK, calls("abcDEF123"), tool("abcDEF123")) == set()
    assert rules("mistral_ids", ASK, calls("call_1"), tool("call_1")) == {"Q4"}


def test_Q5_an_assistant_says_something_and_system_is_not_empty() -> None:
    assert rules("mistral_order", ASK, {"role": "assistant", "content": ""}, ASK) == {"Q5"}
    assert rules("mistral_order", SYSTEM | {"content": ""}, ASK) == {"Q5"}


def test_Q6_a_kept_call_keeps_its_reasoning() -> None:
    assert rules("deepseek_reasoning", ASK, calls("a", reasoning_content="Hm."), tool("a"), DONE, ASK) == set()
    assert rules("deepseek_reasoning", ASK, *ROUND) == {"Q6"}


def test_Q10_reasoning_in_the_input_is_refused() -> None:
    assert rules("refuses_reasoning", ASK, DONE, ASK) == set()
    assert rules("refuses_reasoning", ASK, DONE | {"reasoning_content": "Hm."}, ASK) == {"Q10"}


def test_Q15_roles_alternate_and_system_is_first() -> None:
    assert rules("alternating_roles", SYSTEM, ASK, *ROUND, DONE, ASK) == set()
    assert rules("alternating_roles", ASK, ASK) == {"Q15"}
    assert rules("alternating_roles", ASK, *ROUND, ASK) == {"Q15"}
    assert rules("alternating_roles", DONE, ASK) == {"Q15"}
    assert rules("alternating_roles", ASK, SYSTEM, DONE, ASK) == {"Q15"}
    assert rules("alternating_roles", SYSTEM, SYSTEM, ASK) == {"Q15"}


def test_Q17_there_is_a_question() -> None:
    assert rules("alternating_roles", SYSTEM, ASK) == set()
    assert rules("alternating_roles", SYSTEM, *ROUND) == {"Q17"}


def test_Q26_system_and_tool_in_their_places() -> None:
    assert rules("mistral_order", SYSTEM, ASK, *ROUND, DONE, ASK) == set()
    assert rules("mistral_order", ASK, DONE, SYSTEM, ASK) == {"Q26"}
    body = chat(ASK, tool("a"))
    assert "Q26" in rules_of("openai-chat", body, quirks=frozenset({"mistral_order"}))


def test_C28_signatures_of_the_current_turn() -> None:
    signed = calls("a", "b")
    signed["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "sig"}}
    assert rules("thought_signatures", ASK, signed, tool("a"), tool("b")) == set()
    assert rules("thought_signatures", ASK, *ROUND, DONE, ASK) == set()  # an earlier turn is not checked
    assert rules("thought_signatures", ASK, *ROUND) == {"C28"}
