"""Which stretch a cut takes, and where the part begins that is kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.strategies.stretch import kept_from, longest, says_something
from tests.items import answers, ask, note, rounds, rule, says, talk, thinks, view
from tests.strategies.conftest import goal

PINNED = says(pinned=True)


def test_everything_between_head_and_kept_part() -> None:
    facts = [rule(stays=True), ask(), says(), ask()]
    assert longest(facts, 3) == (1, 3)
    assert longest(facts, 1) == (1, 1)


def test_a_pinned_item_splits_what_can_leave() -> None:
    facts = [ask(), says(), PINNED, ask(), says(), ask(), says(), ask()]
    assert longest(facts, 7) == (3, 7)
    assert longest(facts, 4) == (0, 2)
    assert longest([ask(), PINNED, PINNED, ask()], 3) == (0, 1)
    assert longest([PINNED, ask()], 1) == (1, 1)


def test_both_ends_are_allowed_places() -> None:
    facts = [ask(), *rounds(2), thinks("x"), answers("x"), ask()]
    start, stop = longest(facts, 6)
    assert (start, stop) == (0, 5)
    assert longest([answers("lost"), ask(), says(), ask()], 3) == (1, 3)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_no_longer_stretch_could_be_taken(seed: int) -> None:
    facts = talk(seed)
    allowed = rules.cuts(facts)
    for stop in range(len(facts) + 1):
        first, last = longest(facts, stop)
        head = rules.head_end(facts)
        sizes = [
            b - a
            for a in range(head, stop + 1)
            for b in range(a, stop + 1)
            if allowed[a] and allowed[b] and not any(fact.pinned for fact in facts[a:b])
        ]
        assert last - first == max(sizes, default=0)
        assert first == last or (allowed[first] and allowed[last] and head <= first and last <= stop)


@pytest.mark.parametrize(("turns", "start"), [(None, 7), (1, 7), (2, 4), (3, 1), (4, 1), (99, 1)])
def test_the_last_turns_are_kept(turns: int | None, start: int) -> None:
    facts = [rule(stays=True), ask(), ask(), says(), ask(), *rounds(1), ask()]
    assert kept_from(facts, goal(view(*facts), keep_recent_turns=turns)) == start


def test_notes_are_no_turns() -> None:
    facts = [note(), ask(), says(), ask()]
    assert kept_from(facts, goal(view(*facts), keep_recent_turns=2)) == 1
    assert kept_from(facts, goal(view(*facts), keep_recent_turns=3)) == 0


def test_notes_and_what_stays_anyway_say_nothing() -> None:
    facts = [note(), rule(stays=True), ask(), rule()]
    assert not says_something(facts, 0, 2)
    assert says_something(facts, 0, 3)
    assert says_something(facts, 3, 4)
    assert not says_something(facts, 2, 2)
