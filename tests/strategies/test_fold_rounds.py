"""One question, hundreds of rounds: the oldest become a note behind it, the latest and the open one stay."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.notes import cleared_result, cut_result
from app.core.plan import Plan
from app.core.view import Clearing, Edited, Facts
from app.strategies.fold_rounds import FoldRounds
from tests.items import answers, ask, note, reasoning, rounds, rule, says, talk, thinks, view
from tests.strategies.conftest import goal


def plan(*facts: Facts, target: int = 400, **more: Any) -> Plan | None:
    own = view(*facts)
    return FoldRounds().plan(own, goal(own, target=target, **more))


def fold(start: int, stop: int) -> Plan:
    return Plan("fold_rounds", start, stop, "summary")


def test_the_oldest_rounds_go_until_the_rest_fits() -> None:
    """The question and as many of the latest rounds as the target takes, with room for the note."""
    assert plan(ask(), *rounds(10), target=1_000) == fold(1, 13)
    assert plan(ask(), *rounds(10), target=700) == fold(1, 17)


def test_the_open_round_stays_even_if_nothing_fits() -> None:
    assert plan(ask(), *rounds(10), target=0) == fold(1, 19)
    facts = [ask(), *rounds(3), says("a", "b"), answers("a"), answers("b")]
    assert plan(*facts, target=0) == fold(1, 7)


def test_rounds_that_were_cleared_go_even_if_the_rest_would_fit() -> None:
    """A placeholder and its call take more room than their lines in the note, and say less."""
    own = view(ask(), *rounds(6))
    for at in (2, 4, 6):
        own.pieces[at] = Edited(at, (Clearing(0, cleared_result("read", 4_000, "")),))
    assert FoldRounds().plan(own, goal(own, target=10_000)) == fold(1, 7)
    own.pieces[4] = 4
    assert FoldRounds().plan(own, goal(own, target=10_000)) == fold(1, 3)


def test_rounds_whose_results_a_standing_rule_cut_are_not_cleared() -> None:
    """Their heads and tails can be read."""
    own = view(ask(), *rounds(6))
    for at in (2, 4, 6):
        own.pieces[at] = Edited(at, (Clearing(0, cut_result("x" * 90_000, 20_000, 5_000, "")),))
    assert FoldRounds().plan(own, goal(own, target=10_000)) is None
    assert FoldRounds().plan(own, goal(own, target=700)) == plan(ask(), *rounds(6), target=700)


def test_what_fits_is_not_folded() -> None:
    assert plan(ask(), *rounds(6), target=10_000) is None


def test_earlier_turns_are_left_alone() -> None:
    assert plan(ask(), says(), ask(), ask(), *rounds(5), target=0) == fold(4, 12)


def test_the_note_of_an_earlier_fold_goes_into_the_next_one() -> None:
    assert plan(ask(), note(), *rounds(5), target=0) == fold(1, 10)


def test_a_note_alone_is_not_folded_again() -> None:
    assert plan(ask(), note(), *rounds(1), target=0) is None
    assert plan(ask(), *rounds(1), target=0) is None


def test_nothing_but_whole_rounds() -> None:
    facts = [ask(), says("a", "b"), answers("a"), answers("b"), says("c"), answers("c"), says("d"), answers("d")]
    assert plan(*facts, target=0) == fold(1, 6)
    assert plan(*facts, target=600) == fold(1, 4)


def test_with_reasoning_only_before_reasoning() -> None:
    facts = [
        ask(),
        thinks("a"),
        answers("a"),
        says("b"),
        answers("b"),
        thinks("c"),
        answers("c"),
        thinks("d"),
        answers("d"),
    ]
    assert plan(*facts, target=0) == fold(1, 7)
    assert plan(*facts, target=800) == fold(1, 5)
    responses = [ask(), reasoning(), says("a"), answers("a"), reasoning(), says("b"), answers("b")]
    assert plan(*responses, target=0) == fold(1, 4)


def test_a_turn_that_thinks_later_is_folded_from_there() -> None:
    facts = [ask(), says("a"), answers("a"), thinks("b"), answers("b"), thinks("c"), answers("c")]
    assert plan(*facts, target=0) == fold(3, 5)


def test_what_is_pinned_ends_the_fold() -> None:
    facts = [ask(), *rounds(2), says(pinned=True), *rounds(3, "s")]
    assert plan(*facts, target=0) == fold(1, 5)
    assert plan(ask(), says(pinned=True), *rounds(3), target=0) is None


def test_a_fold_begins_behind_the_providers_own_compaction() -> None:
    facts = [ask(), *rounds(3), says("x", pinned=True, restarts=True), answers("x"), *rounds(4)]
    assert plan(*facts, target=0) == fold(9, 15)


def test_instructions_that_stay_do_not_count_as_rounds() -> None:
    assert plan(ask(), rule(stays=True), *rounds(1), target=0) is None


def test_nothing_runs_nothing_folds() -> None:
    assert plan(ask(), says(), ask(), target=0) is None
    assert plan(note(), *rounds(3), target=0) is None


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.integers(0, 900))
def test_the_question_and_the_open_round_are_never_in_it(seed: int, target: int) -> None:
    facts = [*talk(seed, 16), says("z"), answers("z")]
    found = plan(*facts, target=target)
    if found is None:
        return
    allowed = rules.cuts(facts)
    assert rules.current_turn(facts) < found.start < found.stop <= rules.open_round(facts)
    assert allowed[found.start]
    assert allowed[found.stop]
    assert not any(fact.pinned for fact in facts[found.start : found.stop])
    left = [
        *facts[: found.start],
        note(),
        *(f for f in facts[found.start : found.stop] if f.stays),
        *facts[found.stop :],
    ]
    assert not rules.violations(left) - rules.violations(facts)
