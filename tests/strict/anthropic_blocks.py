"""The rules that one content block of Anthropic's format can break alone, and what the body-wide rules need to know.

The walk gathers markers, documents, images and tool references in their order, so that no other rule has to walk again.
source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching, anthropics/claude-code#59812,
home-assistant/core#175637, https://platform.claude.com/docs/en/build-with-claude/thinking
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .violation import JSON, Found, dicts

_RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_MODEL_ONLY = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "compaction", "fallback"})
_THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(slots=True)
class Seen:
    """What the walk met, in the body's order."""

    markers: list[tuple[str, str]] = field(default_factory=list)
    """(where, ttl) of each `cache_control`."""
    last_block: str = ""
    """Where the last block of the last message is."""
    documents: list[bool] = field(default_factory=list)
    """Per document: are citations enabled?"""
    search_results: list[bool] = field(default_factory=list)
    cited: list[tuple[str, str, int]] = field(default_factory=list)
    """(where, key, index) of each citation that counts documents or search results."""
    references: list[tuple[str, str]] = field(default_factory=list)
    """(where, tool name) of each tool reference."""
    changes: list[tuple[str, JSON]] = field(default_factory=list)
    """(where, block) of each tool_addition and tool_removal."""
    images: int = 0
    fetched: bool = False
    """Holds fetched pages: those are documents too, so that document indexes can't be checked."""
    tool_blocks: bool = False


def check(messages: list[JSON], found: Found) -> Seen:
    """A10, A11, A22 (place), A24 to A26, A33, A42, A50, A59."""
    seen = Seen()
    last = len(messages) - 1
    for i, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if isinstance(content, list):
            for j, block in enumerate(content):
                _block(f"messages.{i}.content.{j}", role, block, seen, found)
        blank = isinstance(content, str) and content.isspace()
        # The final assistant message may be empty, a system message may be there for its `output_config` alone.
        may_be = (i == last and role == "assistant") or (role == "system" and message.get("output_config"))
        if (blank or not content or not isinstance(content, list | str)) and not may_be:
            _empty(f"messages.{i}", role, blank, found)
    end = messages[-1].get("content")
    seen.last_block = f"messages.{last}.content.{len(end) - 1}" if isinstance(end, list) and end else ""
    return seen


def _empty(where: str, role: object, blank: bool, found: Found) -> None:
    if blank:
        found.add("A25", where, f"{where}: text content blocks must contain non-whitespace text")
        return
    tail = " except for the optional final assistant message" if role == "assistant" else ""
    found.add("A26", where, f"{where}: all messages must have non-empty content{tail}")


def _block(where: str, role: object, block: Any, seen: Seen, found: Found) -> None:
    if not isinstance(block, dict):
        found.add("A26", where, f"{where}: Input should be an object")
        return
    kind = block.get("type")
    marker = block.get("cache_control")
    if marker is not None:
        mark(where, marker, seen)
    if kind == "text":
        text(where, block, marker, seen, found)
    elif kind in _THINKING:
        _thinking(where, role, block, marker, found)
    elif kind == "tool_result":
        seen.tool_blocks = True
        _result(where, block, seen, found)
    elif kind in _MODEL_ONLY:
        if role != "assistant":
            rule = "A59" if kind == "compaction" else "A1"
            found.add(rule, where, f"{where}: `{kind}` blocks can only be in `assistant` messages")
        if kind == "tool_use":
            seen.tool_blocks = True
        elif kind == "compaction" and not (block.get("content") is None or block["content"]):
            found.add("A59", where, f"{where}.content: compaction content may be null but not empty")
    elif kind in ("tool_addition", "tool_removal"):
        seen.changes.append((where, block))
        if role != "system":
            found.add("A22", where, f"{where}: `{kind}` blocks can only be in system messages")
    elif kind == "web_search_tool_result":
        _web_search(where, block, found)
    elif kind == "tool_search_tool_result":
        inner = block.get("content")
        references = inner.get("tool_references") if isinstance(inner, dict) else None
        seen.references.extend((where, str(one.get("tool_name"))) for one in dicts(references))
    elif kind == "web_fetch_tool_result":
        seen.fetched = True
    else:
        _media(kind, where, block, seen)


