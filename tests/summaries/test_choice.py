"""The choice: as much worth as fits, nothing paid twice, and work that grows with the lines only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.summaries.choice import LINE, choose


def length(text: str) -> int:
    return len(text)


def chosen(lines: Sequence[str], weights: dict[str, int], room: int) -> list[int]:
    return choose(lines, [line.split() for line in lines], weights, room, length)


def test_the_worthiest_comes_first() -> None:
    assert chosen(["aa bb", "cc dd", "ee ff"], {"aa": 1, "bb": 1, "cc": 50, "dd": 1, "ee": 9, "ff": 9}, 100) == [
        1,
        2,
        0,
    ]


def test_what_a_chosen_line_says_is_worth_nothing_in_another() -> None:
    assert chosen(["longer xx yy", "xx yy", "xx yy zz"], {"longer": 0, "xx": 5, "yy": 5, "zz": 0}, 100) == [1]


def test_of_equals_the_newest_comes_first() -> None:
    assert chosen(["aa 1", "bb 2", "cc 3"], {"aa": 3, "bb": 3, "cc": 3, "1": 0, "2": 0, "3": 0}, 5) == [2]


def test_a_line_that_does_not_fit_bars_no_other() -> None:
    assert chosen(["big " * 30, "small"], {"big": 900, "small": 1}, 20) == [1]


@given(st.lists(st.text("abcdefg ", min_size=1, max_size=40), max_size=60), st.integers(0, 400))
def test_never_more_than_the_room(lines: list[str], room: int) -> None:
    weights = {string: 1 + len(string) for line in lines for string in line.split()}
    found = chosen(lines, weights, room)
    assert sum(len(lines[at]) + LINE for at in found) <= room
    assert len(found) == len(set(found))


@given(st.lists(st.text("abc ", min_size=1, max_size=12), min_size=1, max_size=40))
def test_with_room_for_all_every_string_is_there(lines: list[str]) -> None:
    weights = {string: 1 for line in lines for string in line.split()}
    held = {string for at in chosen(lines, weights, 10_000) for string in lines[at].split()}
    assert held == set(weights)


class Watched(list[str]):
    """Strings of a line that count how often they are gone through."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        Watched.looks += 1
        return super().__iter__()


def test_the_work_grows_with_the_lines_even_where_all_have_strings_in_common() -> None:
    def work(size: int) -> int:
        Watched.looks = 0
        lines = [" ".join(f"s{(n * step) % 97}" for step in range(1, 12)) + f" own{n}" for n in range(size)]
        strings = [Watched(line.split()) for line in lines]
        choose(lines, strings, {string: 100 for line in lines for string in line.split()}, 10**9, length)
        return Watched.looks

    assert work(4_000) <= 2.2 * work(2_000) < 50 * 2_000
