"""Old results go, the conversation keeps its shape, and the round that the model is about to answer is not touched."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.notes import CLEARED_INPUT, cleared_result, cut_result
from app.core.plan import Clear, Plan
from app.core.view import Clearing, Edited, Facts, View
from app.strategies.tool_result_clearing import ToolResultClearing
from tests.items import answers, ask, reasoning, rounds, says, talk, thinks, view
from tests.strategies.conftest import goal


def plan_of(own: View, keep: int, **more: Any) -> Plan | None:
    return ToolResultClearing().plan(own, goal(own, keep_recent_tool_results=keep, **more))


def cleared(*facts: Facts, keep: int = 3, **more: Any) -> list[int]:
    """The items whose results are cleared."""
    found = plan_of(view(*facts), keep, **more)
    assert found is None or not found.cuts
    return [place.item for place in found.clear] if found else []


TALK = [ask(), *rounds(5), says(), ask()]


def test_the_newest_results_are_kept() -> None:
    assert cleared(*TALK) == [2, 4]
    assert cleared(*TALK, keep=1) == [2, 4, 6, 8]
    assert cleared(*TALK, keep=0) == [2, 4, 6, 8, 10]
    assert cleared(*TALK, keep=5) == []


def test_what_stands_before_the_providers_own_compaction_is_left_alone() -> None:
    facts = [ask(), *rounds(3), says(pinned=True, restarts=True), ask(), *rounds(4)]
    own = view(*facts)
    plan = ToolResultClearing().plan(own, goal(own, keep_recent_tool_results=1))
    assert plan is not None
    assert [place.item for place in plan.clear] == [10, 12, 14]


def test_nothing_to_clear_is_no_plan() -> None:
    assert plan_of(view(ask(), says(), ask()), 3) is None
    assert plan_of(view(*TALK), 9) is None


def test_both_levels() -> None:
    assert cleared(ask(), *rounds(6)) == [2, 4, 6]


def test_the_open_round_is_not_touched_however_many_results_it_has() -> None:
    """Else the model would be asked about evidence that it was never shown."""
    facts = [ask(), *rounds(2), says("a", "b", "c"), answers("a"), answers("b"), answers("c")]
    assert cleared(*facts, keep=1, clear_tool_inputs=True) == [2, 1, 4, 3]
    assert cleared(ask(), says("a", "b"), answers("a", "b"), keep=0, clear_tool_inputs=True) == []
    assert cleared(ask(), *rounds(1), reasoning(), says("a"), answers("a"), keep=0, clear_tool_inputs=True) == [2, 1]


def test_results_are_counted_not_items() -> None:
    found = plan_of(view(ask(), says("a", "b", "c"), answers("a", "b", "c"), says(), ask()), 2)
    assert found
    assert found.clear == (Clear(2, 0),)


def test_short_results_stay() -> None:
    """A placeholder would be no shorter."""
    assert cleared(ask(), *rounds(3, size=160), says(), ask(), keep=0) == []
    assert cleared(ask(), *rounds(3, size=161), says(), ask(), keep=0) == [2, 4, 6]


def test_inputs_are_cleared_with_their_results_if_asked() -> None:
    found = plan_of(view(*TALK), 3, clear_tool_inputs=True)
    assert found
    assert found.clear == (Clear(2, 0), Clear(1, 0, True), Clear(4, 0), Clear(3, 0, True))


def test_inputs_of_kept_results_and_empty_inputs_stay() -> None:
    facts = [ask(), says("a", size=2), answers("a"), says("b"), answers("b"), says(), ask()]
    assert cleared(*facts, keep=1, clear_tool_inputs=True) == [2]


def test_an_input_that_two_results_answer_is_cleared_once() -> None:
    found = plan_of(view(ask(), says("a"), answers("a"), answers("a"), says(), ask()), 0, clear_tool_inputs=True)
    assert found
    assert found.clear == (Clear(2, 0), Clear(1, 0, True), Clear(3, 0))


def test_tools_that_are_excluded_keep_their_results() -> None:
    facts = [
        ask(),
        says("a", tool="memory"),
        answers("a"),
        *rounds(1),
        says("", tool="skill"),
        answers("", tool="skill"),
        says(),
        ask(),
    ]
    excluded = frozenset({"memory", "skill"})
    assert cleared(*facts, keep=0, exclude_tools=excluded) == [4]
    assert cleared(*facts, keep=0, clear_tool_inputs=True, exclude_tools=excluded) == [4, 3]


def test_what_may_not_be_cleared_stays() -> None:
    assert cleared(ask(), *rounds(2, clearable=False), says(), ask(), keep=0) == []
    assert cleared(ask(), says("a"), answers("a", pinned=True), says(), ask(), keep=0) == []
    pinned_call = [ask(), says("a", pinned=True), answers("a"), says("b", clearable=False), answers("b"), says(), ask()]
    assert cleared(*pinned_call, keep=0, clear_tool_inputs=True) == [2, 4]


def test_results_that_may_not_be_cleared_do_not_use_up_what_is_kept() -> None:
    facts = [ask(), *rounds(2), *rounds(1, "s", clearable=False), says(), ask()]
    assert cleared(*facts, keep=1) == [2]


def test_a_result_without_its_call_is_cleared_as_well() -> None:
    assert cleared(ask(), answers("lost"), says(), ask(), keep=0, clear_tool_inputs=True) == [1]


def test_an_old_round_with_reasoning_is_cleared() -> None:
    facts = [ask(), thinks("a"), answers("a"), thinks("b"), answers("b")]
    assert cleared(*facts, keep=0, clear_tool_inputs=True) == [2, 1]


def test_what_is_cleared_already_keeps_its_placeholder() -> None:
    """It names the true size and the archive, which a second one could not."""
    own = view(*TALK)
    own.pieces[2] = Edited(2, (Clearing(0, cleared_result("read", 4_000, "http://x/" + "y" * 200)),))
    own.pieces[1] = Edited(1, (Clearing(0, CLEARED_INPUT, True),))
    found = plan_of(own, 3, clear_tool_inputs=True)
    assert found
    assert found.clear == (Clear(4, 0), Clear(3, 0, True))


def test_what_was_only_cut_short_can_be_cleared() -> None:
    own = view(*TALK)
    own.pieces[2] = Edited(2, (Clearing(0, cut_result("x" * 90_000, 20_000, 5_000, "")),))
    found = plan_of(own, 3)
    assert found
    assert found.clear == (Clear(2, 0), Clear(4, 0))


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(0, 4), st.booleans())
def test_every_place_is_one_that_may_be_cleared(seed: int, keep: int, inputs: bool) -> None:
    facts = talk(seed)
    found = plan_of(view(*facts), keep, clear_tool_inputs=inputs)
    if found is None:
        return
    assert len(set(found.clear)) == len(found.clear)
    for place in found.clear:
        fact = facts[place.item]
        assert not fact.pinned
        assert place.item < rules.open_round(facts)
        assert (fact.calls if place.inputs else fact.results)[place.ordinal].clearable
        assert inputs or not place.inputs
