"""What was worked out lately and may be wanted again, within a bound in bytes or in number.

What was used longest ago goes first, one by one and only as room is needed: once the bound was reached, memory stays where it is. Threads
may share one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(*_: object) -> int:
    return 1


class Recent(Generic[K, V]):
    """At most `most` bytes; `weigh` says what a key and its value take, with their place in the dictionary. Without it at most so many
    values. None is no value."""

    def __init__(self, most: int, weigh: Callable[[K, V], int] = _one) -> None:
        self._most = most
        self._weigh = weigh
        self._kept: OrderedDict[K, V] = OrderedDict()  # what was used last stands last
        self.bytes = 0
        self._changing = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        try:
            self._kept.move_to_end(key)
            return self._kept[key]
        except KeyError:
            return None

    def put(self, key: K, value: V) -> None:
        """Keep it, in the place of what was there. What would take more than half of all room is not kept."""
        size = self._weigh(key, value)
        with self._changing:
            self._pop(key)
            if size > self._most // 2:
                return
            while self.bytes + size > self._most:
                self.bytes -= self._weigh(*self._kept.popitem(last=False))
            self._kept[key] = value
            self.bytes += size

    def pop(self, key: K) -> None:
        with self._changing:
            self._pop(key)

    def _pop(self, key: K) -> None:
        value = self._kept.pop(key, None)
        if value is not None:
            self.bytes -= self._weigh(key, value)
