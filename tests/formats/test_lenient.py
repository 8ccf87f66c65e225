"""Values of the wrong type count as nothing, and none of them raises."""

from __future__ import annotations

from typing import Any

import pytest

from app.formats.lenient import figure, json_size, json_text, listed, string


@pytest.mark.parametrize("value", [None, 1, True, 1.5, ["a"], {"a": 1}])
def test_what_is_no_string_is_an_empty_one(value: Any) -> None:
    assert string(value) == ""


def test_what_is_right_stays_as_it_is() -> None:
    assert (string("a"), listed(["a"]), figure(3), json_text("a")) == ("a", ["a"], 3, "a")


@pytest.mark.parametrize("value", [None, "3", -3, 0, 1.5, [3]])
def test_what_is_no_number_of_tokens_is_none(value: Any) -> None:
    assert figure(value) == 0


def test_what_is_no_list_is_an_empty_one() -> None:
    assert listed(None) == listed("ab") == listed({"a": 1}) == []


@pytest.mark.parametrize(("value", "text"), [(None, ""), ({"a": [1]}, '{"a":[1]}'), ("\ud800", "\ud800"), ("ü", "ü")])
def test_anything_is_text(value: Any, text: str) -> None:
    assert json_text(value) == text
    assert json_size(value) == len(text.encode("utf-8", "replace"))
