"""Items as text: who speaks, tool traffic in its markers, media as placeholders, reasoning left out."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from app.core.transcript import Part, Seen, line, render, texts, transcript
from app.core.view import Facts, Role

Kind = Literal["text", "call", "result", "reasoning", "media"]


def seen(role: Role, *parts: Part) -> Seen:
    return Seen(Facts(role), parts, 0)


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("text", {}, "x"),
        ("call", {"name": "read"}, "[tool_call: read(x)]"),
        ("result", {}, "[tool_result: x]"),
        ("media", {"tokens": 9}, "[x]"),
        ("reasoning", {}, ""),
    ],
)
def test_each_kind_of_part_has_its_marker(kind: Kind, more: dict[str, Any], said: str) -> None:
    assert render(Part(kind, "x", **more)) == said


@pytest.mark.parametrize(
    ("role", "speaker"), [("user", "USER"), ("assistant", "ASSISTANT"), ("tool", "TOOL"), ("system", "SYSTEM")]
)
def test_a_line_says_who_speaks(role: Role, speaker: str) -> None:
    item = seen(role, Part("text", "one"), Part("reasoning", "hm"), Part("call", "{}", "go"))
    assert line(item) == f"{speaker}: one\n[tool_call: go({{}})]"


def test_an_item_without_anything_to_read_leaves_no_line() -> None:
    thought, empty = seen("assistant", Part("reasoning", "hm")), seen("assistant")
    items = [seen("user", Part("text", "a")), thought, empty, seen("assistant", Part("text", "b"))]
    assert transcript(items) == "USER: a\n\nASSISTANT: b"
    assert transcript([]) == ""


def test_texts_of_one_kind() -> None:
    items = [seen("user", Part("text", "a"), Part("text", "")), seen("tool", Part("result", "r"), Part("text", "b"))]
    assert texts(items, "text") == ["a", "b"]
    assert texts(items, "result") == ["r"]
