"""Each rule on how Anthropic's calls and results meet, kept and broken."""

from __future__ import annotations

from typing import Any

from .samples import anthropic, assistant, result, server_result, server_use, use, user
from .samples import rules as rules_of

ASK = user("Read it.")
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
CALLER: dict[str, Any] = {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}}


def rules(*messages: Any, **more: Any) -> set[str]:
    return rules_of("anthropic-messages", anthropic(*messages, **more))


def test_A1_every_call_is_answered_in_the_next_message() -> None:
    assert rules(ASK, assistant(use()), user(result())) == set()
    assert rules(ASK, assistant(use()), user("Go on.")) == {"A1"}
    assert rules(ASK, assistant(use())) == {"A1"}
    assert "A1" in rules(ASK, assistant(use()), assistant("And?"), user(result()))
    assert rules(user(use())) == {"A1"}


def test_A2_all_results_stand_in_that_one_message() -> None:
    both = assistant(use("a"), use("b"))
    assert rules(ASK, both, user(result("b"), result("a"))) == set()
    assert rules(ASK, both, user(result("a"))) == {"A2"}
    assert rules(ASK, both, user(result("a")), user(result("b"))) == {"A2", "A4"}


def test_A3_results_come_first() -> None:
    assert rules(ASK, assistant(use()), user(result(), "and now")) == set()
    assert rules(ASK, assistant(use()), user("and now", result())) == {"A3"}
    assert rules(ASK, assistant(use("a"), use("b")), user(result("a"), "and", result("b"))) == {"A3"}


def test_A4_a_result_has_its_call_in_the_message_before() -> None:
    assert rules(user(result())) == {"A4"}
    assert rules(ASK, assistant("Done."), user(result())) == {"A4"}
    assert rules(ASK, assistant(use()), user(result()), user(result())) == {"A4"}
    assert rules(ASK, assistant(use(), result())) == {"A1", "A4"}


def test_A4_a_continued_thread_may_open_with_results() -> None:
    assert rules(user(result()), thread={"type": "continue", "previous_message_id": "msg_1"}) == set()


def test_A6_call_ids_are_unique_in_the_request() -> None:
    first, second = (ASK, assistant(use("a")), user(result("a"))), (assistant(use("b")), user(result("b")))
    assert rules(*first, *second) == set()
    assert rules(*first, *first[1:]) == {"A6"}


def test_A7_one_result_per_call() -> None:
    assert rules(ASK, assistant(use()), user(result(), result())) == {"A7"}


def test_A8_ids_have_plain_characters() -> None:
    assert rules(ASK, assistant(use("a-B_9")), user(result("a-B_9"))) == set()
    assert rules(ASK, assistant(use("a.b")), user(result("a.b"))) == {"A8"}
    assert rules(ASK, assistant(server_use("srvtoolu_a"), server_result("srvtoolu_a"))) == set()
    assert rules(ASK, assistant(server_use("web_1"), server_result("web_1"))) == {"A8"}


def test_A9_input_is_an_object() -> None:
    values: list[Any] = ["{}", None, []]
    for value in values:
        assert rules(ASK, assistant(use(input=value)), user(result())) == {"A9"}


def test_A12_toolset_results_name_their_toolset() -> None:
    call = assistant(use(toolset_name="browser"))
    state = {"type": "browser_state"}
    assert rules(ASK, call, user(result(content=[state], toolset_name="browser"))) == set()
    assert rules(ASK, call, user(result())) == {"A12"}
    assert rules(ASK, call, user(result(content=[state, state], toolset_name="browser"))) == {"A12"}


def test_A45_server_tools_come_in_pairs() -> None:
    assert rules(ASK, assistant(server_use(), server_result(), "Found."), ASK) == set()
    assert rules(ASK, assistant(server_use(), "Found."), ASK) == {"A45"}
    assert rules(ASK, assistant(server_result(), "Found."), ASK) == {"A45"}
    assert rules(ASK, assistant(server_result(), server_use(), "Found."), ASK) == {"A45"}


def test_A46_a_pair_may_span_two_messages() -> None:
    half, rest = assistant(server_use(), use()), assistant(server_result(), "Found.")
    assert rules(ASK, half, user(result())) == set()
    assert rules(ASK, half, user(result()), rest, ASK) == set()
    assert rules(ASK, half, user(result()), assistant("Found."), ASK) == {"A45"}
    assert rules(ASK, half, user(result()), assistant("Found.", use("b")), user(result("b"))) == {"A45"}


def test_A47_beside_a_waiting_server_tool_only_results() -> None:
    half = assistant(server_use(), use())
    assert rules(ASK, half, user(result(), "and now")) == {"A47"}
    assert rules(ASK, assistant(use()), user(result(), "and now")) == set()


def test_A49_no_user_result_for_a_server_tool() -> None:
    assert "A49" in rules(ASK, assistant(server_use(), use()), user(result(), result("srvtoolu_1")))


def test_A52_programmatic_calls_are_answered_by_results_only() -> None:
    run = assistant(server_use("srvtoolu_1", "code_execution"), use(**CALLER))
    tools = [{"name": "read"}, CODE]
    assert rules(ASK, run, user(result()), tools=tools, container="c") == set()
    assert rules(ASK, run, user(result(), "and now"), tools=tools, container="c") == {"A47"}
    assert rules(ASK, run, user(result()), tools=tools) == {"A52"}
    ended = assistant(
        server_use("srvtoolu_1", "code_execution"), server_result("srvtoolu_1", "code_execution"), use(**CALLER)
    )
    assert rules(ASK, ended, user(result(), "and now"), tools=tools, container="c") == {"A52"}


def test_A52_code_may_wait_over_many_calls() -> None:
    run = (
        assistant(server_use("srvtoolu_1", "code_execution"), use("a", **CALLER)),
        user(result("a")),
        assistant(use("b", **CALLER)),
        user(result("b")),
    )
    assert rules(ASK, *run, tools=[{"name": "read"}, CODE], container="c") == set()


def test_A53_a_programmatic_call_needs_its_code() -> None:
    assert rules(ASK, assistant(use(**CALLER)), user(result()), assistant("Done."), ASK) == {"A53"}


def test_A54_mcp_calls_come_in_pairs() -> None:
    call = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "s", "input": {}}
    answer = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}
    assert rules(ASK, assistant(call, answer, "Done."), ASK) == set()
    assert rules(ASK, assistant(call, "Done."), ASK) == {"A54"}
    assert rules(ASK, assistant(answer, "Done."), ASK) == {"A54"}
    assert rules(ASK, assistant(call, use()), user(result())) == {"A54"}
    assert rules(ASK, assistant("Calling.", call)) == set()  # paused
