"""What was worked out lately and may be wanted again, within a bound in bytes or in number.

Two generations, each of half of that: what is used moves to the younger, and when that is full the elder is dropped as a whole. So
whatever was used lately stays, a use costs next to nothing, and no list of uses takes memory of its own. Threads may share one: at worst
a race costs a value, or misjudges the bytes until the generation ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(*_: object) -> int:
    return 1


class Recent(Generic[K, V]):
    """At most `most` bytes; `weigh` says what a key and its value take, with their place in the dictionary. Without it at most so many
    values. None is no value."""

    def __init__(self, most: int, weigh: Callable[[K, V], int] = _one) -> None:
        self._half = most // 2
        self._weigh = weigh
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._bytes = 0  # of the younger

    @property
    def empty(self) -> bool:
        return not (self._young or self._old)

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep it, in the place of what was there. What is larger than a generation is not kept."""
        self.pop(key)
        size = self._weigh(key, value)
        if size > self._half:
            return
        if self._bytes + size > self._half:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[key] = value
        self._bytes += size

    def pop(self, key: K) -> None:
        self._old.pop(key, None)
        value = self._young.pop(key, None)
        if value is not None:
            self._bytes -= self._weigh(key, value)
