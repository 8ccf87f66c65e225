"""Which lines to keep when there is room for a part of them: the most worth for the room, each string paid once.

A line is worth its strings that no chosen line holds yet, so repetition costs nothing and every new fact counts. Taking the line with the
most worth a token, again and again, is the greedy rule for coverage under a budget. Here lines stand on steps of falling worth a token; a
line that has become worth less when its turn comes goes down to where it belongs. Each line goes down a bounded number of times, so the
work is linear whatever the lines hold in common, and on one step the newest come first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

BYTES_PER_TOKEN = 3.5
"""For the order only; what is chosen is counted."""
LINE = 1
"""Tokens that a line costs beyond its text: its break, its indentation."""
STEP, STEPS = 0.8, 48
"""Each step is so much lower than the one before; what lies below the last (a 45,000th of the first) is worth nothing."""
LEAST = 3
"""Tokens: less room than this is none."""


def choose(
    lines: Sequence[str],
    strings: Sequence[Sequence[str]],
    weights: Mapping[str, int],
    room: int,
    count: Callable[[str], int],
) -> list[int]:
    """Indices of the lines that fit into `room` tokens, the most worthy first. Every string has a weight, 0 if it need not be there."""
    left = dict(weights)
    weight = left.__getitem__
    costs = [LINE + len(line.encode("utf-8", "replace")) / BYTES_PER_TOKEN for line in lines]
    values = [sum(map(weight, held)) / cost for held, cost in zip(strings, costs, strict=True)]
    floors = [max(values, default=0.0) * STEP ** (step + 1) for step in range(STEPS)]
    falling = [-floor for floor in floors]
    steps: list[list[int]] = [[] for _ in range(STEPS + 1)]
    for at, value in enumerate(values):
        if value:
            steps[bisect_left(falling, -value)].append(at)
    chosen: list[int] = []
    for step in range(STEPS):
        for at in sorted(steps[step], reverse=True):
            if room < LEAST:
                return chosen
            value = sum(map(weight, strings[at])) / costs[at]
            if value < floors[step]:
                steps[bisect_left(falling, -value)].append(at)
            elif costs[at] < 3 * room:
                cost = count(lines[at]) + LINE
                if cost <= room:
                    chosen.append(at)
                    room -= cost
                    left.update(dict.fromkeys(strings[at], 0))
    return chosen
