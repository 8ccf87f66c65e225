"""What a summariser is asked: instructions, the transcript fenced as data, the instructions' gist once more.

An unfenced transcript makes the model do the tasks in it. The fence is a tag that can't occur inside, because the transcript's own spelling
of it is neutralised. A transcript that exceeds the summariser's window is cut at items and summarised link by link: each link sees the
summary so far and the next stretch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files

from app.core.transcript import Seen, line
from app.summaries.recap import inner, summary_in

_FENCE = re.compile(r"<(/?)\s*(transcript|summary_so_far)\b", re.IGNORECASE)
CLOSING = "Now write the summary of the transcript above, in the language of the conversation, in at most {words} words."
WORDS_PER_TOKEN = 0.6


@cache
def built_in() -> str:
    """The instructions that ship with compactd."""
    return files("app.summaries").joinpath("summary.md").read_text(encoding="utf-8").strip()


def question(instructions: str, stretch: str, so_far: str, max_tokens: int) -> str:
    """The whole prompt for one link."""
    parts = [instructions.strip()]
    if so_far:
        parts.append(f"<summary_so_far>\n{fenced(so_far)}\n</summary_so_far>\nCarry over everything of it that still matters.")
    parts.append(f"<transcript>\n{fenced(stretch)}\n</transcript>")
    parts.append(CLOSING.format(words=max(50, int(max_tokens * WORDS_PER_TOKEN))))
    return "\n\n".join(parts)


def fenced(text: str) -> str:
    """Text that can't close its fence."""
    return _FENCE.sub(r"(\1\2", text)


def lines(items: Sequence[Seen]) -> Iterator[str]:
    """The transcript, one item a line; of an earlier recap what it says, so that the next summary builds on it."""
    for item in items:
        if item.facts.note:
            text = item.parts[0].text if item.parts else ""
            earlier = summary_in(text)
            yield f"EARLIER SUMMARY:\n{inner(earlier)}" if earlier else text
        elif said := line(item):
            yield said


def stretches(said: Sequence[str], room: int, count: Callable[[str], int]) -> list[str]:
    """The transcript in pieces of at most `room` tokens, cut between items; an item that is longer than that is cut inside."""
    pieces: list[str] = []
    held: list[str] = []
    size = 0
    for text in said:
        for part in _parts(text, room, count):
            tokens = count(part) + 2
            if held and size + tokens > room:
                pieces.append("\n\n".join(held))
                held, size = [], 0
            held.append(part)
            size += tokens
    return [*pieces, "\n\n".join(held)] if held else pieces


def _parts(text: str, room: int, count: Callable[[str], int]) -> list[str]:
    total = count(text)
    if total + 2 <= room:
        return [text]
    step = max(1, len(text) * max(1, room - 2) // (total + 1) * 4 // 5)
    return [part for at in range(0, len(text), step) for part in _parts(text[at : at + step], room, count)] if step < len(text) else [text]
