"""The lines that compete for a summary's room, and the order in which they are let in.

Lines that stand in several places are offered once, where they stood last. First, within a share of the room each, one line for what the
assistant did in each of its latest steps and the lines with the likeliest exact values; then whatever holds the most worth for its tokens;
and when all worth is in and there still is room, the newest of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from app.summaries.choice import LEAST, LINE, choose
from app.summaries.lines import Kind
from app.summaries.record import Stretch
from app.summaries.worth import Worth

STEPS_SHARE, VALUES_SHARE = 0.1, 0.35
"""Of the room. Both cost nothing in recall: steps and values are what is needed again anyway."""
EXACT: dict[Kind, float] = {"number": 1.0, "id": 1.0, "url": 0.1, "path": 0.1, "identifier": 0.1}
"""Exact values and what they count for as such: a name can be looked for again, a number or an id that is gone can't."""


class Material:
    """`now` is the item after the last: ages are counted back from it."""

    def __init__(self, count: Callable[[str], int], now: int) -> None:
        self._count = cache(count)
        self._now = now
        self._worth = Worth(count)
        self._known: dict[str, list[str]] = {}
        self._held: set[str] = set()
        self._stretches: list[Stretch] = []
        self._last: dict[str, int] = {}
        self._lines: list[str] = []
        self._strings: list[list[str]] = []
        self._owners: list[int] = []

    def hold(self, lines: Iterable[str]) -> None:
        """What these lines say is in the conversation anyway."""
        for line in lines:
            self._held.update(self._strings_of(line))

    def offer(self, stretch: Stretch) -> None:
        """Its lines compete. Oldest stretch first."""
        strings = [self._strings_of(line) for line in stretch.lines]
        self._worth.note(strings, stretch.at, stretch.said)
        for at, line in enumerate(stretch.lines, len(self._lines)):
            self._last[line] = at
        self._lines += stretch.lines
        self._strings += strings
        self._owners += [len(self._stretches)] * len(strings)
        self._stretches.append(stretch)

    def ranked(self, room: int, values: int) -> list[int]:
        """Lines, by number, for about `room` tokens, the first to be let in first; up to `values` tokens for exact values ahead of
        others."""
        weights = self._weights()
        ranked: dict[int, None] = {}
        self._take(ranked, self._steps(int(room * STEPS_SHARE)), weights)
        self._take(ranked, self._chosen(self._exact(weights), min(values, int(room * VALUES_SHARE))), weights)
        self._take(ranked, self._chosen(weights, room - self._cost(ranked)), weights)
        left = room - self._cost(ranked)
        for at in (*self._steps(left), *sorted(self._last.values(), reverse=True)):
            if left < LEAST:
                break
            if at not in ranked:
                ranked[at] = None
                left -= self._count(self._lines[at]) + LINE
        return list(ranked)

    def exact(self, room: int) -> list[int]:
        """Lines for at most `room` tokens by the exact values in them alone."""
        return self._chosen(self._exact(self._weights()), room)

    def lines_of(self, chosen: Iterable[int]) -> list[tuple[str, ...]]:
        """The chosen lines of each offered stretch, in order."""
        found: list[list[str]] = [[] for _ in self._stretches]
        for at in sorted(chosen):
            found[self._owners[at]].append(self._lines[at])
        return [tuple(lines) for lines in found]

    def _steps(self, room: int) -> Iterable[int]:
        """The first line of what the assistant said or called, newest first."""
        first = 0
        starts = []
        for stretch in self._stretches:
            if stretch.said in ("assistant", "call") and stretch.lines and self._last[stretch.lines[0]] == first:
                starts.append(first)
            first += len(stretch.lines)
        for at in reversed(starts):
            room -= self._count(self._lines[at]) + LINE
            if room < 0:
                return
            yield at

    def _strings_of(self, line: str) -> list[str]:
        found = self._known.get(line)
        if found is None:
            found = self._known[line] = self._worth.strings(line)
        return found

    def _weights(self) -> dict[str, int]:
        weights = self._worth.weights(self._now)
        weights.update(dict.fromkeys(self._held & weights.keys(), 0))
        return weights

    def _exact(self, weights: dict[str, int]) -> dict[str, int]:
        kinds = self._worth.kinds
        return {string: int(weight * EXACT.get(kinds[string], 0)) for string, weight in weights.items()}

    def _take(self, ranked: dict[int, None], chosen: Iterable[int], weights: dict[str, int]) -> None:
        """These lines are in: nothing that they say is worth anything any more."""
        for at in chosen:
            ranked[at] = None
            weights.update(dict.fromkeys(self._strings[at], 0))

    def _chosen(self, weights: dict[str, int], room: int) -> list[int]:
        offered = list(self._last.values())
        lines, strings = [self._lines[at] for at in offered], [self._strings[at] for at in offered]
        return [offered[at] for at in choose(lines, strings, weights, room, self._count)]

    def _cost(self, lines: Iterable[int]) -> int:
        return sum(self._count(self._lines[at]) + LINE for at in lines)


def largest_fitting(size: int, cost: Callable[[int], int], room: int) -> int:
    """The number of ranked lines, of `size`, that fits into `room` tokens, nearly the largest; -1 if not even none does.

    `cost` tells what so many lines take as written: asked a dozen times at most, by interpolation and by halving in turn.
    """
    low, used, high = 0, cost(0), size
    if used > room:
        return -1
    over = cost(high)
    if over <= room:
        return high
    for turn in range(TRIES):
        if used > ENOUGH * room or high - low <= 1:
            break
        guess = (low + high) // 2 if turn % 2 else low + (high - low) * (room - used) // (over - used)
        at = min(high - 1, max(low + 1, guess))
        tried = cost(at)
        if tried <= room:
            low, used = at, tried
        else:
            high, over = at, tried
    return low


TRIES, ENOUGH = 10, 0.98
