"""OpenAI Responses: each wire rule that a cut or a clearing could break, by its id, on real JSON bodies.

Calls and reasoning are written as Codex writes them: stateless, with ids and encrypted content.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import jsonspan, rules
from app.core.plan import Clear, Plan
from app.core.view import Clearing
from app.formats import FORMATS
from app.formats.base import Answer, Usage
from app.formats.reading import open_body
from tests.formats.history import CLEARED, NOTE, History, Item
from tests.strict import openai_responses as strict

FORM = FORMATS["openai-responses"]


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def says(text: str, n: int = 0, **more: Any) -> Item:
    ident = {"id": f"msg_{n}", "status": "completed"} if n else {}
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **ident, **more}


def thinks(n: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"opaque-{n}"}


def calls(n: int, **more: Any) -> Item:
    return {
        "type": "function_call",
        "id": f"fc_{n}",
        "call_id": f"call_{n}",
        "name": "shell",
        "arguments": '{"cmd":"ls"}',
        **more,
    }


def output(n: int, text: Any = "a.py", **more: Any) -> Item:
    return {"type": "function_call_output", "call_id": f"call_{n}", "output": text, **more}


class Talk(History):
    """Judged also by which item came with which reasoning in the client's own body (R10)."""

    def refusals(self, body: bytes) -> Counter[str]:
        pairs = strict.reasoning_pairs(json.loads(self.body))
        return Counter(found.rule for found in strict.violations(json.loads(body), came_with=pairs))


def talk(*items: Item) -> Talk:
    return Talk("openai-responses", *items, model="gpt-5.6", store=False)


def boundaries(*items: Item) -> list[int]:
    return talk(*items).boundaries


def assert_never_worse(*items: Item) -> int:
    return talk(*items).assert_never_worse()


def cleared(item: Item, inputs: bool = False) -> Item:
    edits = FORM.clear(item, [Clearing(0, "[cleared]", inputs)])
    return json.loads(jsonspan.edit(json.dumps(item).encode(), edits))


# Pairs


def test_R1_R2_call_and_output_leave_together() -> None:
    history = [user("a"), calls(1), output(1), says("ok"), user("b")]
    assert boundaries(*history) == [1, 3, 4]
    assert assert_never_worse(*history) > 3


def test_R1_broken_call_of_long_ago_freezes_nothing() -> None:
    history = [user("a"), calls(9), user("b"), calls(1), output(1), says("ok"), user("c")]
    assert {2, 3, 5, 6} <= set(boundaries(*history))
    assert assert_never_worse(*history) > 5


def test_R2_a_tail_never_begins_with_an_output() -> None:
    assert 2 not in boundaries(user("a"), calls(1), output(1), user("b"))
    assert 1 not in boundaries(user("a"), output(7), user("b"))


def test_R3_history_on_the_server_passes() -> None:
    assert FORM.refusal({"previous_response_id": "resp_1"}, output(1)) == "server_history"
    assert FORM.refusal({"conversation": {"id": "conv_1"}}, user("a")) == "server_history"
    assert FORM.refusal({"previous_response_id": None, "conversation": None}, user("a")) == ""


def test_R4_parallel_calls_leave_together() -> None:
    history = [user("a"), calls(1), calls(2), output(2), output(1), calls(3), output(3), user("b")]
    assert boundaries(*history) == [1, 5, 7]
    assert assert_never_worse(*history) > 3


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            {"type": "custom_tool_call", "name": "sql", "input": "select 1"},
            {"type": "custom_tool_call_output", "output": "1"},
        ),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, {"type": "shell_call_output", "output": []}),
        (
            {"type": "apply_patch_call", "status": "completed", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "status": "completed", "output": "done"},
        ),
        (
            {"type": "computer_call", "pending_safety_checks": [], "action": {"type": "wait"}},
            {"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "file_1"}},
        ),
        ({"type": "local_shell_call", "action": {"type": "exec"}}, {"type": "local_shell_call_output", "output": "{}"}),
    ],
)
def test_R5_every_kind_of_pair_leaves_whole(call: Item, answer: Item) -> None:
    history = [user("a"), call | {"call_id": "c_1"}, answer | {"call_id": "c_1"}, says("ok"), user("b")]
    assert boundaries(*history) == [1, 3, 4]
    assert assert_never_worse(*history) > 3


