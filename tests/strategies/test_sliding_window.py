"""The window: valid in every case, smaller where it can be, and the question always in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Plan
from app.core.view import Facts
from app.strategies.sliding_window import SlidingWindow
from tests.items import answers, ask, note, rounds, rule, says, talk, thinks, view
from tests.strategies.conftest import goal


def plan(*facts: Facts, keep: int = 5, **more: Any) -> Plan | None:
    own = view(*facts)
    return SlidingWindow().plan(own, goal(own, keep_recent_messages=keep, **more))


def cut(*facts: Facts, keep: int = 5, **more: Any) -> tuple[int, int] | None:
    found = plan(*facts, keep=keep, **more)
    return (found.start, found.stop) if found else None


CHAT = [ask(), says(), ask(), says(), ask(), says(), ask()]


@pytest.mark.parametrize(("keep", "opening"), [(5, 2), (4, 3), (3, 4), (1, 6)])
def test_the_last_items_are_kept(keep: int, opening: int) -> None:
    assert cut(*CHAT, keep=keep) == (0, opening)


@pytest.mark.parametrize("keep", [7, 8, 99])
def test_a_conversation_within_the_window_is_left_alone(keep: int) -> None:
    assert plan(*CHAT, keep=keep) is None


def test_it_leaves_a_notice() -> None:
    found = plan(*CHAT)
    assert found == Plan("sliding_window", 0, 2, "omitted")


def test_instructions_at_the_head_stay() -> None:
    assert cut(rule(stays=True), *CHAT, keep=2) == (1, 6)


def test_a_start_inside_an_exchange_walks_forward_past_it() -> None:
    facts = [ask(), says(), ask(), *rounds(1), says(), ask()]
    assert cut(*facts, keep=3) == (0, 5)
    assert cut(*facts, keep=4) == (0, 3)


def test_a_window_full_of_tool_traffic_opens_before_it() -> None:
    """Walking forward would run off the end: then back to what is neither call nor result."""
    facts = [ask(), says(), ask(), says("a", "b", "c"), answers("a"), answers("b"), answers("c")]
    assert cut(*facts, keep=2) == (0, 2)
    draft = [ask(), says(), says("a", "b"), answers("a"), answers("b")]
    assert plan(*draft, keep=2) is None


def test_in_a_tool_loop_it_never_opens_after_the_request() -> None:
    facts = [ask(), says(), ask(), *rounds(10)]
    assert cut(*facts, keep=3) == (0, 2)
    assert plan(ask(), *rounds(10), keep=3) is None


def test_requests_in_a_row_are_one_question() -> None:
    assert cut(ask(), says(), ask(), ask(), *rounds(3), keep=2) == (0, 2)


def test_results_are_never_parted_from_their_calls() -> None:
    for keep in range(1, 12):
        found = cut(
            ask(), *rounds(2), says(), ask(), *rounds(1), says("x", "y"), answers("x", "y"), says(), ask(), keep=keep
        )
        assert found
        assert found[1] in (3, 5, 6, 7, 9, 11, 12)


def test_what_it_left_before_is_not_left_again() -> None:
    assert plan(note(), ask(), keep=1) is None
    assert plan(rule(stays=True), note(), rule(stays=True), ask(), keep=1) is None
    assert cut(note(), ask(), says(), ask(), keep=1) == (0, 3)


def test_the_latest_turns_instead_of_the_latest_messages() -> None:
    assert cut(*CHAT, keep=99, keep_recent_turns=2) == (0, 4)
    assert cut(*CHAT, keep=1, keep_recent_turns=3) == (0, 2)
    assert plan(*CHAT, keep_recent_turns=4) is None


def test_without_a_notice_the_history_still_begins_with_the_user() -> None:
    """A15, G2."""
    assert plan(*CHAT, keep=4, notice=False) == Plan("sliding_window", 0, 4)
    assert cut(*CHAT, keep=3, notice=False) == (0, 4)
    pinned = [ask(), says(), ask(), says(), says(pinned=True), ask()]
    assert plan(*pinned, keep=1, notice=False) is None
    assert cut(*pinned, keep=1) == (0, 4)


def test_reasoning_is_kept_whole() -> None:
    facts = [ask(), says(), ask(), thinks("a"), answers("a"), says(), ask()]
    assert cut(*facts, keep=3) == (0, 6)


def test_a_pinned_item_stays() -> None:
    assert cut(ask(), says(pinned=True), ask(), says(), ask(), says(), ask(), keep=1) == (2, 6)


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.integers(1, 8), st.booleans(), st.sampled_from([None, 1, 2]))
def test_a_window_is_always_valid(seed: int, keep: int, notice: bool, turns: int | None) -> None:
    facts = talk(seed)
    found = plan(*facts, keep=keep, notice=notice, keep_recent_turns=turns)
    if found is None:
        return
    request = rules.current_turn(facts)
    assert found.stop <= request or request == len(facts)
    assert not any(fact.pinned for fact in facts[found.start : found.stop])
    kept = [fact for fact in facts[found.start : found.stop] if fact.stays]
    left = [*facts[: found.start], *([note()] * notice), *kept, *facts[found.stop :]]
    assert not rules.violations(left) - rules.violations(facts)
    assert (
        len(facts) - found.stop >= keep
        or turns
        or found.stop in (request, len(facts))
        or found.stop > len(facts) - keep
    )
