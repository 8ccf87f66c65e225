"""Which lines are let in, in which order, and how many fit."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from app.summaries.material import TRIES, Material, largest_fitting
from app.summaries.record import Stretch
from tests.summaries.conversations import count


def material(*stretches: tuple[str, tuple[str, ...]]) -> Material:
    found = Material(count, len(stretches))
    for at, (said, lines) in enumerate(stretches):
        found.offer(Stretch(said, "", at, lines))
    return found


def test_a_line_in_several_places_is_kept_where_it_stood_last() -> None:
    offered = material(("result", ("limit = 4711", "other")), ("result", ("limit = 4711",)))
    lines = offered.lines_of(offered.ranked(100, 0))
    assert lines == [("other",), ("limit = 4711",)]


def test_what_is_held_anyway_waits_until_all_else_is_in() -> None:
    offered = material(("result", ("value_one is 4711", "value_two is 4712")))
    offered.hold(["value_two is 4712"])
    assert [offered.lines_of([at])[0][0] for at in offered.ranked(100, 0)] == ["value_one is 4711", "value_two is 4712"]


def test_exact_values_go_ahead_within_their_tokens() -> None:
    offered = material(("result", ("Zwetschgenkuchen Bienenstich Streuselkuchen", "code 83-4711-22")))
    first = lambda values: offered.lines_of(offered.ranked(400, values)[:1])[0][0]  # noqa: E731
    assert first(100) == "code 83-4711-22"


def test_an_id_that_only_a_result_held_goes_ahead_of_paths_that_were_called_with() -> None:
    """A path can be looked for again; the id is gone for good."""
    calls = [("call", (f"path=src/module_{n}.py",)) for n in range(20)]
    results = [("result", (f"assigned reference TF-{n}-83a{n}b to it",)) for n in range(20)]
    offered = material(*(stretch for pair in zip(calls, results, strict=True) for stretch in pair))
    kept = [line for lines in offered.lines_of(offered.exact(40)) for line in lines]
    assert len(kept) >= 2
    assert all("reference" in line for line in kept)


def test_steps_come_newest_first_in_a_share_of_the_room() -> None:
    steps = [("assistant", (f"step {n} did something useful today", "and more")) for n in range(100)]
    offered = material(*steps)
    ranked = offered.ranked(400, 0)
    assert offered.lines_of(ranked[:2])[98:] == [
        ("step 98 did something useful today",),
        ("step 99 did something useful today",),
    ]


def test_the_rest_fills_the_room_newest_first() -> None:
    offered = material(*(("result", (f"{word} {word}",)) for word in ("aa", "bb", "cc", "dd")))
    lines = [offered.lines_of([at]) for at in offered.ranked(1_000, 0)]
    assert [next(line for line in found if line) for found in lines] == [("dd dd",), ("cc cc",), ("bb bb",), ("aa aa",)]


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 1_500))
def test_most_finds_what_fits(costs: list[int], room: int) -> None:
    asked = 0

    def cost(size: int) -> int:
        nonlocal asked
        asked += 1
        return 5 + sum(costs[:size])

    found = largest_fitting(len(costs), cost, room)
    assert asked <= TRIES + 2
    assert found == -1 if room < 5 else 5 + sum(costs[:found]) <= room


def test_most_uses_the_room() -> None:
    cost: Callable[[int], int] = lambda size: size * 10  # noqa: E731
    assert largest_fitting(1_000, cost, 5_000) in range(490, 501)
    assert largest_fitting(10, cost, 5_000) == 10


def test_most_uses_the_room_though_the_first_lines_take_most_of_it() -> None:
    """As ranked lines do: the long ones come first, and a guess by the average would creep."""
    costs = [1_000] * 50 + [2] * 1_800
    found = largest_fitting(len(costs), lambda size: sum(costs[:size]), 50_500)
    assert 0.95 * 50_500 < sum(costs[:found]) <= 50_500
