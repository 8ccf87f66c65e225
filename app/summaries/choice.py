"""Which lines to keep when there is room for a part of them: the most worth for the room, each string paid once.

A line is worth its strings that no chosen line holds yet, so repetition costs nothing and every new fact counts. Always taking the line
with the most worth a token is the greedy rule for coverage under a budget; a line's worth only falls while others are chosen, so a heap of
old figures, each renewed when it comes to the top, finds the next one without looking at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence, Set

BYTES_PER_TOKEN = 3.5
LINE = 2
"""Tokens that a line costs beyond its text: indentation, line break."""
WORTHLESS = 1e-6


def choose(
    lines: Sequence[str],
    strings: Sequence[Sequence[str]],
    weights: Mapping[str, float],
    room: int,
    count: Callable[[str], int],
    held: Set[str] = frozenset(),
    factors: Sequence[float] | None = None,
) -> list[int]:
    """Indices of the lines that fit into `room` tokens, the most worthy first. `held` strings are there already."""
    covered = set(held)
    weight = weights.get

    def worth(at: int) -> float:
        return sum(weight(string, 0.0) for string in strings[at] if string not in covered) * (factors[at] if factors else 1)

    costs = [LINE + len(line.encode("utf-8", "replace")) / BYTES_PER_TOKEN for line in lines]
    heap = [(-value / costs[at], -at) for at in range(len(lines)) if (value := worth(at)) > WORTHLESS]
    heapq.heapify(heap)
    chosen: list[int] = []
    used = 0
    misses = 0
    while heap and misses < 200:
        _, minus = heapq.heappop(heap)
        at = -minus
        now = worth(at) / costs[at]
        if now <= WORTHLESS:
            continue
        if heap and -now > heap[0][0]:
            heapq.heappush(heap, (-now, minus))
            continue
        cost = count(lines[at]) + LINE
        if used + cost > room:
            misses += 1
            continue
        chosen.append(at)
        used += cost
        covered.update(strings[at])
    return chosen