def test_R6_codex_answers_a_local_shell_call_by_a_function_output() -> None:
    call = {
        "type": "local_shell_call",
        "call_id": "call_1",
        "action": {"type": "exec", "command": ["ls"]},
        "status": "completed",
    }
    history = [user("a"), call, output(1), user("b")]
    assert boundaries(*history) == [1, 3]
    pairing = rules.pair([FORM.facts(item) for item in history])
    assert pairing.tool([FORM.facts(item) for item in history], (2, 0)) == "local_shell"


def test_R7_approval_stands_between_its_request_and_the_call_it_allowed() -> None:
    history = [
        user("a"),
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "mail", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "send", "arguments": "{}", "server_label": "mail"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "approval_request_id": "mcpr_1",
            "name": "send",
            "arguments": "{}",
            "server_label": "mail",
        },
        says("sent"),
        user("b"),
    ]
    assert not {3, 4} & set(boundaries(*history))
    assert assert_never_worse(*history) > 3
    assert talk(*history).cut(0, 6) == [json.loads(FORM.note(NOTE)), history[1], user("b")]


def test_R8_hosted_call_is_one_item_bound_to_its_reasoning() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    assert boundaries(user("a"), search, says("x"), user("b")) == [1, 2, 3]
    history = [user("a"), thinks(1), search, thinks(2), says("x", 2), user("b")]
    assert boundaries(*history) == [1, 3, 5]
    assert assert_never_worse(*history) > 3


# Reasoning


def test_R9_reasoning_keeps_what_it_led_to() -> None:
    history = [user("a"), thinks(1), calls(1), output(1), thinks(2), says("ok", 2), user("b")]
    assert boundaries(*history) == [1, 4, 6]
    assert assert_never_worse(*history) > 3
    left_alone = rules.violations([FORM.facts(item) for item in (user("a"), thinks(1), user("b"))])
    assert ("alone", "", 1) in left_alone


def test_R10_what_came_with_reasoning_keeps_it() -> None:
    history = [
        user("a"),
        thinks(1),
        says("first", 1),
        calls(1),
        output(1),
        calls(2),
        output(2),
        says("done", 2),
        user("b"),
    ]
    assert boundaries(*history) == [1, 8]  # no reasoning begins in between, so nothing shows what depends on it
    assert assert_never_worse(*history) == 4  # three cuts, one clearing


def test_R11_several_reasoning_items_are_one_run() -> None:
    history = [user("a"), thinks(1), thinks(2), calls(1), output(1), thinks(3), says("ok", 3), user("b")]
    assert boundaries(*history) == [1, 5, 7]
    assert assert_never_worse(*history) > 3


def test_R11_reasoning_without_an_id_counts_as_well() -> None:
    bare = {"type": "reasoning", "summary": [], "encrypted_content": "opaque"}
    assert boundaries(user("a"), bare, calls(1), output(1), bare, says("ok"), user("b")) == [1, 4, 6]


def test_R13_encrypted_content_stays_byte_for_byte() -> None:
    said = talk(user("a"), says("x"), user("b"), thinks(1), calls(1), output(1))
    body, after = said.body, said.applied(Plan("test", 0, 2, "omitted"))
    kept = body[body.index(b'{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]}') :]
    assert after.endswith(kept)


def test_R18_phase_stays_on_what_is_kept() -> None:
    after = talk(user("a"), says("x"), user("b"), says("soon", 3, phase="commentary"), calls(1), output(1)).cut(0, 2)
    assert after[2]["phase"] == "commentary"
    assert "phase" not in after[0]


# Ids, references, special items


def test_R20_R26_note_is_an_easy_form_user_message_without_an_id() -> None:
    note = json.loads(FORM.note("one\n“two”"))
    assert note == {"role": "user", "content": "one\n“two”"}
    assert FORM.facts(json.loads(FORM.note(NOTE))).note
    assert not FORM.facts(user("hi")).note


def test_R26_lead_stands_ahead_as_a_part_of_its_own() -> None:
    for item in (user("go on"), {"role": "user", "content": "go on"}):
        raw = jsonspan.edit(json.dumps(item).encode(), FORM.lead(item, NOTE))
        led = json.loads(raw)
        assert led["content"] == [{"type": "input_text", "text": NOTE}, {"type": "input_text", "text": "go on"}]
        assert FORM.facts(led).opens_turn
        assert not FORM.facts(led).note, "the question is still the client's"


