"""Each chat rule with a body that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

from .openai_chat import violations
from .samples import calls, chat, tool
from .samples import rules as rules_of

ASK = {"role": "user", "content": "Read it."}
DONE = {"role": "assistant", "content": "Done."}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def rules(*messages: Any, model: str = "gpt-4o", quirks: frozenset[str] = frozenset(), **more: Any) -> set[str]:
    return rules_of("openai-chat", chat(*messages, **({"model": model} | more)), quirks=quirks)


def test_C1_every_call_is_answered_at_once() -> None:
    assert rules(ASK, calls("a", "b"), tool("b"), tool("a"), ASK) == set()
    assert rules(ASK, calls("a", "b"), tool("a"), ASK) == {"C1"}
    assert rules(ASK, calls("a")) == {"C1"}


def test_C2_a_tool_message_has_its_call() -> None:
    assert rules(ASK, calls("a"), tool("a")) == set()
    assert rules(tool("a"), ASK) == {"C2"}
    assert rules(ASK, DONE, tool("a")) == {"C2"}


def test_C2_ids_may_come_again_in_a_later_round() -> None:
    assert rules(ASK, calls("a"), tool("a"), calls("a"), tool("a")) == set()


def test_C3_nothing_stands_between_call_and_answer() -> None:
    assert rules(ASK, calls("a"), tool("a"), ASK) == set()
    assert "C3" in rules(ASK, calls("a"), ASK, tool("a"))


def test_C4_one_of_parallel_calls_can_not_lose_its_answer() -> None:
    assert rules(ASK, calls("a", "b"), tool("b")) == {"C1"}
    assert rules(ASK, calls("b"), tool("b")) == set()


def test_C5_one_answer_per_call_and_one_call_per_id() -> None:
    assert rules(ASK, calls("a"), tool("a"), tool("a")) == {"C5"}
    assert rules(ASK, calls("a", "a"), tool("a")) == {"C5"}


def test_C6_tool_calls_is_not_empty() -> None:
    assert rules(ASK, DONE | {"tool_calls": []}) == {"C6"}


def test_C7_call_ids_have_at_most_40_characters() -> None:
    assert rules(ASK, calls("a" * 40), tool("a" * 40)) == set()
    assert rules(ASK, calls("a" * 41), tool("a" * 41)) == {"C7"}


def test_C8_arguments_are_a_string() -> None:
    call = calls("a")
    call["tool_calls"][0]["function"]["arguments"] = {"path": "x"}
    assert rules(ASK, call, tool("a")) == {"C8"}


def test_Q14_arguments_are_the_json_of_an_object() -> None:
    call = calls("a")
    call["tool_calls"][0]["function"]["arguments"] = '{"path": "x'
    assert rules(ASK, call, tool("a")) == set()  # OpenAI tolerates it
    assert rules(ASK, call, tool("a"), quirks=frozenset({"json_arguments"})) == {"Q14"}
    assert rules(ASK, calls("a"), tool("a"), quirks=frozenset({"json_arguments"})) == set()


def test_C9_null_content_only_beside_calls() -> None:
    assert rules(ASK, calls("a"), tool("a")) == set()
    assert rules(ASK, {"role": "assistant", "content": ""}) == set()
    assert rules(ASK, {"role": "assistant", "content": None}) == {"C9"}
    assert rules(ASK, {"role": "assistant"}) == {"C9"}


def test_C10_other_roles_need_content() -> None:
    assert rules({"role": "system", "content": "Be brief."}, ASK) == set()
    for role in ("system", "developer", "user"):
        assert rules({"role": role, "content": None}) == {"C10"}
    assert rules(ASK, calls("a"), tool("a", None)) == {"C10"}
    assert rules({"role": "robot", "content": "hi"}) == {"C10"}


def test_C11_parts_fit_their_role_and_are_not_empty() -> None:
    assert rules({"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]}) == set()
    assert rules({"role": "user", "content": []}) == {"C11"}
    assert rules({"role": "user", "content": {"text": "hi"}}) == {"C11"}
    assert rules({"role": "user", "content": [{"type": "text", "text": 7}]}) == {"C11"}
    assert rules({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}) == {"C11"}
    assert rules(ASK, {"role": "assistant", "content": [{"type": "file", "file": {}}]}) == {"C11"}


def test_C12_images_only_from_users() -> None:
    assert rules(ASK, calls("a"), tool("a", [{"type": "text", "text": "hi"}])) == set()
    assert rules(ASK, calls("a"), tool("a", [IMAGE])) == {"C12"}
    assert rules(ASK, {"role": "assistant", "content": [IMAGE]}) == {"C12"}


def test_C13_a_refusal_stands_alone() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    assert rules(ASK, {"role": "assistant", "content": [refusal]}) == set()
    assert rules(ASK, {"role": "assistant", "content": [refusal, {"type": "text", "text": "but"}]}) == {"C13"}


def test_C15_a_function_call_has_its_function_message() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}}
    answer = {"role": "function", "name": "read", "content": None}
    assert rules(ASK, call, answer) == set()
    assert rules(ASK, call, ASK) == {"C15"}
    assert rules(ASK, call) == {"C15"}
    assert rules(ASK, answer) == {"C15"}
    assert rules(ASK, call, answer | {"name": "write"}) == {"C15"}
    both = violations(chat(ASK, calls("a") | {"function_call": call["function_call"]}, tool("a"), answer))
    assert any("may not both be set" in violation.message for violation in both)


def test_C16_custom_calls_carry_free_text() -> None:
    call = calls("a")
    call["tool_calls"][0] = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "not json"}}
    assert rules(ASK, call, tool("a")) == set()
    del call["tool_calls"][0]["custom"]["input"]
    assert rules(ASK, call, tool("a")) == {"C16"}


def test_C19_names_have_plain_characters() -> None:
    assert rules(ASK | {"name": "Ann_2"}) == set()
    assert rules(ASK | {"name": "Ann B."}) == {"C19"}


def test_C22_there_is_a_message() -> None:
    assert rules() == {"C22"}


def test_C24_a_forced_tool_exists() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    forced = {"type": "function", "function": {"name": "read"}}
    assert rules(ASK, tools=tools, tool_choice=forced) == set()
    assert rules(ASK, tools=[], tool_choice=forced) == {"C24"}


def test_C26_a_breakpoint_stands_on_a_part_that_carries_it() -> None:
    marked = {"type": "text", "text": "hi", "prompt_cache_breakpoint": {}}
    assert rules({"role": "user", "content": [marked]}, model="gpt-5.6") == set()
    assert rules({"role": "user", "content": [marked]}, model="gpt-4o") == {"C26"}
    assert "C26" in rules({"role": "user", "content": [marked | {"type": "odd"}]}, model="gpt-5.6")


def test_C29_json_mode_needs_the_word() -> None:
    form: dict[str, Any] = {"response_format": {"type": "json_object"}}
    assert rules({"role": "system", "content": "Answer in JSON."}, ASK, **form) == set()
    assert rules(ASK, **form) == {"C29"}
