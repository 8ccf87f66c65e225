"""Worth: what was called, said, repeated and recent is worth more; what nobody looks for is nothing."""

from __future__ import annotations

from app.summaries.worth import Worth
from tests.summaries.conversations import count


def worths(*said: tuple[str, int, str], now: int = 10) -> dict[str, int]:
    worth = Worth(count)
    for line, at, who in said:
        worth.note([worth.strings(line)], at, who)
    return worth.weights(now)


def test_a_string_of_a_call_is_worth_more_than_one_of_a_text_and_that_more_than_one_of_a_result() -> None:
    weights = worths(("alpha_one", 1, "call"), ("alpha_two", 1, "assistant"), ("alpha_six", 1, "result"))
    assert weights["alpha_one"] > weights["alpha_two"] > weights["alpha_six"] > 0


def test_the_recent_is_worth_more() -> None:
    weights = worths(("alpha_old", 1, "result"), ("alpha_new", 9, "result"))
    assert weights["alpha_new"] > weights["alpha_old"]


def test_age_counts_from_the_last_place() -> None:
    weights = worths(("alpha_one", 1, "result"), ("alpha_two", 1, "result"), ("alpha_one", 9, "result"))
    assert weights["alpha_one"] > weights["alpha_two"]


def test_a_common_word_is_worth_little_in_any_language() -> None:
    for common, rare in (("would", "Zwetschge"), ("которые", "обжаловательный"), ("dieser", "Zwetschge")):
        weights = worths((f"{common} {rare}", 1, "result"))
        assert weights[common] * 10 < weights[rare]


def test_what_nobody_looks_for_has_no_worth() -> None:
    assert worths(("== a 12 -- if", 1, "call")) == {}


def test_a_line_names_each_string_once() -> None:
    assert Worth(count).strings("max_size = max_size + max_size.") == ["max_size"]
