"""A dictionary that forgets: what has expired, and, past its bounds, what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most `max_items` values of at most `max_bytes` together (sizes are the caller's word). `clock` gives seconds."""

    def __init__(self, max_items: int, max_bytes: int, clock: Callable[[], float]) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, *, ttl: float | None = None) -> V | None:
        """The value, now the most recently used; with `ttl` it lives that many seconds from now."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, size, expires = entry
        now = self._clock()
        if expires <= now:
            self.pop(key)
            return None
        if ttl is not None:
            self._entries[key] = value, size, now + ttl
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, *, size: int = 0, ttl: float = float("inf")) -> None:
        """Keep a value of `size` bytes for `ttl` seconds. One that is larger than all bounds is not kept."""
        self.pop(key)
        if size > self._max_bytes:
            return
        now = self._clock()
        self._entries[key] = value, size, now + ttl
        self.bytes += size
        while self._entries:
            oldest, (_, _, expires) = next(iter(self._entries.items()))
            if expires > now and len(self._entries) <= self._max_items and self.bytes <= self._max_bytes:
                break
            self.pop(oldest)

    def pop(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.bytes -= entry[1]
        return entry[0]

    def values(self) -> Iterator[V]:
        """What is alive, in no order that means anything, leaving the order of use alone."""
        now = self._clock()
        return (value for value, _, expires in list(self._entries.values()) if expires > now)
