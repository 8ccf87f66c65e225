"""The blocks of an Anthropic message: which calls and results pair, what can be read in them, what stays the same between requests.

Server tools answer inside assistant content; only where such a pair spans two messages do rules have to hear of it. Blocks are
sealed in many ways (signatures, encrypted results), so what is sealed is neither read nor offered for clearing.
source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls, …/server-tools, …/programmatic-tool-calling
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.core.view import Call, Result
from app.formats.base import Part
from app.formats.lenient import json_size, string
from app.formats.media import document_tokens, image_of

Block = dict[str, Any]

THINKING = frozenset({"thinking", "redacted_thinking"})
# `compaction`, `fallback`, tool_addition and tool_removal are left out on purpose: they count where they stand.
KNOWN = THINKING | {
    "text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "mcp_tool_listing",
    "connector_text", "container_upload",
}  # fmt: skip
_CLEARABLE = frozenset({"text", "image", "document", "search_result", "browser_state", ""})
"""What a result may hold and lose; a tool_reference is not among them: it loads the tool that it names (A57)."""
_SEALED = frozenset({"encrypted_content", "encrypted_stdout"})
_UNREAD = _SEALED | {"type", "cache_control", "citations", "signature", "encrypted_index", "media_type", "file_id"}
_PAGE = 2_400
"""Tokens of a page of PDF: its text and a picture of it; source: …/build-with-claude/pdf-support (7,000 for three pages)."""


def blocks_of(content: Any) -> list[Block] | None:
    """The blocks of a content; None for what is no content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) and all(isinstance(block, dict) for block in content) else None


def kind_of(block: Mapping[str, Any]) -> str:
    return string(block.get("type"))


def results_of(blocks: list[Block]) -> tuple[Result, ...]:
    """Results of client tools in a user message."""
    return tuple(_result(at, block) for at, block in enumerate(blocks) if kind_of(block) == "tool_result")


def _result(at: int, block: Block) -> Result:
    content = block.get("content")
    inner = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    # Citations count the sources of the whole request: none may vanish from under them (A68).
    cited = any(isinstance(part.get("citations"), dict) and part["citations"].get("enabled") for part in inner)
    clearable = not cited and all(kind_of(part) in _CLEARABLE for part in inner)
    return Result(string(block.get("tool_use_id")), "", ("content", at, "content"), json_size(content), clearable)


def assistant_pairs(blocks: list[Block]) -> tuple[tuple[Call, ...], tuple[Result, ...]]:
    """Client calls; and of server tools, MCP and programmatic calls what pairs across messages (A45, A46, A53, A54)."""
    opened = {string(block.get("id")) for block in blocks if kind_of(block).endswith("_tool_use")}
    closed = {string(block.get("tool_use_id")) for block in blocks if kind_of(block).endswith("_tool_result")}
    calls, results = [], []
    for at, block in enumerate(blocks):
        kind, ident, awaited = kind_of(block), string(block.get("id")), ""
        if kind == "tool_use":
            given = block.get("input")
            # Members of a computer or browser toolset are told apart by their input, which is small anyway.
            clearable = isinstance(given, dict) and not block.get("toolset_name")
            calls.append(Call(ident, string(block.get("name")), ("content", at, "input"), json_size(given), clearable))
            caller = block.get("caller")
            # Nothing without the code that made it.
            awaited = string(caller.get("tool_id")) if isinstance(caller, dict) else ""
        elif kind.endswith("_tool_use") and ident not in closed:
            calls.append(
                Call(ident, string(block.get("name")), ("content", at, "input"), json_size(block.get("input")), False)
            )
        elif kind.endswith("_tool_result"):
            awaited = string(block.get("tool_use_id"))
        if awaited and awaited not in opened:
            results.append(Result(awaited, "", ("content", at), 0, False))
    return tuple(calls), tuple(results)


def sources_of(content: Any) -> Iterator[str]:
    """The kinds of what can be cited in a content, in order: documents (fetched pages too) and search results are counted apart (A68)."""
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict):
            kind = kind_of(block)
            if kind in ("document", "search_result"):
                yield kind
            else:
                yield from sources_of(block.get("content"))


def cites_of(blocks: list[Block]) -> Iterator[tuple[str, int]]:
    """What the citations of texts point to: (kind, index). Those of web searches carry their own source."""
    for block in blocks:
        given = block.get("citations")
        for citation in given if isinstance(given, list) else ():
            for kind in ("document", "search_result"):
                index = citation.get(f"{kind}_index") if isinstance(citation, dict) else None
                if isinstance(index, int):
                    yield kind, index


def readable(value: Any, kind: Any) -> Iterator[Part]:
    """What can be read in a content value of any shape. Sealed stretches count by their length."""
    if isinstance(value, str):
        yield Part(kind, value)
    elif isinstance(value, list):
        for inner in value:
            yield from readable(inner, kind)
    elif isinstance(value, dict):
        source = value.get("source")
        if value.get("type") == "image":
            given = source if isinstance(source, dict) else {}
            yield Part("media", string(given.get("media_type")) or "image", image=image_of(given.get("data")))
            return
        if isinstance(source, dict):
            yield from _document(source, kind)
        for key, inner in value.items():
            if key in _SEALED and isinstance(inner, str):
                yield Part("media", "encrypted content", tokens=1 + len(inner) * 3 // 16)
            elif key not in _UNREAD and not (key == "source" and isinstance(inner, dict)):
                yield from readable(inner, kind)


def _document(source: Mapping[str, Any], kind: Any) -> Iterator[Part]:
    data = source.get("data")
    if source.get("type") == "base64" and isinstance(data, str):
        yield Part("media", string(source.get("media_type")) or "document", tokens=document_tokens(data, _PAGE))
    elif data is None and source.get("content") is None:
        yield Part("media", "document", tokens=document_tokens(None, _PAGE))
    else:
        yield from readable(source["content"] if data is None else data, kind)


def canonical(content: Any) -> Any:
    """A content without cache markers and nulls, at any depth; one block of mere text as a string."""
    if not isinstance(content, list):
        return content
    blocks = [_canonical_block(block) for block in content]
    only = blocks[0] if len(blocks) == 1 else None
    return only["text"] if isinstance(only, dict) and set(only) == {"type", "text"} else blocks


def _canonical_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    same = {key: value for key, value in block.items() if key != "cache_control" and value is not None}
    if "content" in same:
        same["content"] = canonical(same["content"])
    return same
