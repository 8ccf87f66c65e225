"""Items as text that a person or a model can read: the one reader for summaries, archives' consumers and previews.

Formats say what an item's readable parts are; how they look as text is decided here, once for all formats: tool traffic as
`[tool_call: name(arguments)]` and `[tool_result: …]`, media as a placeholder, reasoning left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.core.media import Image
from app.core.view import Facts


@dataclass(frozen=True, slots=True)
class Part:
    """One readable stretch of an item, for counting, transcripts and archives.

    kind       text; call (`name`, `text` = its arguments); result (`text`); reasoning; media (`text` = what it is, e.g. "image/png")
    image      a picture: what it counts depends on the model
    tokens     what any other medium counts by the provider's formula; texts are counted from `text`
    """

    kind: Literal["text", "call", "result", "reasoning", "media"]
    text: str
    name: str = ""
    tokens: int = 0
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """An item as a summariser sees it: its facts, its readable parts, its place in the client's history (-1 for a note of ours)."""

    facts: Facts
    parts: tuple[Part, ...]
    index: int


_SPEAKERS = {"system": "SYSTEM", "user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}


def render(part: Part) -> str:
    """One part as text, "" for what a reader does not need."""
    match part.kind:
        case "text":
            return part.text
        case "call":
            return f"[tool_call: {part.name}({part.text})]"
        case "result":
            return f"[tool_result: {part.text}]"
        case "media":
            return f"[{part.text}]"
        case _:
            return ""


def line(item: Seen) -> str:
    """One item: who speaks, and what."""
    said = "\n".join(text for part in item.parts if (text := render(part)))
    return f"{_SPEAKERS[item.facts.role]}: {said}" if said else ""


def transcript(items: Iterable[Seen]) -> str:
    """All items, a blank line between them."""
    return "\n\n".join(text for item in items if (text := line(item)))


def texts(items: Sequence[Seen], kind: str) -> list[str]:
    """The texts of all parts of one kind, in order."""
    return [part.text for item in items for part in item.parts if part.kind == kind and part.text]
