"""A circuit breaker: after some failures in a row nobody asks any more, and a probe now and then finds out when to.

Closed: calls go through. Open: they don't; after `first` seconds one probe may be made, after twice as long the next one,
up to `longest`. A probe that succeeds closes it on trial: one failure opens it again, with the longer pause; only a real call that
succeeds forgets everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """Times are in seconds; `clock` is monotonic. One event loop only."""

    def __init__(
        self,
        failures: int = 5,
        first: float = 1.0,
        longest: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._first = first
        self._longest = longest
        self._clock = clock
        self._failed = 0
        self._pause = first
        self._probe_at = 0.0
        self._probing = False

    @property
    def closed(self) -> bool:
        return self._failed < self._limit

    def succeeded(self) -> None:
        """A call went well. One that began before the breaker opened proves nothing about now."""
        if self.closed:
            self._failed = 0
            self._pause = self._first

    def failed(self) -> None:
        if self.closed:
            self._failed += 1
            if not self.closed:
                self._probe_at = self._clock() + self._pause

    def begin_probe(self) -> bool:
        """Whether a probe is due; if so it is the caller's, who must end it."""
        if self.closed or self._probing or self._clock() < self._probe_at:
            return False
        self._probing = True
        return True

    def end_probe(self, success: bool) -> None:
        self._probing = False
        self._pause = min(self._pause * 2, self._longest)
        if success:
            self._failed = self._limit - 1
        else:
            self._probe_at = self._clock() + self._pause
