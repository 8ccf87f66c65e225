"""A provider's prompt cache, simulated: which part of a prompt has been seen before.

A prompt is a chain of segments (tools, system, each item). OpenAI and Gemini remember every prefix by themselves and count
in steps; Anthropic writes only where a `cache_control` marker stands and looks back from a marker over 20 blocks. What one
credential has cached is never seen by another. No clock: nothing expires.
source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching,
https://developers.openai.com/api/docs/guides/prompt-caching
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from .tokens import Size, items_of

LOOK_BACK = 20
"""Blocks that a marker looks back for an earlier write."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `prompt` is the whole prompt, cached tokens included."""

    prompt: int
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(slots=True)
class PrefixCache:
    """Prefixes seen so far. A prefix of fewer than `minimum` tokens is not cached; OpenAI counts in steps of `step`."""

    minimum: int = 1024
    step: int = 128
    _seen: set[tuple[str, bytes]] = field(default_factory=set)

    def use(self, owner: str, form: str, model: str, body: dict[str, Any], size: Size) -> Usage:
        """Looks a prompt up and remembers it."""
        prefixes = _prefixes(form, model, body, size)
        if form == "anthropic-messages":
            return self._marked(owner, body, prefixes, size)
        cached = 0
        for digest, tokens in prefixes:
            if (owner, digest) in self._seen and tokens >= self.minimum:
                cached = tokens
        self._seen.update((owner, digest) for digest, _ in prefixes)
        if form.startswith("openai"):
            cached -= cached % self.step
        return Usage(size.total, cached=cached)

    def _marked(self, owner: str, body: dict[str, Any], prefixes: list[tuple[bytes, int]], size: Size) -> Usage:
        messages = items_of("anthropic-messages", body)
        blocks = [1, 1, *(_blocks(message) for message in messages)]
        marks = [
            i for i, segment in enumerate([body.get("tools"), body.get("system"), *messages]) if _is_marked(segment)
        ]
        if body.get("cache_control") is not None:
            marks.append(len(prefixes) - 1)
        read = 0
        for mark in marks:
            behind = 0
            for i in range(mark, -1, -1):
                if (owner, prefixes[i][0]) in self._seen:
                    read = max(read, prefixes[i][1])
                    break
                behind += blocks[i]
                if behind > LOOK_BACK:
                    break
        reach = max((prefixes[mark][1] for mark in marks), default=0)
        reach = reach if reach >= self.minimum else 0
        self._seen.update((owner, prefixes[mark][0]) for mark in marks if prefixes[mark][1] >= self.minimum)
        return Usage(size.total, cached=read, written=max(0, reach - read))


def _prefixes(form: str, model: str, body: dict[str, Any], size: Size) -> list[tuple[bytes, int]]:
    """(digest, tokens) of each prefix: tools, then system, then each item."""
    digest = _digest(f"{form} {model}")
    system = body.get("system") or body.get("instructions") or body.get("systemInstruction")
    out: list[tuple[bytes, int]] = []
    tokens = 0
    for segment, cost in [
        (body.get("tools"), 0),
        (system, size.head),
        *zip(items_of(form, body), size.items, strict=True),
    ]:
        digest = _digest(canonical(segment), digest)
        tokens += cost
        out.append((digest, tokens))
    return out


def _digest(text: str, before: bytes = b"") -> bytes:
    """Clients may send half a surrogate pair; a provider stores it as anything else."""
    return hashlib.blake2b(before + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def canonical(value: Any) -> str:
    """A segment without its markers, text as one block or as a string being the same; key order counts."""
    text = json.dumps(value)
    plain = '"cache_control"' not in text and '"content": "' not in text
    return text if plain else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    out = {key: _plain(entry) for key, entry in value.items() if key != "cache_control"}
    if "role" in out and isinstance(out.get("content"), str):
        out["content"] = [{"type": "text", "text": out["content"]}]
    return out


def _blocks(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    return len(content) if isinstance(content, list) else 1


def _is_marked(segment: Any) -> bool:
    if isinstance(segment, list):
        return any(_is_marked(entry) for entry in segment)
    if not isinstance(segment, dict):
        return False
    return segment.get("cache_control") is not None or _is_marked(segment.get("content"))
