"""How many tokens a body is, by a count of the oracle's own.

A provider counts what the model reads: words, names of tools, arguments; not ids, signatures, markers or the base64 of a
picture. The figure is deterministic: characters / 4 per item, or any counter handed in (tiktoken, say), a fixed figure
per picture or file, and a few tokens per item for its role.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Count = Callable[[str], int]

MEDIA_TOKENS = 1200
"""Tokens that an image, a file or a recording counts."""
ITEM_TOKENS = 4
"""Tokens that an item counts beside its text."""

_HEADS = {
    "openai-chat": ("tools", "functions"),
    "openai-responses": ("instructions", "tools"),
    "anthropic-messages": ("tools", "system"),
    "gemini": ("systemInstruction", "system_instruction", "tools"),
}
_ITEMS = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic-messages": "messages",
    "gemini": "contents",
}
_UNREAD = frozenset(
    {
        *("type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "status", "is_error", "phase", "fingerprint"),
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "encrypted_index"),
        *("cache_control", "prompt_cache_breakpoint", "annotations", "logprobs"),
    }
)
_AS_JSON = frozenset({"input", "args", "response", "action", "operation", "tools"})
_MEDIA_TYPES = frozenset(
    {"image", "image_url", "input_image", "input_audio", "file", "input_file", "computer_screenshot", "video_url"}
)
_MEDIA_KEYS = ("inlineData", "inline_data", "fileData", "file_data")


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of a body: `head` for what stands before the history (system, tools), `items` one figure per item."""

    head: int
    items: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.head + sum(self.items)


def characters(text: str) -> int:
    """A token per four characters, rounded up."""
    return -(-len(text) // 4)


def measure(form: str, body: dict[str, Any], count: Count = characters) -> Size:
    """The size of a body of format `form`, in tokens."""
    head = sum(_tokens({key: body[key]}, count) for key in _HEADS[form] if body.get(key))
    return Size(head, tuple(ITEM_TOKENS + _tokens(item, count) for item in items_of(form, body)))


def items_of(form: str, body: dict[str, Any]) -> list[Any]:
    """The history of a body; a string counts as one item."""
    items = body.get(_ITEMS[form])
    if isinstance(items, str):
        return [items]
    return items if isinstance(items, list) else []


def _tokens(value: Any, count: Count) -> int:
    texts: list[str] = []
    media = _read(value, texts)
    return count("\n".join(texts)) + MEDIA_TOKENS * media


def _read(value: Any, texts: list[str]) -> int:
    """Appends what a model reads of a value; returns how many pictures and files are in it."""
    if isinstance(value, str):
        texts.append(value)
        return 0
    if isinstance(value, list):
        return sum(_read(entry, texts) for entry in value)
    if not isinstance(value, dict):
        return 0
    kind = value.get("type")
    source = value.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") in ("text", "content"):
        return _read([value.get("title"), source.get("data"), source.get("content")], texts)
    if kind in _MEDIA_TYPES or kind == "document" or any(key in value for key in _MEDIA_KEYS):
        return 1
    media = 0
    for key, entry in value.items():
        if key in _UNREAD or (key == "data" and kind == "redacted_thinking"):
            continue
        if key in _AS_JSON and isinstance(entry, dict | list):
            texts.append(json.dumps(entry, ensure_ascii=False))
        else:
            media += _read(entry, texts)
    return media
