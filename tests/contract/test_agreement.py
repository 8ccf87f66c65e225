"""One conversation in four formats gets one plan, step for step.

Weights are given by the script, so that nothing but the facts can make a difference. Scripts here have one call a round, because
`sliding_window` counts messages, of which formats need different numbers for several calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Plan
from app.core.view import EntryCache, View
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from app.strategies import STRATEGIES
from app.strategies.base import Goal
from app.strategies.fold_rounds import FoldRounds
from tests.contract.scripts import WRITERS, Script, Step, Turn, few, script
from tests.story import Talk

SEEDS = st.integers(0, 2**32)
WEIGHT = 100


class Told:
    """A script in one format, with the steps that each of its items holds."""

    def __init__(self, form: str, asked: Script) -> None:
        written = WRITERS[form](asked)
        self.steps = [steps for steps, _ in written]
        opened = open_body(FORMATS[form], Talk(*(item for _, item in written), form=form).body)
        self.view = View(opened.raws, Reader(FORMATS[form], "o200k_base", EntryCache()).entries(opened.raws))
        known: set[Step] = set()
        for steps, entry in zip(self.steps, self.view.entries, strict=True):
            entry.tokens = WEIGHT * len({step for step in steps - known if "#" not in step and step != "system"})
            known |= steps

    def place(self, item: int, ordinal: int) -> Step:
        """The step behind a result."""
        return sorted(step for step in self.steps[item] if step.endswith("="))[ordinal]

    def does(self, plan: Plan | None) -> tuple[Any, ...] | None:
        """The plan in steps: what leaves, what is cleared, what stands in its place."""
        if plan is None:
            return None
        gone = {
            step
            for at in range(plan.start, plan.stop)
            if not self.view.entries[at].facts.stays
            for step in self.steps[at]
            if "#" not in step
        }
        cleared = {self.place(place.item, place.ordinal) for place in plan.clear if not place.inputs}
        inputs = sum(place.inputs for place in plan.clear)
        return plan.strategy, plan.note, frozenset(gone), frozenset(cleared), inputs, plan.continuation

    def plan(self, strategy: Any, **more: Any) -> tuple[Any, ...] | None:
        view = self.view
        goal = Goal(view.tokens, more.pop("target", 0), rules.level(view.facts), **more)
        return self.does(strategy.plan(view, goal))


def everywhere(asked: Script, strategy: Any, **more: Any) -> set[Any]:
    return {Told(form, asked).plan(strategy, **more) for form in WRITERS}


def calm(seed: int, **more: Any) -> Script:
    """A script without what only some formats know: reasoning, instructions in mid-history."""
    return script(seed, plain=True, **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=few(25), deadline=None)
@given(
    seed=SEEDS,
    turns=st.sampled_from([None, 1, 2]),
    keep=st.integers(1, 8),
    results=st.integers(0, 3),
    protect=st.booleans(),
)
def test_all_formats_get_the_same_plan(
    strategy: str, seed: int, turns: int | None, keep: int, results: int, protect: bool
) -> None:
    for asked in calm(seed).requests():
        plans = everywhere(
            asked, STRATEGIES[strategy], keep_recent_turns=turns, keep_recent_messages=keep, keep_recent_tool_results=results,
            clear_tool_inputs=results == 1, protect_current_turn=protect,
        )  # fmt: skip
        assert len(plans) == 1, plans


@settings(max_examples=few(40), deadline=None)
@given(seed=SEEDS, target=st.integers(0, 2_000))
def test_all_formats_are_folded_at_the_same_round(seed: int, target: int) -> None:
    for asked in calm(seed, turns=2, rounds=9).requests():
        assert len(everywhere(asked, FoldRounds(), target=target)) == 1


@settings(max_examples=few(40), deadline=None)
@given(seed=SEEDS)
def test_all_formats_agree_on_level_turn_and_round(seed: int) -> None:
    for asked in calm(seed).requests():
        found = set()
        for form in WRITERS:
            told = Told(form, asked)
            facts, steps = told.view.facts, [*told.steps, frozenset({"end"})]
            found.add((rules.level(facts), steps[rules.current_turn(facts)], frozenset(steps[rules.open_round(facts)])))
        assert len(found) == 1, found


@settings(max_examples=few(60), deadline=None)
@given(seed=SEEDS)
def test_parallel_calls_and_lost_results_are_read_alike(seed: int) -> None:
    """What may leave together does so in every format: the places between steps where all of them allow a cut, but for reasoning."""
    asked = script(seed)
    bare = Script(tuple(_calmed(turn) for turn in asked.turns))
    found = {}
    for form in WRITERS:
        told = Told(form, bare)
        allowed = rules.cuts(told.view.facts)
        before = [frozenset().union(*told.steps[:at]) - {"system"} for at in range(len(told.steps) + 1)]
        found[form] = {steps for steps, may in zip(before, allowed, strict=True) if may and _whole_rounds(steps, told)}
    assert len({frozenset(places) for places in found.values()}) == 1, found


def _calmed(turn: Turn) -> Turn:
    rounds = tuple(replace(one, thinks=False, lost=False) for one in turn.rounds)
    return replace(turn, rounds=rounds, thinks=False, instructs=False)


def _whole_rounds(steps: frozenset[Step], told: Told) -> bool:
    """Responses spreads one step of the model over several items: between those there is no place to compare."""
    rest = {step for one in told.steps for step in one} - steps
    return not any(step in steps and step in rest for step in steps)
