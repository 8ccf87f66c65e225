"""compactd knows its own words again, and nobody else's.

A note that is not known would be summarised as if a user had said it; a user's text that is taken for a note would not be protected.
"""

from __future__ import annotations

import pytest

from app.core import notes
from app.summaries.recap import recap

ADDRESS = (
    "http://127.0.0.1:8787/compactd/archives/compaction_s_20260101T000000Z_1_abcd/0123456789abcdef0123456789abcdef"
)
NOTES = [
    notes.omitted_note(1),
    notes.omitted_note(40),
    notes.omitted_note(2, ["Be brief.", "Answer in\n\nFrench."]),
    notes.CONTINUATION,
    recap("said", 1),
    recap("said", 2, ADDRESS, ["Be brief."]),
    recap("said", 3, running=True),
    recap("a </compaction_summary> b", 4),
]


@pytest.mark.parametrize("text", NOTES)
def test_a_note_is_known_and_says_what_it_is(text: str) -> None:
    assert notes.is_note(text)
    assert "compaction" in text


@pytest.mark.parametrize("text", NOTES)
def test_a_users_text_is_no_note(text: str) -> None:
    """Not even one that quotes a note, nor the request that a note leads."""
    assert not notes.is_note(f"What does this mean? {text}")
    assert not notes.is_note(f"{text}\n\nAnd now?")


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "[removed here by compaction]", "<compaction_summary>", "what they said may be missing.]"]
)
def test_nothing_else_is_a_note(text: str) -> None:
    assert not notes.is_note(text)


def test_the_notice_counts() -> None:
    assert notes.omitted_note(3) == (
        "[3 earlier messages were removed here by compaction (sliding window); what they said may be missing.]"
    )
    assert notes.omitted_note(1).startswith("[1 earlier message was removed")


def test_the_notice_repeats_what_still_holds() -> None:
    lines = notes.omitted_note(3, ["Be brief.", "No emoji."]).split("\n\n")
    assert lines[0] == notes.omitted_note(3)
    assert lines[2:-1] == ["Be brief.", "No emoji."]


def test_a_cleared_result_names_tool_size_and_address() -> None:
    text = notes.cleared_result("read_file", 12345, ADDRESS)
    assert "read_file" in text
    assert "12,345 bytes" in text
    assert ADDRESS in text
    assert "compaction" in text


def test_a_cleared_result_is_short() -> None:
    assert ADDRESS not in notes.cleared_result("read_file", 900, ADDRESS)
    assert len(notes.cleared_result("t" * 5_000, 900, "")) < 160
    assert notes.cleared_result("", 7, "") == "[Tool result cleared by compaction: 7 bytes.]"


def test_what_is_cleared_is_known_again() -> None:
    results = [notes.cleared_result("t", 5, ""), notes.cleared_result("", 5_000, ADDRESS), notes.left_out_result("t")]
    assert all(notes.is_cleared(text) for text in [*results, notes.CLEARED_INPUT])
    assert not notes.is_cleared(notes.cut_result("x" * 9_000, 3_000, 100, ADDRESS))
    assert not notes.is_cleared("[Tool result: cleared]")


def test_a_cut_result_shows_head_and_tail() -> None:
    text = "head" + "x" * 9_000 + "tail"
    cut = notes.cut_result(text, 3_000, 300, ADDRESS)
    assert cut.startswith("head")
    assert cut.endswith("tail")
    assert ADDRESS in cut
    assert len(cut) <= len(text) * 300 // 3_000
    assert "3,000 tokens" in cut
    assert notes.cut_result(text, 3_000, 300, ADDRESS) == cut
