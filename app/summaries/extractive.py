"""The summary that needs no model: the conversation's own words, those that the next steps will most likely need.

Earlier requests stay word for word; of all the rest the lines are kept that hold the most worth for their tokens (`worth` says what a
string is worth, `choice` picks), in a record that shows who said them. What a kept part of the conversation says anyway needs no room here,
and what several places say is kept where it was said last: the newest state of a file or record wins. An earlier summary is taken apart
and its lines compete again, so what the first kept is lost by the second only where something of more worth takes its room.

The same input gives the same bytes. Time grows with the text, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.core.transcript import Seen
from app.summaries.lines import lines_of
from app.summaries.material import Material, largest_fitting
from app.summaries.record import RECORD, Stretch, stretches, written
from app.summaries.requests import newest, requests_section

REQUESTS_SHARE = 0.5
"""Of the room: more is not spent on requests word for word. Lines of those that don't fit compete with all others."""
OVERSHOOT = 1.15
"""Lines are ranked for more room than there is; then as many are written as really fit."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A tool result that stays in its place while most of its text goes: the item of the history that it stands in, and its text."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Condensed:
    """A summary of what leaves, "" if there is none, and for each cleared result the lines that stay of it, "" for none."""

    summary: str
    results: tuple[str, ...]


def condense(
    history: Sequence[Seen],
    leaving: Sequence[int],
    cleared: Sequence[Cleared],
    room: int,
    *,
    keep_user_messages: int,
    keep_values: int,
    count: Callable[[str], int],
) -> Condensed:
    """The summary of the items of `history` that leave (by index) and the remains of cleared results, together at most `room` tokens.

    One choice for both: what is said in one place need not be said in another, and the room goes where the worth is.
    """
    gone = frozenset(leaving)
    told = [stretch for at in sorted(gone) for stretch in stretches(history[at], at)]
    places = [Stretch("result", "", place.at, tuple(lines_of(place.text))) for place in cleared]
    room = _capped(
        room, [*(part.text for at in gone for part in history[at].parts), *(place.text for place in cleared)], count
    )
    asked = [stretch for stretch in told if stretch.text]
    most_asked = min(keep_user_messages, int(room * REQUESTS_SHARE))
    whole = [asked[at] for at in newest([stretch.text for stretch in asked], most_asked, count)]
    requests = requests_section([stretch.text for stretch in whole])
    verbatim = {stretch.text for stretch in whole}
    rest = [stretch for stretch in told if stretch.text not in verbatim]

    material = Material(count, len(history))
    shrinking = {place.at for place in cleared}
    staying = (one for at, item in enumerate(history) if at not in gone for one in stretches(item, at))
    for one in (*whole, *(one for one in staying if one.said != "result" or one.at not in shrinking)):
        material.hold(one.lines)
    offered = sorted(
        [*((one.at, 0, at) for at, one in enumerate(rest)), *((one.at, 1, at) for at, one in enumerate(places))]
    )
    for _, place, at in offered:
        material.offer((rest, places)[place][at])
    ranked = material.ranked(int((room - count(requests)) * OVERSHOOT), keep_values)

    def shown(size: int) -> Condensed:
        remains = list(zip(offered, material.lines_of(ranked[:size]), strict=True))
        record = written((rest[at], lines) for (_, place, at), lines in remains if not place)
        results = sorted((at, "\n".join(lines)) for (_, place, at), lines in remains if place)
        sections = [requests, f"{RECORD}\n{record}" if record else ""]
        return Condensed("\n\n".join(filter(None, sections)), tuple(text for _, text in results))

    def cost(size: int) -> int:
        condensed = shown(size)
        return sum(map(count, filter(None, (condensed.summary, *condensed.results))))

    fitting = largest_fitting(len(ranked), cost, room)
    return shown(fitting) if fitting >= 0 else Condensed("", ("",) * len(places))


def _capped(room: int, texts: Sequence[str], count: Callable[[str], int]) -> int:
    """No more room than the original took. Where it is far larger, that need not be counted."""
    return min(room, sum(map(count, texts))) if sum(map(len, texts)) <= 8 * room else room
