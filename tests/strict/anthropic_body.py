"""The rules that hold for an Anthropic body as a whole: markers, tools, servers, per-model fields, media.

source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching, /agents-and-tools/mcp-connector,
/agents-and-tools/tool-use/tool-search-tool, /build-with-claude/context-editing, /build-with-claude/thinking-troubleshooting
"""

from __future__ import annotations

from typing import Any

from .anthropic_blocks import Seen, mark, text
from .violation import JSON, Found, claude_version, dicts

_TOOL_OF = {"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution"}


def check(body: JSON, model: str, seen: Seen, waiting: list[JSON], continued: bool, found: Found) -> None:
    """`waiting`: the server tool calls that have no result yet; `continued`: the provider keeps earlier messages."""
    tools = dicts(body.get("tools"))
    names = {str(tool.get("name")) for tool in tools if tool.get("name")}
    toolsets = [str(tool.get("mcp_server_name")) for tool in tools if tool.get("type") == "mcp_toolset"]
    if seen.tool_blocks and not tools and not continued:
        found.add("A13", "tools", "Requests which include `tool_use` or `tool_result` blocks must define tools")
    _markers(body, tools, seen, found)
    _defined(tools, names, toolsets, seen, waiting, continued, found)
    _servers(body, toolsets, found)
    _edits(body, found)
    _per_model(body, model, found)
    _sources(body, seen, found)


def _markers(body: JSON, tools: list[JSON], seen: Seen, found: Found) -> None:
    """A24, A25 and A65 for `system`; A39 to A42 over tools, system, messages, in this order."""
    before = Seen()
    for i, tool in enumerate(tools):
        if tool.get("cache_control") is not None:
            mark(f"tools.{i}", tool["cache_control"], before)
            if tool.get("defer_loading") is True:
                found.add("A42", f"tools.{i}", f"tools.{i}: a tool with `defer_loading` may not have `cache_control`")
    system = body.get("system")
    if isinstance(system, list):
        for i, block in enumerate(system):
            where = f"system.{i}"
            if not isinstance(block, dict) or block.get("type") != "text":
                found.add("A65", where, f"{where}.type: Input should be 'text'")
                continue
            marker = block.get("cache_control")
            if marker is not None:
                mark(where, marker, before)
            text(where, block, marker, before, found)
    elif system is not None and not isinstance(system, str):
        found.add("A65", "system", "system: Input should be a valid string or list")
    markers = before.markers + seen.markers
    automatic = body.get("cache_control")
    ttl = str(automatic.get("ttl") or "5m") if isinstance(automatic, dict) else ""
    if len(markers) + bool(ttl) > 4:
        found.add(
            "A39",
            markers[4][0] if len(markers) > 4 else "cache_control",
            f"A maximum of 4 blocks with cache_control may be provided. Found {len(markers) + bool(ttl)}.",
        )
    if ttl and markers and markers[-1][0] == seen.last_block and markers[-1][1] != ttl:
        found.add(
            "A41", seen.last_block, "cache_control ttl of the last block differs from the request's cache_control"
        )
    short = False
    for where, lifetime in [*markers, ("cache_control", ttl)] if ttl else markers:
        if lifetime == "1h" and short:
            found.add(
                "A40",
                where,
                f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control "
                "block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
            )
        short = short or lifetime == "5m"


def _defined(
    tools: list[JSON],
    names: set[str],
    toolsets: list[str],
    seen: Seen,
    waiting: list[JSON],
    continued: bool,
    found: Found,
) -> None:
    """A22, A48, A56: what the history names must be in `tools`."""
    for block in waiting:
        name = str(block.get("name"))
        if _TOOL_OF.get(name, name) not in names and not continued:
            found.add("A48", "tools", f"tools: the waiting server tool `{name}` must be defined")
    if tools and all(tool.get("defer_loading") is True for tool in tools):
        found.add("A56", "tools", "At least one tool must have defer_loading=false.")
    defined = set(names)
    for where, block in seen.changes:
        tool = block.get("tool")
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "tool_definition" and isinstance(tool, dict):
            defined.add(str((tool.get("definition") or {}).get("name")))
        elif kind == "tool_reference" and isinstance(tool, dict):
            if tool.get("name") not in defined:
                found.add("A22", where, f"{where}.tool: tool '{tool.get('name')}' not found in tools")
        elif isinstance(tool, dict) and tool.get("server_name") not in toolsets:
            found.add("A22", where, f"{where}.tool: no mcp_toolset for server '{tool.get('server_name')}'")
    if toolsets or continued:
        return  # a server's tools are not listed in the body
    for where, name in seen.references:
        if name not in defined:
            found.add("A56", where, f"{where}: Tool reference '{name}' not found in available tools")