def test_R21_kept_items_keep_their_ids_and_no_id_is_made_up() -> None:
    history = [user("a"), thinks(1), calls(1), output(1), thinks(2), says("ok", 2), user("b")]
    said = talk(*history)
    ids = {item["id"] for item in history if "id" in item}
    for start, stop in said.cuts():
        found = [item["id"] for item in said.cut(start, stop) if "id" in item]
        assert len(found) == len(set(found))
        assert set(found) <= ids


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "rs_1"}, {"id": "rs_1"}])
def test_R23_reference_stays_and_keeps_its_neighbours(reference: Item) -> None:
    assert FORM.facts(reference).pinned
    history = [user("a"), says("x"), user("b"), reference, calls(1), output(1), says("ok"), user("c")]
    assert boundaries(*history) == [1, 2, 3, 7]
    said = talk(*history)
    for start, stop in said.cuts():
        kept = said.cut(start, stop)
        at = kept.index(reference)
        assert kept[at + 1] == calls(1), "what the reference may have led to"


def test_R25_message_without_type() -> None:
    assert FORM.facts({"role": "user", "content": "hi"}).opens_turn
    assert FORM.facts({"role": "assistant", "content": "hi"}).role == "assistant"
    assert FORM.facts({"role": "developer", "content": "hi"}).stays
    assert FORM.facts({"role": "stranger", "content": "hi"}).pinned


def test_developer_message_in_mid_history_survives_a_cut_in_its_place() -> None:
    rule = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]}
    after = talk(user("a"), says("x"), rule, user("b"), says("y"), user("c")).cut(0, 5)
    assert after == [json.loads(FORM.note(NOTE)), rule, user("c")]


def test_R32_string_input_has_nothing_to_cut() -> None:
    assert open_body(FORM, b'{"model":"gpt-5.1","input":"weather?"}').raws == []


def test_R33_R34_compaction_item_stays_at_its_place() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "opaque"}
    history = [user("a"), item, says("x"), user("b"), says("y"), user("c")]
    assert FORM.facts(item).pinned
    said = talk(*history)
    for start, stop in said.cuts():
        assert item in said.cut(start, stop)
    assert assert_never_worse(*history) > 3


def test_R36_body_that_asks_the_provider_to_compact_is_looked_at_all_the_same() -> None:
    assert FORM.refusal({"context_management": [{"type": "compaction", "compact_threshold": 200_000}]}, user("a")) == ""


def test_R37_compaction_trigger_passes() -> None:
    assert FORM.refusal({}, {"type": "compaction_trigger"}) == "client_compaction"
    assert FORM.facts({"type": "compaction_trigger"}).pinned


@pytest.mark.parametrize(
    ("fields", "last", "reason"),
    [
        (
            {},
            user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM."),
            "client_compaction",
        ),
        (
            {},
            user("You have exceeded the maximum number of tokens, please stop coding and write a memento."),
            "client_compaction",
        ),
        (
            {"client_metadata": {"x-codex-turn-metadata": '{"request_kind":"compaction"}'}},
            user("my own prompt"),
            "client_compaction",
        ),
        ({"client_metadata": {"x-codex-turn-metadata": '{"request_kind":"turn"}'}}, user("go on"), ""),
        ({"client_metadata": {"x-codex-turn-metadata": "{broken"}}, user("go on"), ""),
        ({"client_metadata": "odd"}, None, ""),
        ({}, user("What does “You are performing a CONTEXT CHECKPOINT COMPACTION” mean?"), ""),
    ],
)
def test_X10_codex_asking_for_its_own_summary_passes(fields: Item, last: Any, reason: str) -> None:
    assert FORM.refusal(fields, last) == reason


def test_R38_tools_that_were_loaded_stay_loaded() -> None:
    search = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"query": "mail"}}
    found = {
        "type": "tool_search_output",
        "call_id": None,
        "execution": "server",
        "tools": [{"type": "function", "name": "send"}],
    }
    more = {"type": "additional_tools", "role": "developer", "tools": []}
    history = [
        user("a"),
        says("x"),
        user("b"),
        thinks(1),
        search,
        found,
        calls(1),
        output(1),
        says("ok", 2),
        more,
        user("c"),
    ]
    assert {FORM.facts(search).pinned, FORM.facts(found).pinned} == {True}
    said = talk(*history)
    for start, stop in said.cuts():
        kept = said.cut(start, stop)
        at = kept.index(search)
        assert kept[at - 1 : at + 3] == [thinks(1), search, found, calls(1)]
        assert more in kept
    assert assert_never_worse(*history) > 3


