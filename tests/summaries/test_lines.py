"""Lines and strings: nothing of a text gets lost between them, and kinds are told by characters in every script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.summaries.lines import SEGMENT, clean, kind_of, lines_of, runs_of


def squeezed(text: str) -> str:
    return "".join(text.split())


@given(st.text(max_size=2_000))
def test_lines_hold_the_whole_text(text: str) -> None:
    assert squeezed("".join(lines_of(text))) == squeezed(text)


@given(st.text(alphabet="ab ,.\n", max_size=3_000))
def test_no_line_is_long(text: str) -> None:
    assert all(0 < len(line) <= SEGMENT + 40 and not line.isspace() for line in lines_of(text))


def test_a_long_line_falls_apart_at_gaps() -> None:
    line = ", ".join(f'"key_{n}": {n * 1000}' for n in range(60))
    assert all(f'"key_{n}": {n * 1000}' in "\n".join(lines_of(line)) for n in range(60))


def test_a_long_run_without_gaps_falls_apart_too() -> None:
    assert "".join(lines_of("x" * 10_000)) == "x" * 10_000


def test_a_listing_s_line_number_is_no_string() -> None:
    assert runs_of("   412→\tlimit = MAX_RETRIES") == ["limit", "MAX_RETRIES"]
    assert runs_of("412 retries") == ["412", "retries"]


@pytest.mark.parametrize(
    ("string", "kind"),
    [
        ("https://example.org/a?b", "url"), ("/srv/app/main.py", "path"), ("src\\main.c", "path"), ("4711", "number"),
        ("2024-05-21", "number"), ("HAT285", "id"), ("9f86d081884c7d65", "id"), ("予約番号JP48213", "id"), ("max_retries", "identifier"),
        ("saveChanges", "identifier"), ("file.go:123", "id"), ("Zwetschgenkuchen", "word"), ("бронирование", "word"), ("東京", "word"),
        ("12", ""), ("a", ""), ("==", ""), ("x" * 201, ""),
    ],
)  # fmt: skip
def test_kinds(string: str, kind: str) -> None:
    assert kind_of(string) == kind


def test_what_clings_to_a_string_is_taken_off() -> None:
    assert clean("-main.py:") == "main.py"
    assert runs_of("(see `main.py`, 「設定」)") == ["see", "main.py", "設定"]
