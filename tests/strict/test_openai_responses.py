"""Each rule on how Responses items belong together, kept and broken."""

from __future__ import annotations

from typing import Any

import pytest

from .openai_responses import reasoning_pairs
from .samples import function_call, items, output, reasoning, said
from .samples import rules as rules_of

ASK = {"role": "user", "content": "Read it."}


def rules(*entries: Any, came_with: dict[str, str] | None = None, **more: Any) -> set[str]:
    return rules_of("openai-responses", items(*entries, **more), came_with=came_with)


def test_R1_every_call_has_its_output() -> None:
    assert rules(ASK, function_call("a"), function_call("b"), output("b"), output("a")) == set()
    assert rules(ASK, function_call("a"), function_call("b"), output("a")) == {"R1"}
    assert rules(ASK, function_call(), ASK) == {"R1"}


def test_R2_every_output_has_its_call() -> None:
    assert rules(ASK, output()) == {"R2"}


def test_R3_a_chain_may_hold_the_call() -> None:
    assert rules(output(), previous_response_id="resp_1") == set()
    assert rules(output(), conversation="conv_1") == set()
    assert rules(output(), {"id": "fc_1"}) == set()  # a reference may be the call


def test_R4_the_call_comes_first() -> None:
    assert "R4" in rules(ASK, output(), function_call())


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"type": "custom_tool_call", "name": "sh", "input": "ls"}, output(kind="custom_tool_call")),
        ({"type": "shell_call", "action": {}}, output(value=[{"stdout": "", "outcome": {}}], kind="shell_call")),
        (
            {"type": "apply_patch_call", "operation": {}, "status": "completed"},
            output(value="", kind="apply_patch_call", status="completed"),
        ),
        (
            {"type": "computer_call", "pending_safety_checks": []},
            output(value={"type": "computer_screenshot", "file_id": "f"}, kind="computer_call"),
        ),
        (
            {"type": "tool_search_call", "execution": "client", "arguments": {}},
            {"type": "tool_search_output", "execution": "client", "call_id": "call_1", "tools": []},
        ),
        (
            {"type": "program", "id": "prog_1", "code": "x", "fingerprint": "f"},
            {"type": "program_output", "call_id": "call_1", "result": "", "status": "completed"},
        ),
    ],
)
def test_R5_each_kind_of_call_pairs_with_its_own_output(call: Any, answer: Any) -> None:
    call = call | {"call_id": "call_1"}
    assert rules(ASK, call, answer) == set()
    assert rules(call, ASK) == {"R1"}
    assert "R2" in rules(ASK, answer)
    assert "R5" in rules(ASK, call, answer, answer)
    if call["type"] != "program":
        assert "R5" in rules(ASK, call, output())


def test_R6_a_local_shell_call_takes_either_output() -> None:
    call = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": {}, "status": "completed"}
    assert rules(ASK, call, output()) == set()
    assert rules(ASK, call, {"type": "local_shell_call_output", "id": "x", "output": "done"}) == set()
    assert rules(ASK, call) == {"R1"}


def test_R7_an_approval_has_its_request() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert rules(ASK, request, approval) == set()
    assert rules(ASK, approval) == {"R7"}


def test_R8_hosted_calls_stand_alone() -> None:
    assert rules(ASK, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, said()) == set()


def test_R9_reasoning_leads_to_an_item_of_the_model() -> None:
    assert rules(ASK, reasoning(), function_call(), output()) == set()
    assert rules(ASK, reasoning("rs_1"), reasoning("rs_2"), said()) == set()
    assert rules(ASK, reasoning()) == {"R9"}
    assert rules(ASK, reasoning(), ASK) == {"R9"}
    assert rules(ASK, function_call(), reasoning(), output()) == {"R9"}


def test_R10_an_item_keeps_the_reasoning_that_it_came_with() -> None:
    body = items(ASK, reasoning(), said(id="msg_1"), ASK)
    pairs = reasoning_pairs(body)
    assert pairs == {"msg_1": "rs_1"}
    assert rules(*body["input"], came_with=pairs) == set()
    assert rules(ASK, said(id="msg_1"), ASK, came_with=pairs) == {"R10"}
    assert rules(ASK, said(id="msg_1"), ASK, came_with=pairs, previous_response_id="resp_1") == set()


def test_R11_a_unit_keeps_its_order() -> None:
    pairs = {"fc_1": "rs_1"}
    assert rules(ASK, reasoning(), function_call(id="fc_1"), output(), came_with=pairs) == set()
    assert "R10" in rules(ASK, function_call(id="fc_1"), output(), reasoning(), said(), came_with=pairs)


def test_R12_without_ids_nothing_is_paired() -> None:
    assert rules(ASK, reasoning(None), ASK) == set()
    assert rules(ASK, said(), ASK, came_with={"msg_1": "rs_1"}) == set()


def test_R28_chain_and_conversation_exclude_each_other() -> None:
    assert rules(ASK, previous_response_id="resp_1") == set()
    assert rules(ASK, previous_response_id="resp_1", conversation="conv_1") == {"R28"}


def test_R32_input_may_be_a_string_but_not_nothing() -> None:
    assert rules_of("openai-responses", {"input": "hi"}) == set()
    assert rules() == {"R32"}
    assert rules(previous_response_id="resp_1") == set()


def test_R39_an_output_repeats_the_caller() -> None:
    caller: dict[str, Any] = {"caller": {"type": "program", "caller_id": "prog_1"}}
    program = {"type": "program", "id": "p", "call_id": "prog_1", "code": "x", "fingerprint": "f"}
    assert rules(ASK, program, function_call(**caller), output(**caller)) == set()
    assert rules(ASK, program, function_call(**caller), output()) == {"R39"}
    assert rules(ASK, function_call(**caller), output(**caller)) == {"R39"}


def test_C29_json_mode_needs_the_word_in_the_input() -> None:
    form: dict[str, Any] = {"text": {"format": {"type": "json_object"}}}
    assert rules({"role": "user", "content": "As JSON, please."}, **form) == set()
    assert rules(ASK, instructions="Answer in JSON.", **form) == {"C29"}
