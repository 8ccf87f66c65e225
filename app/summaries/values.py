"""Exact values, each with the line that it stood in: what a model's own words tend to lose, and what a later step needs to the letter.

A value shows in its characters (`lines.kind_of`): numbers, ids and hashes, paths, URLs, identifiers, whatever the language around them.
Which are kept is decided as for the summary without a model: by how likely they are to be asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.transcript import Seen
from app.summaries.material import Material, largest_fitting
from app.summaries.record import VALUES, stretches


def kept_values(items: Sequence[Seen], tokens: int, count: Callable[[str], int]) -> str:
    """A section with lines from these items, and from an earlier summary among them, of at most `tokens` tokens; "" if there is none."""
    material = Material(count, len(items))
    for at, item in enumerate(items):
        for stretch in stretches(item, at):
            material.offer(stretch)
    ranked = material.exact(tokens)

    def shown(size: int) -> str:
        lines = [f" {line}" for lines in material.lines_of(ranked[:size]) for line in lines]
        return "\n".join([VALUES, *lines])

    fitting = largest_fitting(len(ranked), lambda size: count(shown(size)), tokens)
    return shown(fitting) if fitting > 0 else ""
