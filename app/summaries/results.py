"""What remains of one tool result where it stands: the lines with the most worth for their tokens, in order.

A function of the text alone, so the same result shrinks the same way in every request. Where a whole conversation is condensed at once,
`extractive.condense` does better: it knows what other places say.
"""

from __future__ import annotations

from collections.abc import Callable

from app.summaries.lines import lines_of
from app.summaries.material import Material, most
from app.summaries.record import Stretch


def extract_result(text: str, room: int, count: Callable[[str], int]) -> str:
    """Lines of `text`, at most `room` tokens; the text itself if it fits, "" if nothing does. Lines that are left out are not marked:
    that is
    for the caller's own words around it."""
    if len(text) <= 8 * room and count(text) <= room:
        return text
    material = Material(count, 1)
    material.offer(Stretch("result", "", 0, tuple(lines_of(text))))
    ranked = material.ranked(room, room)

    def shown(size: int) -> str:
        return "\n".join(material.lines_of(ranked[:size])[0])

    return shown(max(0, most(len(ranked), lambda size: count(shown(size)), room)))
