"""Fields and blocks of a beta that Anthropic refuses without its value in the `anthropic-beta` header.

A proxy that makes calls of its own (a summary, a count) out of a client's history must carry the client's header along.
source: https://platform.claude.com/docs/en/build-with-claude/compaction, /build-with-claude/context-editing,
/agents-and-tools/mcp-connector, Wei-Shaw/sub2api#6677
"""

from __future__ import annotations

from collections.abc import Iterable

from .violation import JSON, Found, Violation, dicts

BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"
_EDITS = "context-management-2025-06-27"
_COMPACTION = "compact-2026-01-12"
_MCP = "mcp-client-2025-11-20"
_TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"


def betas(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The values of all `anthropic-beta` headers: a comma list that may repeat."""
    lists = [value.split(",") for name, value in headers if name.lower() == "anthropic-beta"]
    return frozenset(value.strip() for values in lists for value in values)


def violations(body: JSON, values: frozenset[str]) -> list[Violation]:
    """AB2, A22, A55, A59, A63 (all by A64): what the body uses without having asked for it."""
    found = Found()
    for rule, where, value in _used(body):
        if value not in values:
            found.add(rule, where, f"{where}: Extra inputs are not permitted")
    return found


def _used(body: JSON) -> list[tuple[str, str, str]]:
    used: list[tuple[str, str, str]] = []
    management = body.get("context_management")
    if isinstance(management, dict):
        compacts = [str(edit.get("type")).startswith("compact_") for edit in dicts(management.get("edits"))]
        if any(compacts):
            used.append(("A59", "context_management", _COMPACTION))
        if not all(compacts) or not compacts:
            used.append(("A63", "context_management", _EDITS))
    if body.get("mcp_servers"):
        used.append(("A55", "mcp_servers", _MCP))
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and "block_binding" in thinking:
        used.append(("AB2", "thinking.block_binding", BINDING_CONTROLS))
    for i, message in enumerate(dicts(body.get("messages"))):
        for j, block in enumerate(dicts(message.get("content"))):
            kind = block.get("type")
            if kind == "compaction":
                used.append(("A59", f"messages.{i}.content.{j}", _COMPACTION))
            elif kind in ("tool_addition", "tool_removal"):
                used.append(("A22", f"messages.{i}.content.{j}", _TOOL_CHANGES))
    return used
