"""Each Gemini rule with a body that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

from .samples import content, function, gemini, response
from .samples import rules as rules_of

ASK = content("user", "Read it.")
DONE = content("model", "Done.")
CALL = content("model", function())
ANSWER = content("user", response())
SIGNED = content("model", function(thoughtSignature="sig"), function("write"))
BOTH = content("user", response(), response("write"))


def rules(
    *contents: Any, model: str = "gemini-2.5-flash", quirks: frozenset[str] = frozenset(), **more: Any
) -> set[str]:
    return rules_of("gemini", gemini(*contents, **more), model=model, quirks=quirks)


def test_G1_roles() -> None:
    assert rules({"parts": [{"text": "hi"}]}) == set()
    assert rules(ASK, CALL, ANSWER | {"role": "function"}) == set()
    assert rules(content("assistant", "hi"), ASK) == {"G1"}


def test_G2_a_call_follows_the_user() -> None:
    assert rules(ASK, CALL, ANSWER, CALL, ANSWER) == set()
    assert rules(CALL, ANSWER) == {"G2"}
    assert rules(ASK, DONE, CALL, ANSWER) == {"G2"}


def test_G3_as_many_responses_as_calls() -> None:
    assert rules(ASK, SIGNED, BOTH) == set()
    assert rules(ASK, SIGNED, ANSWER) == {"G3"}
    assert rules(ASK, CALL, ASK) == {"G3"}
    assert rules(ASK, CALL, BOTH) == {"G3"}


def test_G3_a_response_sent_twice_counts_once() -> None:
    call = content("model", {"functionCall": {"name": "read", "args": {}, "id": "1"}})
    assert rules(ASK, call, content("user", response(id="1"), response(id="1"))) == set()
    assert rules(ASK, call, content("user", response(id="1"), response(id="1", value={"output": "other"}))) == {"G3"}


def test_G4_a_response_follows_its_call() -> None:
    assert rules(ANSWER) == {"G4"}
    assert rules(ASK, DONE, ANSWER) == {"G4"}
    assert rules(ASK, SIGNED, ANSWER, content("user", response("write"))) == {"G3", "G4"}


def test_G6_the_last_turn_is_the_users() -> None:
    assert rules(ASK, DONE, ASK) == set()
    assert rules(ASK, DONE) == {"G6"}


def test_G7_roles_alternate_on_older_models() -> None:
    assert rules(ASK, ASK) == set()
    assert rules(ASK, ASK, quirks=frozenset({"alternating_roles"})) == {"G7"}


def test_G9_a_response_names_its_call() -> None:
    assert rules(ASK, CALL, content("user", response("write"))) == {"G9"}
    assert rules(ASK, CALL, content("user", response(value="done"))) == {"G9"}
    numbered = content("model", {"functionCall": {"name": "read", "id": "1"}})
    assert rules(ASK, numbered, content("user", response(id="1"))) == set()
    assert rules(ASK, numbered, content("user", response(id="2"))) == {"G9"}


def test_G10_arguments_are_an_object() -> None:
    assert rules(ASK, content("model", {"functionCall": {"name": "read", "args": "{}"}}), ANSWER) == {"G10"}


def test_G11_the_first_call_of_each_step_is_signed() -> None:
    assert rules(ASK, SIGNED, BOTH, model="gemini-3-pro-preview") == set()
    assert rules(ASK, CALL, ANSWER, model="gemini-3-pro-preview") == {"G11"}
    assert rules(ASK, SIGNED, BOTH, CALL, ANSWER, model="gemini-3.5-flash") == {"G11"}
    assert rules(ASK, CALL, ANSWER, quirks=frozenset({"thought_signatures"})) == {"G11"}


def test_G12_earlier_turns_are_not_checked() -> None:
    assert rules(ASK, CALL, ANSWER, DONE, ASK, SIGNED, BOTH, model="gemini-3-pro") == set()
    mixed = content("user", response(), "and now this")
    assert rules(ASK, CALL, mixed, SIGNED, BOTH, model="gemini-3-pro") == set()


def test_G13_only_the_first_of_parallel_calls_is_signed() -> None:
    late = content("model", function(), function("write", thoughtSignature="sig"))
    assert rules(ASK, late, BOTH, model="gemini-3-pro") == {"G11"}


def test_G16_a_placeholder_is_a_signature() -> None:
    made_up = content("model", function(thoughtSignature="skip_thought_signature_validator"))
    assert rules(ASK, made_up, ANSWER, model="gemini-3-pro") == set()


def test_G18_a_part_holds_one_thing() -> None:
    assert rules(content("user", {"inlineData": {"mimeType": "image/png", "data": "AA=="}})) == set()
    assert rules(content("user", {})) == {"G18"}
    assert rules(content("user", "")) == {"G18"}
    assert rules(content("user", {"text": "hi", "fileData": {"fileUri": "x"}})) == {"G18"}
    assert rules(ASK, systemInstruction={"parts": [{"text": ""}]}) == {"G18"}


def test_G18_a_signature_may_arrive_with_empty_text() -> None:
    assert rules(ASK, content("model", {"text": "", "thoughtSignature": "sig"}), ASK) == set()


def test_G18_a_new_kind_of_part_is_left_alone() -> None:
    assert rules(content("user", {"holograph": {}}), ASK) == set()


def test_G19_parts_are_not_empty() -> None:
    assert rules(content("user"), ASK) == {"G19"}
    assert rules({"role": "user"}, ASK) == {"G19"}


def test_G20_contents_are_not_empty() -> None:
    assert rules() == {"G20"}


def test_G21_cached_content_stands_alone() -> None:
    assert rules(ASK, cachedContent="cachedContents/1") == set()
    for key in ("systemInstruction", "tools", "toolConfig"):
        value: Any = [{"functionDeclarations": []}] if key == "tools" else {"parts": [{"text": "hi"}]}
        assert rules(ASK, cachedContent="cachedContents/1", **{key: value}) == {"G21"}


def test_G22_cached_content_may_hold_the_call() -> None:
    assert rules(ANSWER, cachedContent="cachedContents/1") == set()
    assert rules(ANSWER) == {"G4"}


def test_G23_the_system_instruction_is_text() -> None:
    assert rules(ASK, system_instruction={"parts": [{"text": "Be brief."}]}) == set()
    assert rules(ASK, system_instruction={"parts": [{"fileData": {"fileUri": "x"}}]}) == {"G23"}


def test_G25_code_and_result_go_together() -> None:
    code, outcome = {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}
    assert rules(ASK, content("model", code, outcome, "One."), ASK) == set()
    assert rules(ASK, content("model", code, "One."), ASK) == {"G25"}
    assert rules(ASK, content("model", outcome, "One."), ASK) == {"G25"}


def test_G26_a_tool_response_has_its_tool_call() -> None:
    call, answer = {"toolCall": {"id": "1"}}, {"toolResponse": {"id": "1"}}
    assert rules(ASK, content("model", call, answer), ASK) == set()
    assert rules(ASK, content("model", answer), ASK) == {"G26"}


def test_G29_allowed_names_are_declared() -> None:
    tools = [{"functionDeclarations": [{"name": "read"}]}]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}}
    assert rules(ASK, tools=tools, toolConfig=config) == set()
    assert rules(ASK, tools=[], toolConfig=config) == {"G29"}


def test_G33_snake_case_is_read_as_well() -> None:
    call = content("model", {"function_call": {"name": "read", "args": {}}, "thought_signature": "sig"})
    answer = content("user", {"function_response": {"name": "read", "response": {}}})
    assert rules(ASK, call, answer, model="gemini-3-pro") == set()
    assert rules(ASK, answer) == {"G4"}
