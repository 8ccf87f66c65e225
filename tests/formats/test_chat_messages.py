"""Chat messages as clients and servers write them: what calls, what answers, what can be read, what is the same."""

from __future__ import annotations

from typing import Any

import pytest

from app.formats.chat_messages import calls_of, canonical_message, kind_of, parts_of, results_of, text_of


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def test_C15_calls_of_all_kinds_and_where_their_arguments_lie() -> None:
    message = calling(
        {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x":1}'}},
        {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "free"}},
        {"id": "c", "type": "function", "function": {"name": "odd", "arguments": {"no": "text"}}},
        function_call={"name": "old", "arguments": "{}"},
    )
    told = [(call.id, call.tool, call.path, call.size, call.clearable) for call in calls_of(message)]
    assert told == [
        ("a", "read", ("tool_calls", 0, "function", "arguments"), 7, True),
        ("b", "patch", ("tool_calls", 1, "custom", "input"), 4, True),
        ("c", "odd", ("tool_calls", 2, "function", "arguments"), 0, False),
        ("function old", "old", ("function_call", "arguments"), 2, True),
    ]
    assert list(calls_of(calling(7, "x"))) == []  # type: ignore[arg-type]
    assert list(calls_of({"tool_calls": None})) == []


def test_C2_results_by_id_by_name_and_by_several_ids() -> None:
    one = {"role": "tool", "tool_call_id": "a", "content": "été"}
    assert [(result.id, result.size, result.clearable) for result in results_of(one)] == [("a", 5, True)]
    (old,) = results_of({"role": "function", "name": "read", "content": "x"})
    assert (old.id, old.tool) == ("function read", "read")
    many = list(results_of({"role": "tool", "tool_call_ids": ["a", "b"], "content": "xy"}))
    assert [(result.id, result.size, result.clearable) for result in many] == [("a", 2, True), ("b", 0, False)]
    (blocks,) = results_of({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]})
    assert blocks.size == len('[{"type":"text","text":"x"}]')


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"role": "user", "content": "hi"}, [("text", "hi", "")]),
        ({"role": "tool", "content": ["a", {"type": "text", "text": "b"}]}, [("result", "a", ""), ("result", "b", "")]),
        ({"role": "assistant", "content": None, "refusal": "no"}, [("text", "no", "")]),
        (
            {"role": "assistant", "reasoning": "hm", "reasoning_content": "hm", "content": "so"},
            [("reasoning", "hm", ""), ("text", "so", "")],
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            [("reasoning", "hm", "")],
        ),
        (calling({"function": {"name": "f", "arguments": "{}"}}), [("call", "{}", "f")]),
        ({"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}}, [("call", "{}", "g")]),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}, [("media", "file", "")]),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}]},
            [("media", "image", "")],
        ),
        ("no message", []),
    ],
)
def test_what_can_be_read(message: Any, read: list[tuple[str, str, str]]) -> None:
    assert [(part.kind, part.text, part.name) for part in parts_of(message)] == read


def test_what_clients_change_between_requests_makes_no_other_message() -> None:
    plain = {"role": "user", "content": "hi"}
    again = {
        "role": "user",
        "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
        "name": None,
        "client_metadata": {"turn": 3},
    }
    assert canonical_message(again) == canonical_message(plain) == plain
    two = {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]}
    assert canonical_message(two) == two
    assert canonical_message({"role": "user", "content": [{"type": "text", "text": "hi", "n": 1}]}) != plain
    assert canonical_message("odd") == "odd"


def test_parts_without_a_type_are_known_by_their_key() -> None:
    assert [kind_of(part) for part in ("text", {"image_url": "x"}, {"odd": 1}, {"type": "file"}, 7)] == [
        "text",
        "image_url",
        "",
        "file",
        "",
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("x", "x"), ([{"text": "a"}, {"summary": "b"}, "c", {"odd": 1}], "a\nb\nc\n"), ({"a": 1}, '{"a":1}')],
)
def test_content_as_text(content: Any, text: str) -> None:
    assert text_of(content) == text
