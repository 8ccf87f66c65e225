from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from app.core.recent import Recent


def sized(most: int) -> Recent[str, int]:
    """Values are their own weights."""
    return Recent(most, lambda _, value: value)


def held(recent: Recent[str, int]) -> int:
    return sum(recent._kept.values())


def test_what_is_used_stays_and_the_rest_goes() -> None:
    recent = sized(20)
    recent.put("used", 2)
    for n in range(30):
        recent.put(f"{n}", 3)
        assert recent.get("used") == 2
    assert recent.get("29") == 3
    assert recent.get("1") is None


def test_what_was_used_longest_ago_goes_first_and_no_more_than_room_is_needed_for() -> None:
    recent = sized(20)
    for key in "abcde":
        recent.put(key, 4)
    recent.get("a")
    recent.put("new", 5)
    assert list(recent._kept) == ["d", "e", "a", "new"]


def test_what_is_larger_than_half_of_it_is_not_kept_and_costs_nobody_his_place() -> None:
    recent = sized(20)
    recent.put("a", 9)
    recent.put("b", 11)
    assert (recent.get("a"), recent.get("b")) == (9, None)
    recent.put("a", 11)
    assert recent.get("a") is None


def test_it_tells_whether_it_holds_anything() -> None:
    recent = sized(4)
    assert not recent
    recent.put("a", 2)
    assert recent
    recent.pop("a")
    assert not recent


def test_a_value_takes_the_place_of_the_one_before_it() -> None:
    recent = sized(20)
    for size in (3, 9, 2):
        recent.put("a", size)
        assert (recent.get("a"), held(recent), recent.bytes) == (size, size, size)
    recent.pop("a")
    recent.pop("a")
    assert (recent.get("a"), recent.bytes) == (None, 0)


def test_false_and_nothing_are_values() -> None:
    recent: Recent[str, object] = Recent(1_000, lambda key, _: getsizeof(key))
    for value in (False, 0, "", ()):
        recent.put("a", value)
        assert recent.get("a") == value


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 14), st.sampled_from(["put", "get", "pop"]))))
def test_the_bound_holds_whatever_is_done(steps: list[tuple[str, int, str]]) -> None:
    recent, last = sized(20), dict[str, int]()
    for key, size, what in steps:
        if what == "put":
            recent.put(key, size)
            last[key] = size
        elif what == "pop":
            recent.pop(key)
            last.pop(key, None)
        assert recent.get(key) in (None, last.get(key))
        assert recent.bytes == held(recent) <= 20


def test_the_bound_holds_among_threads() -> None:
    recent = sized(40)

    def use(seed: int) -> None:
        for n in range(3_000):
            key = f"{(n * seed) % 23}"
            recent.get(key)
            recent.put(key, n * seed % 7)
            if n % 5 == 0:
                recent.pop(key)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, (3, 5, 7, 11)))
    assert recent.bytes == held(recent) <= 40


def test_without_a_weight_each_value_counts_one() -> None:
    recent: Recent[int, bool] = Recent(10)
    for n in range(100):
        recent.put(n, False)
        assert len(recent) <= 10
    assert [recent.get(n) for n in (99, 90, 0)] == [False, False, None]