def test_R39_program_and_what_it_called_are_one() -> None:
    by = {"caller": {"type": "program", "caller_id": "prog_1"}}
    program = {"type": "program", "id": "pr_1", "call_id": "prog_1", "code": "await shell()", "fingerprint": "opaque"}
    run = [program, calls(1, **by), output(1, **by), calls(2, **by), output(2, **by)]
    end = {"type": "program_output", "call_id": "prog_1", "result": "2", "status": "completed"}
    history = [user("a"), *run, end, says("ok"), user("b")]
    assert boundaries(*history) == [1, 7, 8]
    assert assert_never_worse(*history) > 3
    running = [FORM.facts(item) for item in (user("a"), says("x"), user("b"), *run)]
    assert rules.open_round(running) == 3, "a program that still runs is untouched with all that it called"


def test_R42_X5_unknown_item_stays_with_its_neighbours() -> None:
    for odd in ({"type": "agent_message", "agent": {}}, {"type": "brand_new"}, {"type": "multi_agent_call"}, "text", 3):
        facts = FORM.facts(odd)
        assert facts.pinned
        around = [FORM.facts(user("a")), FORM.facts(says("x")), facts, FORM.facts(says("y")), FORM.facts(user("b"))]
        assert not rules.cuts(around)[3]
        assert rules.cuts(around)[4]


# Clearing


def test_R40_screenshot_is_not_cleared() -> None:
    shown = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}
    shot = {"type": "computer_call_output", "call_id": "c", "output": shown}
    assert not FORM.facts(shot).results[0].clearable


@pytest.mark.parametrize("shape", ["function_call_output", "custom_tool_call_output", "local_shell_call_output"])
@pytest.mark.parametrize(
    "content", ["a long text", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}]]
)
def test_R41_output_becomes_a_string(shape: str, content: Any) -> None:
    item = {"type": shape, "id": "fco_1", "call_id": "c", "output": content, "status": "completed"}
    assert cleared(item) == item | {"output": "[cleared]"}


def test_R41_shell_output_keeps_its_array_and_outcomes() -> None:
    outcome, other = {"type": "exit", "exit_code": 2}, {"type": "timeout"}
    listed = [
        {"stdout": "long", "stderr": "err", "outcome": outcome},
        {"stdout": "more", "stderr": "", "outcome": other},
    ]
    item = {"type": "shell_call_output", "call_id": "c", "max_output_length": 100, "output": listed}
    wanted = [{"stdout": "[cleared]", "stderr": "", "outcome": outcome}, {"stdout": "", "stderr": "", "outcome": other}]
    assert cleared(item) == item | {"output": wanted}
    assert cleared(item | {"output": []})["output"] == [
        {"outcome": {"type": "exit", "exit_code": 0}, "stdout": "[cleared]", "stderr": ""}
    ]


def test_R41_patch_output_keeps_its_status() -> None:
    item = {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "long"}
    assert cleared(item) == item | {"output": "[cleared]"}


def test_R24_inputs_are_cleared_to_their_own_kind() -> None:
    assert cleared(calls(1), inputs=True) == calls(1) | {"arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"}
    assert cleared(custom, inputs=True) == custom | {"input": "[cleared]"}
    for kind, key in (
        ("shell_call", "action"),
        ("apply_patch_call", "operation"),
        ("program", "code"),
        ("local_shell_call", "action"),
    ):
        assert not FORM.facts({"type": kind, "call_id": "c", key: {"long": "x"}}).calls[0].clearable


def test_R41_clearing_all_that_may_be_cleared_is_taken() -> None:
    history = [
        user("a"),
        thinks(1),
        calls(1),
        output(1, [{"type": "input_text", "text": "x" * 99}], id="fco_1"),
        says("ok", 2),
        user("b"),
    ]
    said = talk(*history)
    assert said.clearable() == (Clear(2, 0, inputs=True), Clear(3, 0))
    after = said.clear(*said.clearable())
    assert said.assert_never_worse() > 1
    assert after == [*history[:2], calls(1) | {"arguments": "{}"}, output(1, CLEARED, id="fco_1"), *history[4:]]


