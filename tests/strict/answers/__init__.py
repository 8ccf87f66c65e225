"""Answers in the four grammars: whole, or as the events of a stream.

A `Reply` says what the model says; an `Answer` is a reply to one request, with ids and figures derived from that request, so
that the same request always gets the same bytes. Each format module has `whole(answer)` and `events(answer)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.strict.prefix_cache import Usage

CREATED = 1767225600
"""Unix time that every answer carries."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. An empty `id` is made from the request."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says: thinking (where the format shows it), then text, then calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""

    def words(self) -> str:
        """All that the model wrote, for counting."""
        return "".join([self.thinking, self.text, *(call.name + json.dumps(call.arguments) for call in self.calls)])


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply to one request. `seed` is a hex digest of that request (at least 24 digits)."""

    reply: Reply
    usage: Usage
    model: str
    seed: str
    seal: str = ""
    """Signature of the thinking block, or the encrypted reasoning."""
    with_usage: bool = True
    """Chat streams report usage only if asked."""
    cache_ttl: str = "5m"

    def id(self, prefix: str, n: int = 0) -> str:
        return f"{prefix}{self.seed[:22]}{n:02x}"

    def call_id(self, prefix: str, n: int) -> str:
        return self.reply.calls[n].id or self.id(prefix, n)


def pieces(text: str, size: int = 16) -> Iterator[str]:
    """A text in the portions of a stream."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def sse(data: Any, event: str = "") -> bytes:
    """One server-sent event; a string is sent as it is."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "backslashreplace")
