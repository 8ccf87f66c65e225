"""The record: what remains of a stretch of conversation, in order, each line under the one who said it.

    assistant
     I'll raise the limit first.
    call Edit
     file_path=/srv/app/limits.py
    result
     The file has been updated.

Lines of a text are set in by one blank, so that no text can pass for a heading, and a record can be read back: a later summary takes an
earlier one apart again and lets its lines compete with the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.transcript import Part, Seen
from app.summaries.lines import lines_of

SPEAKERS = ("user", "assistant", "call", "result")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive lines of one speaker. `said` is one of SPEAKERS, `name` the tool of a call, `at` the item they stand in."""

    said: str
    name: str
    at: int
    lines: tuple[str, ...]

    @property
    def head(self) -> str:
        return f"{self.said} {self.name}" if self.name else self.said


def stretches(item: Seen, at: int) -> Iterator[Stretch]:
    """What an item of the client's says. Reasoning and media say nothing that could be repeated."""
    for part in item.parts:
        if part.kind == "call":
            yield Stretch("call", part.name, at, tuple(lines_of(arguments(part.text))))
        elif part.kind == "result":
            yield Stretch("result", "", at, tuple(lines_of(part.text)))
        elif part.kind == "text" and part.text.strip():
            said = "assistant" if item.facts.role == "assistant" else "result" if item.facts.role == "tool" else "user"
            yield Stretch(said, "", at, tuple(lines_of(part.text)))


def arguments(text: str) -> str:
    """A call's arguments as lines: `name=value`, texts as they are and not as JSON writes them."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(given, dict):
        return text
    return "\n".join(_argument(str(name), value) for name, value in given.items())


def _argument(name: str, value: Any) -> str:
    if isinstance(value, str):
        return f"{name}={value}"
    if isinstance(value, list):
        return "\n".join([f"{name}=", *(_plain(inner) for inner in value)])
    return f"{name}={_plain(value)}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def written(parts: Iterable[Stretch]) -> str:
    """The record as text; stretches without lines leave nothing."""
    out: list[str] = []
    head = ""
    for stretch in parts:
        if not stretch.lines:
            continue
        if stretch.head != head or stretch.said == "call":
            head = stretch.head
            out.append(head)
        out += [f" {line}" for line in stretch.lines]
    return "\n".join(out)


def parsed(text: str, at: int) -> list[Stretch]:
    """A record read back; lines before the first head, which a person may have put there, count as a user's."""
    found: list[Stretch] = []
    said, name, lines = "user", "", []  # type: tuple[str, str, list[str]]
    for line in [*text.split("\n"), "user"]:
        if line.startswith(" ") or not line:
            if line.strip():
                lines.append(line[1:])
            continue
        first, _, rest = line.partition(" ")
        if first not in SPEAKERS:
            lines.append(line)
            continue
        if lines:
            found.append(Stretch(said, name, at, tuple(lines)))
        said, name, lines = first, rest, []
    return found


def of_part(part: Part) -> Sequence[str]:
    return tuple(lines_of(part.text))
