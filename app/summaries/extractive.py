"""The summary that needs no model: the conversation's own words, those that the next steps will most likely need.

Earlier requests stay word for word; of all the rest the lines are kept that hold the most worth for their tokens (`worth` says what a
string is worth, `choice` picks), in a record that shows who said them. What a kept part of the conversation says anyway needs no room here,
and what several places say is kept where it was said last: the newest state of a file or record wins. An earlier summary is taken apart
and its lines compete again, so what the first kept is lost by the second only where something of more worth takes its room.

The same input gives the same bytes. Time grows with the text, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.core.transcript import Seen
from app.summaries.choice import LINE, choose
from app.summaries.lines import lines_of, strings_in
from app.summaries.record import RECORD, Stretch, stretches, written
from app.summaries.requests import newest, requests_section
from app.summaries.worth import Worth

STEPS_SHARE = 0.0
REQUESTS_SHARE = 0.4
"""Of the room: more than that is not spent on requests word for word; the lines of those that don't fit compete with all others."""
OVERSHOOT = 1.15
"""Lines are chosen for more room than there is, by the sum of their own counts; then as many are written as really fit."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A tool result that stays in its place while most of its text goes: the item of the history that it stands in, and its text."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Condensed:
    """A summary of what leaves, and for each cleared result the lines that stay of it, "" for none."""

    summary: str
    results: tuple[str, ...]


def extract(
    items: Sequence[Seen],
    room: int,
    *,
    keep_user_messages: int,
    keep_values: int,
    count: Callable[[str], int],
    kept: Sequence[Seen] = (),
) -> str:
    """A summary of `items` (oldest first, earlier recaps of ours among them) of at most `room` tokens.

    `kept` are the items that stay as they are: what they say is not repeated.
    """
    return condense(
        [*items, *kept], len(items), (), room, keep_user_messages=keep_user_messages, keep_values=keep_values, count=count
    ).summary


def condense(
    history: Sequence[Seen],
    leaving: int | Sequence[int],
    cleared: Sequence[Cleared],
    room: int,
    *,
    keep_user_messages: int,
    keep_values: int,
    count: Callable[[str], int],
) -> Condensed:
    """The summary of the items that leave (the first so many, or these indices) and the remains of the cleared results, together at most
    `room` tokens: what is said once need not be said in the other place again.
    """
    gone = set(range(leaving)) if isinstance(leaving, int) else set(leaving)
    places = [Stretch("result", "", place.at, tuple(lines_of(place.text))) for place in cleared]
    told = [stretch for at in sorted(gone) for stretch in stretches(history[at], at)]
    material = _Material(count, len(history))
    for at, item in enumerate(history):
        if at not in gone:
            material.hold(item, at, results=all(place.at != at for place in cleared))
    asked = [stretch for stretch in told if stretch.text]
    whole = [asked[at] for at in newest([stretch.text for stretch in asked], min(keep_user_messages, int(room * REQUESTS_SHARE)), count)]
    requests = requests_section([stretch.text for stretch in whole])
    for stretch in whole:
        material.hold_lines(stretch)
    verbatim = {stretch.text for stretch in whole}
    rest = [stretch for stretch in told if not stretch.text or stretch.text not in verbatim]
    for stretch in sorted((*rest, *places), key=lambda stretch: stretch.at):
        material.offer(stretch)
    ranked = material.ranked(int((room - count(requests)) * OVERSHOOT), keep_values)

    def shown(first: int) -> Condensed:
        remains = material.remains(ranked[:first])
        record = written(replace(stretch, lines=remains.get(id(stretch), ())) for stretch in rest)
        sections = [requests, f"{RECORD}\n{record}" if record else ""]
        return Condensed(
            "\n\n".join(section for section in sections if section),
            tuple("\n".join(remains.get(id(place), ())) for place in places),
        )

    def cost(condensed: Condensed) -> int:
        return count(condensed.summary) + sum(map(count, filter(None, condensed.results)))

    low, high = 0, len(ranked)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(shown(middle)) <= room else (low, middle - 1)
    return shown(low)


class _Material:
    """The lines that compete, each once: where it stood last."""

    def __init__(self, count: Callable[[str], int], now: int) -> None:
        self._count = count
        self._now = now
        self._worth = Worth(count)
        self._held: set[str] = set()
        self._last: dict[str, int] = {}
        self._lines: list[str] = []
        self._strings: list[list[str]] = []
        self._owner: list[Stretch] = []

    def hold(self, item: Seen, at: int, results: bool) -> None:
        for stretch in stretches(item, at):
            if results or stretch.said != "result":
                self.hold_lines(stretch)

    def hold_lines(self, stretch: Stretch) -> None:
        for line in stretch.lines:
            self._held.update(self._worth.read(strings_in(line)))

    def offer(self, stretch: Stretch) -> None:
        read = self._worth.read
        strings = [read(strings_in(line)) for line in stretch.lines]
        self._worth.note(strings, stretch.at, stretch.said)
        for line, held in zip(stretch.lines, strings, strict=True):
            self._last[line] = len(self._lines)
            self._lines.append(line)
            self._strings.append(held)
            self._owner.append(stretch)

    def ranked(self, room: int, keep_values: int) -> list[int]:
        """Indices of lines, the most worthy first, for about `room` tokens; where all worth is there before the room is used up, the newest
        of the others follow."""
        offered = list(self._last.values())
        steps, left = [], int(room * STEPS_SHARE)
        for at in reversed(offered):
            owner = self._owner[at]
            if owner.said in ("call", "assistant") and owner.lines and owner.lines[0] == self._lines[at]:
                left -= self._count(self._lines[at]) + LINE
                if left < 0: break
                steps.append(at)
                room -= self._count(self._lines[at]) + LINE
                self._held.update(self._strings[at])
        chosen = choose(
            [self._lines[at] for at in offered], [self._strings[at] for at in offered],
            self._worth.weights(self._now), room, self._count, self._held,
        )  # fmt: skip
        ranked = steps+[x for at in chosen if (x:=offered[at]) not in set(steps)]
        room -= sum(self._count(self._lines[at]) + LINE for at in ranked)
        taken = set(ranked)
        for at in sorted(offered, reverse=True):
            if room <= 0:
                break
            if at not in taken:
                ranked.append(at)
                room -= self._count(self._lines[at]) + LINE
        return ranked

    def remains(self, chosen: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Of each stretch, by identity, its chosen lines in order."""
        found: dict[int, list[str]] = {}
        for at in sorted(chosen):
            found.setdefault(id(self._owner[at]), []).append(self._lines[at])
        return {owner: tuple(lines) for owner, lines in found.items()}


