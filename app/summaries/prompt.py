"""What a summariser is asked: instructions, the transcript fenced as data, the instructions' gist once more.

An unfenced transcript makes the model do the tasks in it. The fence is a tag that can't occur inside, because the transcript's own spelling
of it is neutralised, and so are lines that would look like another speaker's. A transcript that exceeds the summariser's window is cut at
items and summarised link by link: each link sees the summary so far and the next stretch. Where that would take too many links, the longest
items lose their middles: they are tool output nearly always, and nobody reads a million lines to remember an afternoon.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files

from app.core.notes import is_note
from app.core.transcript import Seen, line
from app.summaries.recap import inner, summary_in

# White space and characters that nobody sees don't make it another tag for a model.
_FENCE = re.compile(r"<([\s/\u200b-\u200d\u2060\ufeff]*)(?=(?:transcript|summary_so_far)\b)", re.IGNORECASE)
_SPEAKER = re.compile(r"^([ \t]*)(SYSTEM|USER|ASSISTANT|TOOL|EARLIER SUMMARY)(?=[ \t]*:)", re.MULTILINE)
CLOSING = (
    "Now write the summary of the transcript above, in the language of the conversation, in at most {words} words."
)
WORDS_PER_TOKEN = 0.6
JOINT = 2
"""Tokens of the blank line between two items."""
LEFT_OUT = "\n[… {count:,} characters are left out here …]\n"
LEAST_ITEM = 64
"""Tokens: no item is shortened to less."""


@cache
def built_in() -> str:
    """The instructions that ship with compactd."""
    return files("app.summaries").joinpath("summary.md").read_text(encoding="utf-8").strip()


def question(instructions: str, stretch: str, so_far: str, max_tokens: int) -> str:
    """The whole prompt for one link."""
    parts = [instructions.strip()]
    if so_far:
        parts.append(
            f"<summary_so_far>\n{fenced(so_far)}\n</summary_so_far>\nCarry over everything of it that still matters."
        )
    parts.append(f"<transcript>\n{fenced(stretch)}\n</transcript>")
    parts.append(CLOSING.format(words=max(50, int(max_tokens * WORDS_PER_TOKEN))))
    return "\n\n".join(parts)


def fenced(text: str) -> str:
    """Text that can't close its fence."""
    return _FENCE.sub(r"(\1", text)


def lines(items: Sequence[Seen]) -> Iterator[str]:
    """The transcript, one item a line; of an earlier recap what it says, so that the next summary builds on it."""
    for item in items:
        text = item.parts[0].text if item.facts.note and len(item.parts) == 1 else ""
        if earlier := summary_in(text):
            yield f"EARLIER SUMMARY:\n{_spoken(inner(earlier))}"
        elif is_note(text):
            yield text
        elif said := line(item):
            speaker, _, words = said.partition(": ")
            yield f"{speaker}: {_spoken(words)}"


def _spoken(text: str) -> str:
    """Text in which nobody else begins to speak."""
    return _SPEAKER.sub(r"\1(\2)", text)


def stretches(said: Sequence[str], room: int, count: Callable[[str], int], most: int) -> list[str]:
    """The transcript in about `most` pieces of at most `room` tokens, cut between items; an item that is longer than that is cut inside.

    More pieces come back only where the items are too many to be shortened.
    """
    sized = [(text, count(text) + JOINT) for text in said]
    budget = room * most
    while True:
        cap = _cap([size for _, size in sized], budget)
        pieces = _packed(
            [(text, size) if size <= cap else _shortened(text, size, cap, count) for text, size in sized], room, count
        )
        if len(pieces) <= most or cap <= LEAST_ITEM:
            return pieces
        budget = budget * 3 // 4


def _cap(sizes: Sequence[int], budget: int) -> int:
    """The largest size for an item at which all of them fit into the budget."""
    left = budget
    for done, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - done)
        if size > share:
            return max(LEAST_ITEM, share)
        left -= size
    return max(sizes, default=0)


def _shortened(text: str, size: int, cap: int, count: Callable[[str], int]) -> tuple[str, int]:
    """Head and tail of an item, in about `cap` tokens."""
    keep = max(1, len(text) * max(1, cap - 16) // size)
    head, tail = keep * 2 // 3, keep // 3
    short = text[:head] + LEFT_OUT.format(count=len(text) - head - tail) + text[len(text) - tail :]
    return short, count(short) + JOINT


def _packed(sized: Sequence[tuple[str, int]], room: int, count: Callable[[str], int]) -> list[str]:
    pieces: list[str] = []
    held: list[str] = []
    used = 0
    for whole, size in sized:
        for text, tokens in _parts(whole, size, room, count):
            if held and used + tokens > room:
                pieces.append("\n\n".join(held))
                held, used = [], 0
            held.append(text)
            used += tokens
    return [*pieces, "\n\n".join(held)] if held else pieces


def _parts(text: str, size: int, room: int, count: Callable[[str], int]) -> Iterator[tuple[str, int]]:
    """An item in parts that each fit; a single character is never cut."""
    if size <= room or len(text) < 2:
        yield text, size
        return
    step = max(1, len(text) * max(1, room - JOINT) // size * 4 // 5)
    for at in range(0, len(text), step):
        part = text[at : at + step]
        yield from _parts(part, count(part) + JOINT, room, count)
