"""The tables of words are those that the code says, in both directions."""

from __future__ import annotations

import re

from tests.docs import words
from tests.docs.pages import page, rows, section

PAGE = page("troubleshooting.md")


def table(heading: str) -> dict[str, list[str]]:
    """The first column's word -> the other columns."""
    found = {row[0].strip("`"): row[1:] for row in rows(section(PAGE, heading))}
    assert all(all(cells) for cells in found.values())
    return found


def test_every_reason_is_explained() -> None:
    assert set(table("Reasons")) == words.reasons()


def test_the_reasons_are_found_in_all_the_ways_they_are_made() -> None:
    """One of each; a way that is not seen would make the test above blind."""
    raised, returned, given, assigned, chosen = "signed", "no_gain", "rejected", "too_large", "checkpoint"
    named, told = "own_strategy_failed", "bound_reasoning_dropped"
    assert {raised, returned, given, assigned, chosen, named, told} <= words.reasons()


def test_every_reason_for_no_summary_is_explained() -> None:
    assert set(table("Why there is no summary")) == words.summaries()
    assert {"timeout", "window_too_small", "truncated", "status_…"} <= words.summaries()


def test_every_outcome_is_explained() -> None:
    assert set(table("Outcomes")) == words.outcomes()


def test_every_error_code_is_explained_with_its_status() -> None:
    told = {code: {int(cells[0])} for code, cells in table("Errors of compactd's own").items()}
    assert told == words.codes()


def test_no_row_stands_twice() -> None:
    for heading in ("Reasons", "Why there is no summary", "Outcomes", "Errors of compactd's own"):
        first = [row[0] for row in rows(section(PAGE, heading))]
        assert len(first) == len(set(first))


def test_symptoms_name_words_that_exist() -> None:
    known = words.reasons() | words.outcomes() | set(words.codes())
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`:", section(PAGE, "By symptom")))
    assert named
    assert named <= known