def mark(where: str, marker: Any, seen: Seen) -> None:
    seen.markers.append((where, str(marker.get("ttl") or "5m") if isinstance(marker, dict) else "5m"))


def text(where: str, block: JSON, marker: Any, seen: Seen, found: Found) -> None:
    """A24, A25, A42, and the citations of a text block."""
    words = block.get("text")
    if not isinstance(words, str) or not words:
        found.add("A24", where, f"{where}: text content blocks must be non-empty")
        if marker is not None:
            found.add("A42", where, f"{where}.cache_control: cache_control cannot be set for empty text blocks")
    elif words.isspace():
        found.add("A25", where, f"{where}: text content blocks must contain non-whitespace text")
    citations = block.get("citations")
    if not citations:
        return
    for citation in dicts(citations):
        if "cache_control" in citation:
            found.add("A42", where, f"{where}.citations: cache_control is not allowed on citations")
        for key in ("document_index", "search_result_index"):
            if isinstance(citation.get(key), int):
                seen.cited.append((where, key, citation[key]))


def _thinking(where: str, role: object, block: JSON, marker: Any, found: Found) -> None:
    """A33, A42: thinking is the assistant's, signed, and carries no marker. An empty `thinking` is right (A32)."""
    kind = block["type"]
    if role != "assistant":
        found.add("A33", where, f"{where}: `{kind}` blocks can only be in `assistant` messages")
    sealed = "signature" if kind == "thinking" else "data"
    if not isinstance(block.get(sealed), str) or not block[sealed]:
        found.add("A33", where, f"{where}.{kind}.{sealed}: Field required")
    if kind == "thinking" and not isinstance(block.get("thinking"), str):
        found.add("A33", where, f"{where}.thinking.thinking: Field required")
    if marker is not None:
        found.add("A42", where, f"{where}.{kind}.cache_control: Extra inputs are not permitted")


def _result(where: str, block: JSON, seen: Seen, found: Found) -> None:
    """A10, A11, and the rules of text for what stands inside a result."""
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        found.add("A10", where, f"{where}.content: Input should be a valid string or list")
        return
    only_text = block.get("is_error") is True
    for k, part in enumerate(content):
        inner = f"{where}.content.{k}"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _RESULT_PARTS and not (kind == "browser_state" and block.get("toolset_name")):
            found.add(
                "A10", inner, f"{inner}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
            continue
        marker = part.get("cache_control")
        if marker is not None:
            mark(inner, marker, seen)
        if only_text and kind != "text":
            found.add("A11", inner, f"{where}: all content must be type `text` if `is_error` is true")
        if kind == "text":
            text(inner, part, marker, seen, found)
        elif kind == "tool_reference":
            seen.references.append((inner, str(part.get("tool_name"))))
        else:
            _media(kind, inner, part, seen)


def _web_search(where: str, block: JSON, found: Found) -> None:
    """A50: a search result comes back with its encrypted content."""
    for k, result in enumerate(dicts(block.get("content"))):
        encrypted = result.get("encrypted_content")
        if result.get("type") == "web_search_result" and not (isinstance(encrypted, str) and encrypted):
            found.add("A50", f"{where}.content.{k}", f"{where}.content.{k}.encrypted_content: Field required")


def _media(kind: object, where: str, block: JSON, seen: Seen) -> None:
    if kind == "image":
        seen.images += 1
    elif kind in ("document", "search_result"):
        citations = block.get("citations")
        enabled = isinstance(citations, dict) and citations.get("enabled") is True
        (seen.documents if kind == "document" else seen.search_results).append(enabled)
        source = block.get("source")
        inside = source.get("content") if isinstance(source, dict) else block.get("content")
        for part in dicts(inside):
            if part.get("cache_control") is not None:
                mark(where, part["cache_control"], seen)
            seen.images += part.get("type") == "image"
