"""Stages in order, each on what the last one left, no further than the target asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Clear, Plan
from app.core.view import Facts
from app.strategies.combined import NOTE_TOKENS, Combined, tokens_after
from app.strategies.summarize import Summarize
from tests.items import answers, ask, note, rounds, rule, says, talk, view
from tests.strategies.conftest import goal

LONG = [ask(), *rounds(5), says(), ask(), says(), ask(), says(), ask()]
HEAVY = [10, *([10, 1_000] * 5), 10, 10, 10, 10, 10, 10]


def plan(*facts: Facts, tokens: list[int] | int = 100, **more: Any) -> Plan | None:
    own = view(*facts, tokens=tokens)
    return Combined().plan(own, goal(own, **more))


def test_it_stops_at_the_first_stage_that_is_enough() -> None:
    found = plan(*LONG, tokens=HEAVY, target=4_000)
    assert found == Plan("combined", clear=(Clear(2, 0), Clear(4, 0)))


def test_the_window_comes_next() -> None:
    found = plan(*LONG, tokens=HEAVY, target=100)
    assert found == Plan("combined", 0, 12, "omitted")


def test_the_summary_comes_last_and_swallows_the_rest() -> None:
    found = plan(*LONG, tokens=HEAVY, target=75)
    assert found == Plan("combined", 0, 16, "summary")


def test_clearings_outside_the_cut_are_kept() -> None:
    facts = [ask(), says(), ask(), *rounds(5)]
    found = plan(*facts, target=0)
    assert found == Plan("combined", 0, 2, "summary", (Clear(4, 0), Clear(6, 0)))


def test_the_order_is_the_policys() -> None:
    assert plan(*LONG, target=100, combined_order=("sliding_window",)) == Plan("combined", 0, 12, "omitted")
    assert plan(*LONG, target=10_000, combined_order=("summarize", "sliding_window")) == Plan(
        "combined", 0, 16, "summary"
    )


def test_a_later_window_does_not_take_the_summary_back() -> None:
    """The notice of a window would stand where a recap was wanted."""
    found = plan(*LONG, target=0, keep_recent_turns=2, combined_order=("summarize", "sliding_window"))
    assert found == Plan("combined", 0, 14, "summary")


def test_a_stage_that_can_not_act_is_skipped() -> None:
    assert plan(*LONG, tokens=HEAVY, target=0, keep_recent_tool_results=9, keep_recent_messages=99) == Plan(
        "combined", 0, 16, "summary"
    )
    assert plan(ask(), *rounds(5), target=0) == Plan("combined", clear=(Clear(2, 0), Clear(4, 0)))


def test_a_summary_that_would_only_clear_is_skipped() -> None:
    assert plan(note(), ask(), *rounds(5), target=0, combined_order=("summarize",)) is None


def test_nothing_to_do_is_no_plan() -> None:
    assert plan(ask(), target=0) is None
    assert plan(note(), ask(), target=0) is None


def test_where_a_summary_costs_nothing_no_message_leaves_without_one() -> None:
    assert plan(*LONG, tokens=HEAVY, target=100, summary_is_free=True) == Plan("combined", 0, 12, "summary")
    only = ("tool_result_clearing", "sliding_window")
    assert plan(*LONG, tokens=HEAVY, target=100, summary_is_free=True, combined_order=only) == Plan(
        "combined", 0, 12, "omitted"
    )


def test_the_stages_agree_on_what_is_protected() -> None:
    facts = [ask(), says(), ask(), *rounds(5)]
    found = plan(*facts, target=0, protect_current_turn=False)
    assert found == Plan("combined", 0, len(facts), "summary", continuation=True)


def test_a_pinned_item_between_two_cuts_stays() -> None:
    """The window cuts before it, the summary behind it: one cut over both would take it along."""
    before, behind = [ask(), says()] * 2, [ask(), says()] * 4
    facts = [*before, says(pinned=True), *behind, ask()]
    found = plan(*facts, target=0, keep_recent_messages=8)
    assert found == Plan("combined", 5, 13, "summary")


@pytest.mark.parametrize(
    "order", [("sliding_window", "summarize"), ("summarize", "sliding_window"), ("tool_result_clearing", "summarize")]
)
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), keep=st.integers(1, 6), target=st.integers(0, 900))
def test_one_plan_keeps_all_promises(order: tuple[str, ...], seed: int, keep: int, target: int) -> None:
    facts = talk(seed, 20)
    found = plan(*facts, target=target, keep_recent_messages=keep, combined_order=order)
    if found is None:
        return
    assert found.strategy == "combined"
    inside = facts[found.start : found.stop]
    assert not any(fact.pinned for fact in inside)
    assert found.stop <= rules.current_turn(facts)
    allowed = rules.cuts(facts)
    assert not found.cuts or (allowed[found.start] and allowed[found.stop])
    assert not any(found.start <= place.item < found.stop for place in found.clear)


# The estimate behind "enough"


def test_what_a_cut_leaves() -> None:
    own = view(rule(stays=True), ask(), rule(stays=True), says(), ask())
    assert tokens_after(own, Plan("t", 1, 4, "omitted")) == 300 + NOTE_TOKENS


def test_what_clearing_leaves() -> None:
    own = view(ask(), says("a", "b", size=2_500), answers("a", "b", size=2_500), ask(), tokens=1_000, size=5_000 - 2)
    assert tokens_after(own, Plan("t", clear=(Clear(2, 0),))) == 4_000 - 500 + 30
    assert tokens_after(own, Plan("t", clear=(Clear(2, 0), Clear(2, 1), Clear(1, 1, True)))) == 4_000 - 1_000 - 500 + 60


def test_what_is_not_counted_yet_frees_nothing() -> None:
    own = view(ask(), says(), ask(), tokens=[-1, 100, 100])
    assert tokens_after(own, Plan("t", 0, 2, "omitted")) <= 100 + NOTE_TOKENS


def test_a_plan_is_the_same_every_time() -> None:
    own = view(*LONG, tokens=HEAVY)
    plans = {repr(strategy.plan(own, goal(own))) for strategy in (Combined(), Combined(), Combined())}
    assert len(plans) == 1
    assert Summarize().plan(own, goal(own)) == Summarize().plan(own, goal(own))