def _servers(body: JSON, toolsets: list[str], found: Found) -> None:
    """A55: each MCP server has exactly one toolset, each toolset a server."""
    servers = [str(server.get("name")) for server in dicts(body.get("mcp_servers"))]
    for name in servers:
        if toolsets.count(name) != 1:
            found.add(
                "A55", "mcp_servers", f"mcp_servers: server '{name}' must be referenced by exactly one mcp_toolset"
            )
    for name in toolsets:
        if name not in servers:
            found.add("A55", "tools", f"tools: mcp_toolset references an unknown server '{name}'")


def _edits(body: JSON, found: Found) -> None:
    """A61, A63: the provider's own compaction and context editing."""
    management = body.get("context_management")
    edits = dicts(management.get("edits")) if isinstance(management, dict) else []
    for i, edit in enumerate(edits):
        where = f"context_management.edits.{i}"
        trigger, keep = edit.get("trigger"), edit.get("keep")
        if edit.get("type") == "compact_20260112" and _below(trigger, 50_000):
            found.add("A61", where, f"{where}.trigger.value: Input should be greater than or equal to 50000")
        if edit.get("type") == "clear_thinking_20251015":
            if i:
                found.add("A63", where, f"{where}: clear_thinking_20251015 must be the first edit")
            if _below(keep, 1):
                found.add("A63", where, f"{where}.keep.value: Input should be greater than 0")


def _below(setting: Any, least: int) -> bool:
    value = setting.get("value") if isinstance(setting, dict) else None
    return isinstance(value, int) and value < least


def _per_model(body: JSON, model: str, found: Found) -> None:
    """A36: fields that one model takes and another refuses."""
    version = claude_version(model)
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    choice = body.get("tool_choice")
    if kind == "enabled" and isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        found.add("A36", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
    if version is None:
        return
    if kind == "enabled" and version >= (4, 7):
        found.add("A36", "thinking", '"thinking.type.enabled" is not supported for this model.')
    elif kind == "adaptive" and version <= (4, 5):
        found.add("A36", "thinking", "adaptive thinking is not supported on this model")
    elif kind == "disabled":
        config = body.get("output_config")
        effort = config.get("effort") if isinstance(config, dict) else None
        always = "fable" in model or "mythos" in model
        if always or ("opus" in model and version[0] == 5 and effort in ("xhigh", "max")):
            found.add("A36", "thinking", '"thinking.type.disabled" is not supported for this model.')
    if version >= (4, 7):
        for key in ("temperature", "top_p", "top_k"):
            if body.get(key) not in (None, 1):
                found.add("A36", key, f"`{key}` may only be set to its default on this model.")


def _sources(body: JSON, seen: Seen, found: Found) -> None:
    """A66 to A69: documents, search results, citations, images."""
    for what, flags in (("documents", seen.documents), ("search results", seen.search_results)):
        if any(flags) and not all(flags):
            found.add("A66", "messages", f"Citations must be enabled on all or none of the {what}.")
    config = body.get("output_config")
    if (any(seen.documents) or any(seen.search_results)) and isinstance(config, dict) and config.get("format"):
        found.add("A67", "output_config.format", "Citations are not supported with structured outputs.")
    for where, key, index in seen.cited:
        known = len(seen.documents if key == "document_index" else seen.search_results)
        if index >= known and not (seen.fetched and key == "document_index"):
            found.add("A68", where, f"{where}.citations: {key} {index} is out of range")
    if seen.images > 600:
        found.add("A69", "messages", f"messages: too many images: {seen.images} > 600")
