"""Which item of a Responses input is what, and which belong together."""

from __future__ import annotations

import json

import pytest

from app.formats.media import image_of
from app.formats.responses_items import (
    CALLS,
    COMPACTIONS,
    HOSTED,
    OUTPUTS,
    STANDING,
    bonds_of,
    call_of,
    kind_of,
    parts_of,
    result_of,
)

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAgAAAAIACAIAAAB7GkOtAAAAAElFTkSuQmCC"  # 512 x 512
NAMED = {"name": "ls", "namespace": "files"}


def test_R25_message_is_known_by_its_shape() -> None:
    assert kind_of({"role": "user", "content": "hi"}) == "message"
    assert kind_of({"type": None, "role": "user", "content": "hi"}) == "message"
    assert kind_of({"type": "message", "role": "assistant", "content": []}) == "message"


def test_R23_reference_is_known_by_its_shape() -> None:
    assert kind_of({"id": "msg_1"}) == "item_reference"
    assert kind_of({"type": None, "id": "msg_1"}) == "item_reference"
    assert kind_of({"type": "item_reference", "id": "msg_1"}) == "item_reference"


@pytest.mark.parametrize("odd", [None, "text", 7, [], {}, {"type": 3}, {"id": "x", "weight": 1}, {"id": ""}])
def test_anything_else_is_no_kind_we_know(odd: object) -> None:
    assert kind_of(odd) not in {
        "message",
        "reasoning",
        "item_reference",
        *CALLS,
        *OUTPUTS,
        *HOSTED,
        *STANDING,
        *COMPACTIONS,
    }


@pytest.mark.parametrize(
    ("call", "output", "tool", "clearable"),
    [
        ("function_call", "function_call_output", "ls", True),
        ("custom_tool_call", "custom_tool_call_output", "ls", True),
        ("local_shell_call", "local_shell_call_output", "local_shell", True),
        ("shell_call", "shell_call_output", "shell", True),
        ("apply_patch_call", "apply_patch_call_output", "apply_patch", True),
        ("computer_call", "computer_call_output", "computer", False),
        ("tool_search_call", "tool_search_output", "tool_search", False),
        ("program", "program_output", "program", False),
    ],
)
def test_R5_pairs_by_call_id(call: str, output: str, tool: str, clearable: bool) -> None:
    called = call_of(call, {"type": call, "id": "x_1", "call_id": "c_1", **NAMED})
    answered = result_of(output, {"type": output, "id": "y_1", "call_id": "c_1", "output": "text"})
    assert (called.id, called.tool) == ("c_1", tool)
    assert (answered.id, answered.clearable) == ("c_1", clearable)


def test_R6_local_shell_answers_by_call_id_or_by_id_alone() -> None:
    shape = {"type": "local_shell_call_output", "output": "{}"}
    assert result_of("local_shell_call_output", {**shape, "id": "out_1", "call_id": "c_1"}).id == "c_1"
    assert result_of("local_shell_call_output", {**shape, "id": "c_1"}).id == "c_1"


def test_R7_approval_pairs_by_the_request_id_and_binds_the_call() -> None:
    request = call_of(
        "mcp_approval_request", {"id": "mcpr_1", "name": "send", "arguments": "{}", "server_label": "mail"}
    )
    response = result_of("mcp_approval_response", {"approval_request_id": "mcpr_1", "approve": True})
    (bond,) = bonds_of({"type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1"})
    assert request.id == response.id == bond.id == "mcpr_1"
    assert not any(one.clearable for one in (request, response, bond))


def test_R39_call_of_a_program_is_bound_to_it() -> None:
    (bond,) = bonds_of({"type": "function_call", "call_id": "c_2", "caller": {"type": "program", "caller_id": "p_1"}})
    assert bond.id == "p_1"
    assert not bond.clearable
    assert bonds_of({"type": "function_call", "call_id": "c_2", "caller": {"type": "direct"}}) == ()


def test_what_may_be_cleared_is_measured_in_bytes() -> None:
    assert result_of("function_call_output", {"call_id": "c", "output": "süß"}).size == 5
    listed = [{"type": "input_text", "text": "a"}]
    assert result_of("function_call_output", {"call_id": "c", "output": listed}).size == len(
        json.dumps(listed, separators=(",", ":"))
    )
    assert call_of("function_call", {"call_id": "c", "name": "f", "arguments": '{"a":1}'}).size == 7
    assert not call_of("function_call", {"call_id": "c", "name": "f"}).clearable


@pytest.mark.parametrize(
    ("item", "read"),
    [
        ({"role": "user", "content": "hi"}, [("text", "hi", "")]),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, "b"]},
            [("text", "a", ""), ("text", "b", "")],
        ),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, [("text", "no", "")]),
        ({"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": "x" * 900}, [("reasoning", "hm", "")]),
        ({"type": "function_call", "name": "ls", "arguments": '{"a":1}', "call_id": "c"}, [("call", '{"a":1}', "ls")]),
        (
            {"type": "custom_tool_call", "name": "sql", "input": "select 1", "call_id": "c"},
            [("call", "select 1", "sql")],
        ),
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}, "call_id": "c"},
            [("call", '{"commands":["ls"]}', "shell")],
        ),
        (
            {"type": "computer_call", "actions": [{"type": "wait"}], "call_id": "c"},
            [("call", '[{"type":"wait"}]', "computer")],
        ),
        ({"type": "function_call_output", "output": "ok", "call_id": "c"}, [("result", "ok", "")]),
        (
            {"type": "shell_call_output", "output": [{"stdout": "o", "stderr": "e"}]},
            [("result", "o", ""), ("result", "e", "")],
        ),
        (
            {"type": "web_search_call", "id": "ws_1", "action": {"query": "q"}},
            [("call", '{"query":"q"}', "web_search")],
        ),
        (
            {"type": "mcp_call", "name": "send", "arguments": "{}", "output": "sent"},
            [("call", "{}", "send"), ("result", "sent", "")],
        ),
        ({"type": "mcp_list_tools", "tools": [{"name": "t"}]}, [("text", '[{"name":"t"}]', "")]),
        ({"type": "compaction", "encrypted_content": "x" * 900}, []),
        ({"type": "item_reference", "id": "msg_1"}, []),
        ({"type": "brand_new", "a": 1}, [("text", '{"type":"brand_new","a":1}', "")]),
    ],
)
def test_parts(item: dict[str, object], read: list[tuple[str, str, str]]) -> None:
    assert [(part.kind, part.text, part.name) for part in parts_of(item)] == read


def test_pictures_count_by_their_size_wherever_they_stand() -> None:
    image = image_of(PNG)
    assert image.width > 0
    shown = [
        {"role": "user", "content": [{"type": "input_image", "image_url": PNG}]},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": PNG}},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": PNG}]},
        {"type": "image_generation_call", "id": "ig_1", "result": PNG.split(",")[1]},
    ]
    for item in shown:
        media = [part for part in parts_of(item) if part.kind == "media"]
        assert [part.image for part in media] == [image], kind_of(item)