# Any history


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 4))):
        items.append(user("question"))
        thinking = draw(st.booleans())
        for _ in range(draw(st.integers(0, 3))):
            n = len(items)
            items += [thinks(n)] if thinking and draw(st.booleans()) else []
            kind = draw(st.sampled_from(["call", "parallel", "open", "message", "search", "developer"]))
            if kind == "call":
                items += [calls(n), output(n)]
            elif kind == "parallel":
                items += [calls(n), calls(n + 500), output(n + 500), output(n)]
            elif kind == "open":
                items += [calls(n)]
            elif kind == "search":
                items += [{"type": "web_search_call", "id": f"ws_{n}", "status": "completed", "action": {}}]
            elif kind == "developer" and items[-1].get("type") != "reasoning":
                items += [{"role": "developer", "content": "rule"}]
            else:
                items += [says("text", n + 1)]
    return [*items, user("now")]


@settings(max_examples=60, deadline=None)
@given(histories())
def test_no_allowed_cut_makes_anything_worse(items: list[Item]) -> None:
    assert assert_never_worse(*items) > 0


# Identity


def test_what_clients_change_does_not_change_an_item() -> None:
    one = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "hi", "annotations": [{"type": "url_citation"}], "logprobs": []}]}  # fmt: skip
    other = {"role": "assistant", "content": "hi", "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    assert FORM.canonical(one) == FORM.canonical(other)
    called = calls(1, status="completed", namespace=None)
    assert FORM.canonical(called) == FORM.canonical(
        {key: called[key] for key in ("type", "call_id", "name", "arguments")}
    )
    assert FORM.canonical(thinks(1)) == FORM.canonical(
        {**thinks(1), "id": None, "content": None, "status": "completed"}
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a"), user("b")),
        (user("a"), says("a")),
        (output(1), output(2)),
        (output(1, "x"), output(1, "y")),
        (thinks(1), thinks(2)),
        ({"id": "msg_1"}, {"id": "msg_2"}),
        (
            {"type": "web_search_call", "id": "ws_1", "action": {}},
            {"type": "web_search_call", "id": "ws_2", "action": {}},
        ),
        (
            {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"},
            {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
        ),
    ],
)
def test_different_items_stay_different(one: Item, other: Item) -> None:
    assert FORM.canonical(one) != FORM.canonical(other)


def test_session_is_what_the_cache_key_says() -> None:
    assert FORM.session_hint({"prompt_cache_key": "0198-session"}) == "0198-session"
    assert FORM.session_hint({"prompt_cache_key": None}) == ""


# Routes and answers


@pytest.mark.parametrize(
    "path",
    ["/v1/responses", "/responses", "/v1/responses/", "/openai/v1/responses", "/openai/responses", "/codex/responses"],
)
def test_paths_that_carry_a_conversation(path: str) -> None:
    target = FORM.target(path)
    assert target is not None
    assert (target.format, target.model, target.stream) == ("openai-responses", "", False)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/xresponses",
        "/v1/chat/completions",
    ],
)
def test_R35_T4_other_paths_pass(path: str) -> None:
    assert FORM.target(path) is None


def test_U5_usage_includes_what_was_cached() -> None:
    cache = {"cached_tokens": 800, "cache_write_tokens": 64}
    told = {"input_tokens": 900, "input_tokens_details": cache, "output_tokens": 70, "total_tokens": 970}
    assert FORM.usage({"object": "response", "usage": told}) == Usage(900, 70, 800, 64)
    assert FORM.usage({"object": "response", "usage": None}) is None


@pytest.mark.parametrize("event", ["response.completed", "response.incomplete", "response.failed"])
def test_U6_last_event_of_a_stream_tells_the_usage(event: str) -> None:
    usage = {"input_tokens": 12, "output_tokens": 3}
    assert FORM.usage({"type": event, "response": {"id": "resp_1", "usage": usage}}) == Usage(12, 3)
    assert FORM.usage({"type": "response.created", "response": {"usage": None}}) is None
    assert FORM.usage({"type": "response.output_text.delta", "delta": "x"}) is None
    assert FORM.merge(Usage(1), Usage(12, 3)) == Usage(12, 3)


E2 = {
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
    "param": "input",
    "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
}


@pytest.mark.parametrize(
    ("status", "answer", "window"),
    [
        (400, {"error": E2}, 0),
        (200, {"type": "error", "code": "context_length_exceeded", "message": ""}, 0),
        (200, {"type": "error", "error": E2}, 0),
        (
            200,
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "…"}}},
            0,
        ),
        (400, {"error": {"message": "Input tokens exceed the configured limit of 272000 tokens."}}, 272_000),
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 128,000 tokens. However, you requested 130000"
                }
            },
            128_000,
        ),
        (400, {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}}, 4_096),
        (
            400,
            {"error": {"message": "Prompt contains 9 tokens, too large for model with 8192 maximum context length"}},
            8_192,
        ),
        (400, {"error": {"message": "No tool output found for function call call_1."}}, None),
        (429, {"error": E2}, None),
        (503, {"error": E2}, None),
        (200, {"object": "response", "output": [{"text": "context_length_exceeded"}], "error": None}, None),
        (200, ["context_length_exceeded"], None),
    ],
)
def test_E2_overflow(status: int, answer: Any, window: int | None) -> None:
    assert FORM.overflow(status, json.dumps(answer).encode()) == window


