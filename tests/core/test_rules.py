"""Each rule by the smallest conversation that needs it; then all of them at once, on conversations that hardly make sense.

The linear algorithms are held against the sentences that they implement, written out as slow loops; and against the promise behind them,
that a cut at allowed places adds no violation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.view import Facts
from tests.items import answers, ask, note, reasoning, rounds, rule, says, talk, thinks

SEEDS = st.integers(0, 2**32)


def allowed(*facts: Facts) -> list[int]:
    return [at for at, may in enumerate(rules.cuts(facts)) if may]


# Pairing


def pairs(*facts: Facts) -> dict[tuple[int, int], tuple[int, int]]:
    return rules.pair(facts).call_of


def test_a_result_belongs_to_the_latest_open_call_with_its_id() -> None:
    assert pairs(says("a"), answers("a"), says("a"), answers("a")) == {(1, 0): (0, 0), (3, 0): (2, 0)}
    assert pairs(says("a"), says("a"), answers("a"), answers("a")) == {(2, 0): (1, 0), (3, 0): (0, 0)}


def test_parallel_calls_pair_in_any_order() -> None:
    assert pairs(says("a", "b"), answers("b"), answers("a")) == {(1, 0): (0, 1), (2, 0): (0, 0)}


def test_a_second_result_belongs_to_the_same_call() -> None:
    pairing = rules.pair([says("a"), answers("a"), answers("a")])
    assert pairing.call_of == {(1, 0): (0, 0), (2, 0): (0, 0)}
    assert not pairing.orphans


def test_what_has_no_partner_is_told() -> None:
    pairing = rules.pair([answers("x"), says("a", "b"), answers("b", "y")])
    assert pairing.orphans == ((0, 0), (2, 1))
    assert pairing.unanswered == ((1, 0),)


def test_calls_without_ids_pair_in_order_by_name() -> None:
    facts = [says("", ""), answers("", "", tool="read"), says("", tool="write"), answers("", tool="write")]
    assert pairs(*facts) == {(1, 0): (0, 0), (1, 1): (0, 1), (3, 0): (2, 0)}
    assert rules.pair([says("", tool="read"), answers("", tool="write")]).orphans == ((1, 0),)


def test_an_open_call_without_id_takes_no_later_result() -> None:
    """Neither one behind the next request nor one of a later round: each would shift the pairs of all that follow."""
    open_call, later = [ask(), says("")], [says(""), answers("", tool="read"), says(""), answers("", tool="read")]
    for between in ([ask()], []):
        pairing = rules.pair([*open_call, *between, *later])
        first = len(open_call) + len(between)
        assert pairing.call_of == {(first + 1, 0): (first, 0), (first + 3, 0): (first + 2, 0)}
        assert pairing.unanswered == ((1, 0),)


def test_a_late_result_of_a_call_without_id_is_an_orphan() -> None:
    assert rules.pair([says(""), ask(), answers("", tool="read")]).orphans == ((2, 0),)
    answered = [says(""), answers("", tool="read")]
    assert rules.pair([*answered, says(""), ask(), answers("", tool="read")]).orphans == ((4, 0),)


def test_fifty_thousand_of_the_same_pair_as_a_few_do() -> None:
    """Nobody's one request may keep all others waiting: each of these took minutes when it was looked at item by item."""
    many = 50_000
    nameless = [says(*[""] * many), *[answers("", tool="read")] * many]
    assert rules.pair(nameless).call_of == {(1 + n, 0): (0, n) for n in range(many)}
    one_each = [*[says("")] * many, *[answers("", tool="read")] * many]
    assert rules.pair(one_each).call_of == {(many + n, 0): (many - 1 - n, 0) for n in range(many)}
    named = [fact for n in range(many // 2) for fact in (ask(), says(f"{n}"), answers(f"{n}"))]
    assert rules.pair(named).unanswered == ()
    instructed = [ask(), thinks(), *[rule()] * many, says(), ask()]
    assert allowed(*instructed) == [0, 1, many + 3, many + 4]


def test_the_tool_is_named_by_the_result_or_by_its_call() -> None:
    facts = [says("a", tool="read"), answers("a"), answers("x", tool="named"), answers("y")]
    pairing = rules.pair(facts)
    assert [pairing.tool(facts, (at, 0)) for at in (1, 2, 3)] == ["read", "named", ""]


@settings(max_examples=400)
@given(SEEDS)
def test_pairs_are_sound(seed: int) -> None:
    """Every result pairs backwards with a call of its name, every call and result is accounted for."""
    facts = talk(seed)
    pairing = rules.pair(facts)
    for (item, ordinal), (call, number) in pairing.call_of.items():
        result, called = facts[item].results[ordinal], facts[call].calls[number]
        assert call <= item
        assert result.id == called.id
        assert result.id or result.tool == called.tool
    results = {(at, n) for at, fact in enumerate(facts) for n in range(len(fact.results))}
    calls = {(at, n) for at, fact in enumerate(facts) for n in range(len(fact.calls))}
    assert results == {*pairing.call_of, *pairing.orphans}
    assert calls == {*pairing.call_of.values(), *pairing.unanswered}
    assert not set(pairing.unanswered) & set(pairing.call_of.values())


@settings(max_examples=400)
@given(SEEDS)
def test_with_unlike_ids_everything_pairs_by_id(seed: int) -> None:
    """The oracle for the simple case: one call an id, so that the place decides nothing."""
    facts = [fact for fact in talk(seed) if not any(one.id == "" for one in (*fact.calls, *fact.results))]
    made: dict[str, tuple[int, int]] = {}
    for at, fact in enumerate(facts):
        for n, call in enumerate(fact.calls):
            if call.id in made:
                return
            made[call.id] = (at, n)
    for at, fact in enumerate(facts):
        for n, result in enumerate(fact.results):
            known = made.get(result.id)
            expected = known if known and known[0] < at else None
            assert rules.pair(facts).call_of.get((at, n)) == expected


# Where a cut may be


def test_a_call_stays_with_its_results() -> None:
    """A1, A4, C1, C2, R1, G3."""
    assert allowed(ask(), says("a"), answers("a"), says(), ask()) == [0, 1, 3, 4, 5]


def test_parallel_calls_and_results_stay_together() -> None:
    """A2, C2: also where the results are items of their own."""
    assert allowed(ask(), says("a", "b"), answers("b"), answers("a"), ask()) == [0, 1, 4, 5]
    assert allowed(ask(), says("a"), says("b"), answers("a"), answers("b"), ask()) == [0, 1, 5, 6]


def test_nothing_begins_with_a_result() -> None:
    """A5, G4: not even with one whose call is gone."""
    assert allowed(answers("x"), ask(), answers("y"), ask()) == [1, 3, 4]


def test_a_call_that_nobody_answered_glues_nothing() -> None:
    assert allowed(ask(), says("a"), ask(), says("b"), answers("b"), ask()) == [0, 1, 2, 3, 5, 6]


def test_a_broken_call_without_id_freezes_no_later_cut() -> None:
    tail = [says(""), answers("", tool="read"), ask()]
    assert allowed(ask(), says(""), ask(), *tail, *tail) == [0, 1, 2, 3, 5, 6, 8, 9]


def test_a_turn_with_reasoning_is_cut_before_reasoning_only() -> None:
    """A28, A31."""
    facts = [
        ask(),
        says("a"),
        answers("a"),
        thinks("b"),
        answers("b"),
        says("c"),
        answers("c"),
        thinks(),
        ask(),
        says(),
    ]
    assert allowed(*facts) == [0, 3, 7, 8, 9, 10]


def test_reasoning_goes_with_what_it_led_to() -> None:
    """R9 to R11: nor is a run of reasoning items cut in two."""
    facts = [ask(), reasoning(), reasoning(), says("a"), answers("a"), reasoning(), says(), ask()]
    assert allowed(*facts) == [0, 1, 5, 7, 8]


def test_instructions_go_with_the_answer_after_them() -> None:
    """A19; those that have a place of their own bind nothing."""
    assert allowed(ask(), rule(carried=True), says(), ask()) == [0, 1, 3, 4]
    assert allowed(ask(), rule(stays=True), says(), ask()) == [0, 1, 2, 3, 4]
    assert allowed(ask(), rule(), thinks(), rule(), thinks(), ask()) == [0, 1, 3, 5, 6]


def test_a_source_stays_with_what_cites_it() -> None:
    """A68: and so do the sources before it, which its number counts."""
    document, cites = ask(sources=("document",)), says(cites=(("document", 0),))
    assert allowed(ask(), says(), document, cites, ask(), cites, ask(), says()) == [0, 1, 2, 6, 7, 8]
    assert allowed(document, says(), ask(), says(cites=(("search_result", 0),)), ask()) == [0, 1, 2, 3, 4, 5]
    assert allowed(document, says(), ask()) == [0, 1, 2, 3]


def slowly(facts: Sequence[Facts], at: int) -> bool:
    """The sentences of `rules.cuts`, one after the other."""
    size = len(facts)
    if at < size and facts[at].results:
        return False
    if at in (0, size):
        return True
    if any(call < at <= item for (item, _), (call, _) in rules.pair(facts).call_of.items()):
        return False
    for item, ordinal in rules.pair(facts).unanswered:
        ident = facts[item].calls[ordinal].id
        later = [i for i in range(item + 1, size) if ident and any(result.id == ident for result in facts[i].results)]
        if later and item < at <= later[0]:
            return False

    def bound(fact: Facts) -> bool:
        return fact.role == "system" and not fact.stays

    if bound(facts[at - 1]):
        return False
    for kind in ("document", "search_result"):
        before = any(kind in fact.sources for fact in facts[:at])
        if before and any(kind == cited for fact in facts[at:] for cited, _ in fact.cites):
            return False
    start = max((i for i in range(at + 1) if facts[i].opens_turn), default=0)
    stop = min((i for i in range(at + 1, size) if facts[i].opens_turn), default=size)
    if start == at or not any(fact.reasoning for fact in facts[start:stop]):
        return True
    following = [fact for fact in facts[at:stop] if not bound(fact)] or [facts[at]]
    return following[0].reasoning and not following[0].late and not facts[at - 1].alone


@settings(max_examples=600)
@given(SEEDS)
def test_cuts_are_where_the_sentences_say(seed: int) -> None:
    facts = talk(seed)
    assert rules.cuts(facts) == [slowly(facts, at) for at in range(len(facts) + 1)]


@settings(max_examples=600)
@given(SEEDS)
def test_no_allowed_cut_adds_a_violation(seed: int) -> None:
    facts = talk(seed)
    may = allowed(*facts)
    before = rules.violations(facts)
    for start in may:
        for stop in may:
            if start < stop and not any(fact.pinned for fact in facts[start:stop]):
                kept = [fact for fact in facts[start:stop] if fact.stays]
                assert not rules.violations([*facts[:start], note(), *kept, *facts[stop:]]) - before, (start, stop)


# Where the parts of a conversation begin


@pytest.mark.parametrize(
    ("facts", "current", "opened", "level"),
    [
        ([ask()], 0, 1, 1),
        ([rule(stays=True), ask(), says(), ask()], 3, 4, 1),
        ([ask(), says(), ask(), ask()], 2, 4, 1),
        ([note(), ask()], 1, 2, 1),
        ([ask(), note(), says("a"), answers("a")], 0, 2, 2),
        ([ask(), says("a"), answers("a"), says("b", "c"), answers("b"), answers("c")], 0, 3, 2),
        ([ask(), reasoning(), says("a"), answers("a")], 0, 1, 2),
        (
            [
                ask(),
                says("a"),
                answers("a"),
                reasoning(),
                Facts("assistant", results=answers("x").results),
                says("b"),
                answers("b"),
            ],
            0,
            3,
            2,
        ),
        ([ask(), says("a"), answers("a"), rule()], 0, 1, 2),
        ([ask(), says(), ask(), says("draft")], 2, 4, 0),
        ([note(), note(), says("a"), answers("a")], 4, 2, 2),
        ([says("a"), answers("a")], 2, 0, 2),
        ([rule(stays=True)], 1, 1, 0),
        ([], 0, 0, 0),
    ],
)
def test_current_turn_open_round_and_level(facts: list[Facts], current: int, opened: int, level: int) -> None:
    assert rules.current_turn(facts) == current
    assert rules.open_round(facts) == opened
    assert rules.level(facts) == level


def test_cuts_begin_behind_the_head_and_behind_what_is_read_no_more() -> None:
    restart = says(pinned=True, restarts=True)
    assert [rules.cut_start(facts) for facts in ([], [rule(), ask()], [ask(), restart, ask()], [rule(), restart])] == [
        0,
        1,
        2,
        2,
    ]
    assert rules.cut_start([ask(), restart, ask(), restart, rule(), ask()]) == 4
    assert rules.cut_start([ask(), says("a", "b", restarts=True), answers("a"), answers("b"), says()]) == 4


def test_the_head_is_the_leading_instructions() -> None:
    assert rules.head_end([rule(stays=True), rule(), ask(), rule()]) == 2
    assert rules.head_end([ask()]) == 0


# What is wrong with a conversation


def wrong(*facts: Facts) -> set[str]:
    return {name for name, _, _ in rules.violations(facts)}


def test_a_sound_conversation_has_no_violation() -> None:
    assert not wrong(rule(stays=True), ask(), *rounds(3), says(), ask())
    assert not wrong(note(), ask(), reasoning(), says("a"), answers("a"))
    assert not wrong(ask(sources=("document", "document")), says(cites=(("document", 1),)), ask())


def test_each_violation_has_a_name() -> None:
    assert wrong(ask(), answers("a"), ask()) == {"orphan"}
    assert wrong(ask(), says("a"), ask()) == {"unanswered", "unheard"}
    assert wrong(ask(), reasoning(), ask()) == {"alone"}
    assert wrong(ask(sources=("document",)), says(cites=(("document", 1),)), ask()) == {"cites"}
    assert wrong(says(), ask()) == {"first_role"}
    assert wrong(answers("a"), ask()) == {"first_role", "orphan"}
    assert wrong(Facts("user", results=answers("a").results), ask()) == {"first_role", "orphan"}
    assert wrong(ask(), says()) == {"last_role"}
    assert wrong(rule(stays=True)) == {"empty"}


def test_an_old_fault_keeps_its_name() -> None:
    """Only then can a gate tell a new fault from one that the client brought."""
    broken = [ask(), says("a"), ask(), says("a"), ask()]
    assert rules.violations(broken[2:]) < rules.violations(broken)
    assert rules.violations([says("a"), *broken]) - rules.violations(broken)


def test_first_answer_of_the_current_turn() -> None:
    assert rules.first_answer([ask(), says(), ask(), note(), says("a"), answers("a")]) == 4
    assert rules.first_answer([ask(), says(), ask()]) == 3
    assert rules.first_answer([note(), says()]) == 2


def test_one_result_may_do_for_two_calls_of_one_id() -> None:
    """By position the first is never answered; a provider that goes by ids misses nothing, until the pair behind it leaves."""
    twice = [ask(), says("a"), says("a"), answers("a"), ask()]
    assert rules.violations(twice) == {("unanswered", "a", 1)}
    assert rules.violations([ask(), says("a"), ask()]) == {("unanswered", "a", 1), ("unheard", "a", 1)}


def test_no_cut_before_an_item_whose_reasoning_comes_late() -> None:
    """A30: under manual thinking a turn begins with its thought."""
    late = replace(thinks("b"), late=True)
    turn = [ask(), thinks("a"), answers("a"), late, answers("b"), thinks("c"), answers("c")]
    assert allowed(*turn) == [0, 1, 5, 7]
