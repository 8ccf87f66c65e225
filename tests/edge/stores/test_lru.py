from __future__ import annotations

from app.edge.stores.lru import Lru


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_used_longest_ago_leaves_first() -> None:
    kept: Lru[str, int] = Lru(3, 1_000, Clock())
    for number, key in enumerate("abc"):
        kept.put(key, number)
    kept.get("a")
    kept.put("d", 3)
    assert [kept.get(key) for key in "abcd"] == [0, None, 2, 3]
    assert len(kept) == 3


def test_bytes_are_bounded_and_counted_through_every_change() -> None:
    kept: Lru[str, str] = Lru(100, 10, Clock())
    kept.put("a", "1", size=4)
    kept.put("b", "2", size=4)
    kept.put("a", "3", size=6)
    assert (kept.bytes, kept.get("a"), kept.get("b")) == (10, "3", "2")
    kept.put("c", "4", size=1)
    assert (kept.bytes, kept.get("b"), kept.get("a")) == (5, "2", None)
    kept.pop("b")
    kept.pop("b")
    assert kept.bytes == 1
    kept.put("d", "5", size=11)
    assert kept.get("d") is None
    assert kept.get("c") == "4"


def test_a_life_ends_and_is_renewed_only_when_asked() -> None:
    clock = Clock()
    kept: Lru[str, int] = Lru(10, 10, clock)
    kept.put("a", 1, size=1, ttl=10)
    kept.put("b", 2, size=1, ttl=10)
    clock.now += 9
    assert kept.get("a", ttl=10) == 1
    assert kept.get("b") == 2
    clock.now += 1
    assert list(kept.values()) == [1]
    assert kept.get("a") == 1
    assert kept.get("b") is None
    assert kept.bytes == 1


def test_what_has_expired_leaves_with_the_next_that_comes() -> None:
    clock = Clock()
    kept: Lru[str, int] = Lru(10, 100, clock)
    for number, key in enumerate("abc"):
        kept.put(key, number, size=5, ttl=10)
    kept.get("a", ttl=20)
    clock.now += 10
    kept.put("d", 3, size=5, ttl=10)
    assert (len(kept), kept.bytes) == (2, 10)
    assert [kept.get(key) for key in "abcd"] == [0, None, None, 3]