def test_E2_overflow_told_in_plain_text() -> None:
    assert FORM.overflow(400, b"prompt exceeds the context window") == 0
    assert FORM.overflow(400, b"\xff\xfe no json") is None


def test_error_has_the_shape_of_openai() -> None:
    told = json.loads(FORM.error(400, "unknown_policy", "No policy is called “x”."))
    shape = {"type": "invalid_request_error", "param": None, "code": "unknown_policy"}
    assert told == {"error": {"message": "No policy is called “x”.", **shape}}
    assert json.loads(FORM.error(502, "upstream_failed", "…"))["error"]["type"] == "server_error"


def test_fixed_is_what_the_model_reads_besides() -> None:
    fields = {
        "instructions": "be brief",
        "tools": [{"name": "t"}],
        "text": {"format": {"type": "json_schema"}},
        "model": "gpt-5.6",
    }
    assert [part.text for part in FORM.fixed(fields)] == [
        "be brief",
        '[{"name":"t"}]',
        '{"format":{"type":"json_schema"}}',
    ]


# A question of compactd's own


def said(*texts: str) -> Item:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text} for text in texts],
    }


def test_question_is_stateless_and_has_instructions() -> None:
    way, body = FORM.question("gpt-5", "Well?", 700, "", (), {"instructions": "You are Codex."})
    told = json.loads(body)
    assert way == b"/v1/responses"
    assert "Codex" not in told.pop("instructions")
    assert told == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "Well?"}],
        "store": False,
        "max_output_tokens": 700,
    }


def test_question_to_codexs_own_upstream_asks_for_a_stream_and_no_limit() -> None:
    way, body = FORM.question("gpt-5", "Well?", 700, "/responses", ("stream_only",), {})
    told = json.loads(body)
    assert way == b"/responses"
    assert told["stream"] is True
    assert told["instructions"]
    assert "max_output_tokens" not in told


@pytest.mark.parametrize(
    ("output", "more", "text", "problem"),
    [
        ([said("a", "b")], {}, "a\nb", ""),
        ([{"type": "reasoning", "summary": []}, said("a")], {"status": "completed"}, "a", ""),
        (
            [said("a")],
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "a",
            "truncated",
        ),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "", "truncated"),
        ([said("a")], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "a", "refused"),
        ([said("a")], {"status": "incomplete"}, "a", "failed"),
        ([], {"status": "failed", "error": {"code": "server_error"}}, "", "failed"),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}], {}, "", "refused"),
        (
            [said("a"), {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}],
            {},
            "a",
            "tool_call",
        ),
        ([{"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": ""}], {}, "", "tool_call"),
        ([{"type": "reasoning", "summary": []}], {"status": "completed"}, "", "reasoning_only"),
        ([], {"status": "completed"}, "", ""),
    ],
)
def test_answer(output: list[Item], more: Item, text: str, problem: str) -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}
    assert FORM.answer({"output": output, "usage": usage, **more}) == Answer(text, problem, Usage(5, 2, 3))


def test_answer_of_a_stream_is_what_was_done_in_it() -> None:
    events: list[Item] = [
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "item": said()},
        {"type": "response.output_item.done", "item": said("a")},
    ]
    last = {"status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 2}}
    assert FORM.answer([*events, {"type": "response.completed", "response": last}]) == Answer("a", "", Usage(5, 2))
    cut = {**last, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert FORM.answer([*events, {"type": "response.incomplete", "response": cut}]).problem == "truncated"
    assert FORM.answer([{"type": "response.completed", "response": {**last, "output": [said("b")]}}]).text == "b"
    assert FORM.answer([]) == Answer("")


def test_C29_json_mode_obliges_to_a_word() -> None:
    assert FORM.obliges({"text": {"format": {"type": "json_object"}}}) == "JSON"
    for other in ({}, {"text": None}, {"text": {"format": None}}, {"text": {"format": {"type": "text"}}}):
        assert FORM.obliges(other) == ""
