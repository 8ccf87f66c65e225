"""A recap for what is over; the question, or the turn that is running, word for word behind it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Plan
from app.core.view import Facts
from app.strategies.summarize import Summarize
from tests.items import answers, ask, note, rounds, rule, says, talk, thinks, view
from tests.strategies.conftest import goal


def plan(*facts: Facts, **more: Any) -> Plan | None:
    own = view(*facts)
    return Summarize().plan(own, goal(own, **more))


def recap(start: int, stop: int) -> Plan:
    return Plan("summarize", start, stop, "summary")


def test_before_a_run_the_pending_question_follows() -> None:
    assert plan(ask(), says(), ask(), *rounds(2), says(), ask()) == recap(0, 8)
    assert plan(rule(stays=True), ask(), says(), ask(), ask()) == recap(1, 3)


def test_in_a_tool_loop_the_whole_current_turn_follows() -> None:
    assert plan(ask(), says(), ask(), says(), *rounds(3)) == recap(0, 2)


@pytest.mark.parametrize(("turns", "stop"), [(1, 4), (2, 2)])
def test_the_last_turns_follow(turns: int, stop: int) -> None:
    assert plan(ask(), says(), ask(), says(), ask(), keep_recent_turns=turns) == recap(0, stop)


def test_with_no_more_turns_than_are_kept_nothing_is_summarised() -> None:
    assert plan(ask(), says(), ask(), keep_recent_turns=2) is None
    assert plan(ask(), says(), ask(), keep_recent_turns=9) is None


def test_an_earlier_recap_goes_into_the_next_one() -> None:
    assert plan(note(), ask(), says(), ask()) == recap(0, 3)


@pytest.mark.parametrize("before", [[], [note()], [note(), note()], [rule(stays=True)], [note(), rule(stays=True)]])
def test_a_recap_alone_is_never_summarised(before: list[Facts]) -> None:
    """A turn that stays above the threshold would pay for a summary on every request: old results are cleared instead."""
    found = plan(*before, ask(), *rounds(5))
    assert found
    assert found.strategy == "tool_result_clearing"
    assert found.because == "nothing_to_summarize"
    assert not found.cuts
    assert [place.item for place in found.clear] == [len(before) + 2, len(before) + 4]


def test_where_nothing_can_be_cleared_either_there_is_no_plan() -> None:
    assert plan(note(), ask()) is None
    assert plan(ask(), *rounds(2)) is None


def test_without_any_request_everything_may_be_summarised() -> None:
    assert plan(rule(stays=True), *rounds(2), says()) == recap(1, 6)


def test_a_pinned_item_stays() -> None:
    assert plan(ask(), says(), ask(pinned=True), says(), ask(), says(), ask()) == recap(3, 6)


def test_the_cut_ends_at_an_allowed_place() -> None:
    """A19: instructions before the question would lose the answer that has to follow them."""
    assert plan(ask(), says(), rule(), ask()) == recap(0, 2)


# protect_current_turn: false


def test_a_running_turn_may_be_folded_whole() -> None:
    found = plan(rule(stays=True), ask(), says(), ask(), *rounds(2), protect_current_turn=False)
    assert found == Plan("summarize", 1, 8, "summary", continuation=True)
    assert plan(ask(), thinks("a"), answers("a"), protect_current_turn=False) == Plan(
        "summarize", 0, 3, "summary", continuation=True
    )


def test_a_pending_question_stays_all_the_same() -> None:
    assert plan(ask(), says(), ask(), protect_current_turn=False) == recap(0, 2)


def test_what_is_pinned_can_not_be_folded() -> None:
    assert plan(ask(), says(pinned=True), *rounds(2), protect_current_turn=False) is None
    restart = [says("x", pinned=True, restarts=True), answers("x")]
    found = plan(ask(), *restart, *rounds(2), protect_current_turn=False)
    assert found == Plan("summarize", 3, 7, "summary", continuation=True)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([None, 1, 2]))
def test_the_current_turn_is_never_in_a_recap(seed: int, turns: int | None) -> None:
    facts = talk(seed)
    found = plan(*facts, keep_recent_turns=turns)
    if found is None:
        return
    request = rules.current_turn(facts)
    assert found.stop <= request
    assert not found.continuation
    if found.cuts:
        assert not any(fact.pinned for fact in facts[found.start : found.stop])
        assert any(not fact.note for fact in facts[found.start : found.stop])
