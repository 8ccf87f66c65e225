"""How calls and results meet in Anthropic's format.

A client tool's results stand in the one user message right after the calls. A server tool's result stands in assistant
content, perhaps in a later message, when client tools had to be answered in between. So two books are kept: the calls of
the message just before, and the server tools that still wait.
source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls and
/agents-and-tools/tool-use/server-tools, anthropics/claude-code#6575, anthropics/claude-code#18947
"""

from __future__ import annotations

import re
from typing import Any

from .violation import JSON, Found, dicts, quoted

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


def check(messages: list[JSON], continued: bool, found: Found) -> list[JSON]:
    """A1 to A9, A12, A45 to A47, A49, A52 to A54. Returns the server tool calls that still wait for their result.

    `continued`: what came before is kept by the provider, so the first messages may answer calls that are not here.
    """
    book = _Book(continued, found)
    for i, message in enumerate(messages):
        if message.get("role") == "user":
            book.user(i, dicts(message.get("content")), isinstance(message.get("content"), str))
        else:
            book.close_calls()
            if message.get("role") == "assistant":
                book.assistant(i, dicts(message.get("content")))
    return book.finish(messages)


class _Book:
    def __init__(self, continued: bool, found: Found) -> None:
        self.continued = continued
        self.found = found
        self.seen: set[Any] = set()
        self.calls: dict[Any, JSON] = {}
        """The client calls of the message just before, by id."""
        self.servers: dict[Any, tuple[int, JSON]] = {}
        """Server tools that wait: id -> (newest message that keeps them running, block)."""
        self.remote: dict[Any, int] = {}
        """MCP calls that wait: id -> message."""
        self.last_assistant = -1

    def user(self, i: int, blocks: list[JSON], is_text: bool) -> None:
        answered: set[Any] = set()
        other = is_text
        for j, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                other = True
                continue
            call_id = block.get("tool_use_id")
            call = self.calls.get(call_id)
            if call is None or call_id in answered:
                if not (self.continued and i == 0):
                    self._stray(f"messages.{i}.content.{j}", call_id, call_id in answered)
            else:
                answered.add(call_id)
                if call.get("toolset_name"):
                    self._toolset(f"messages.{i}.content.{j}", call, block)
            if other and self.calls:
                where = f"messages.{i}.content.{j}"
                self.found.add("A3", where, f"{where}: `tool_result` blocks must come first in the message")
        missing = [call_id for call_id in self.calls if call_id not in answered]
        if missing:
            self._unanswered(i - 1, missing, "A2" if answered else "A1")
        if other and not is_text and self.calls:
            if self.servers:
                self.found.add(
                    "A47", f"messages.{i}", f"messages.{i}: only `tool_result` blocks may follow a waiting server tool"
                )
            elif any(from_code(call) for call in self.calls.values()):
                self.found.add(
                    "A52",
                    f"messages.{i}",
                    f"messages.{i}: only `tool_result` blocks may answer programmatic tool calls",
                )
        if not self.calls:
            self._abandon(i)
        self.calls = {}

    def close_calls(self) -> None:
        """No user message follows the calls at once."""
        if self.calls:
            self._unanswered(self.last_assistant, list(self.calls), "A1")
        self.calls = {}

    def assistant(self, i: int, blocks: list[JSON]) -> None:
        self.last_assistant = i
        for j, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "tool_use":
                self._opens(i, j, block, _ID)
                self.calls[block.get("id")] = block
                self._caller(i, j, block)
            elif kind == "server_tool_use":
                self._opens(i, j, block, _SERVER_ID)
                self.servers[block.get("id")] = (i, block)
            elif kind == "mcp_tool_use":
                self._opens(i, j, block, _ID)
                self.remote[block.get("id")] = i
            elif kind == "mcp_tool_result":
                if self.remote.pop(block.get("tool_use_id"), None) is None:
                    self._orphan("A54", f"messages.{i}.content.{j}", block)
            elif kind == "tool_result":
                self._orphan("A4", f"messages.{i}.content.{j}", block)
            elif isinstance(kind, str) and kind.endswith("_tool_result"):
                asked = self.servers.pop(block.get("tool_use_id"), None) is not None
                if not asked and not self.continued:
                    self._orphan("A45", f"messages.{i}.content.{j}", block)

    def finish(self, messages: list[JSON]) -> list[JSON]:
        self.close_calls()
        for call_id, (i, block) in list(self.servers.items()):
            if i < self.last_assistant:
                self._unresolved("A45", i, str(block.get("name")), call_id)
                del self.servers[call_id]
        for call_id, i in self.remote.items():
            if i < self.last_assistant or i < len(messages) - 1:
                self._unresolved("A54", i, "mcp_tool_use", call_id)
        return [block for _, block in self.servers.values()]

    def _opens(self, i: int, j: int, block: JSON, pattern: re.Pattern[str]) -> None:
        """A6, A8, A9: a call has a fresh id of plain characters, and an object as input."""
        call_id = block.get("id")
        if not isinstance(call_id, str) or not pattern.fullmatch(call_id):
            where = f"messages.{i}.content.{j}.id"
            self.found.add("A8", where, f"{where}: String should match pattern '^{pattern.pattern}$'")
        if call_id in self.seen:
            where = f"messages.{i}.content.{j}"
            self.found.add("A6", where, f"{where}: `tool_use` ids must be unique")
        self.seen.add(call_id)
        if not isinstance(block.get("input"), dict):
            where = f"messages.{i}.content.{j}.input"
            self.found.add("A9", where, f"{where}: Input should be a valid dictionary")

    def _stray(self, where: str, call_id: object, again: bool) -> None:
        """A4, A7, A49: a result that answers no open call of the message before."""
        if isinstance(call_id, str) and call_id.startswith("srvtoolu_"):
            self.found.add("A49", where, f"{where}: tool_result for server tool {call_id} is not allowed")
        elif again:
            self.found.add(
                "A7",
                where,
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}",
            )
        else:
            self.found.add(
                "A4",
                where,
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block must "
                "have a corresponding `tool_use` block in the previous message.",
            )

    def _caller(self, i: int, j: int, block: JSON) -> None:
        """A53: a call made by running code keeps that server tool waiting, and can't be without it."""
        if not from_code(block):
            return
        tool_id = block["caller"].get("tool_id")
        if tool_id in self.servers:
            self.servers[tool_id] = (i, self.servers[tool_id][1])
        elif tool_id not in self.seen and not self.continued:
            self.found.add("A53", f"messages.{i}.content.{j}", f"no server_tool_use {tool_id} for this call's caller")

    def _toolset(self, where: str, call: JSON, result: JSON) -> None:
        """A12: a toolset member's result repeats the toolset and holds text, images and one browser state."""
        toolset = call["toolset_name"]
        if result.get("toolset_name") != toolset:
            self.found.add("A12", where, f"{where}.toolset_name: Input should be '{toolset}'")
        kinds = [part.get("type") for part in dicts(result.get("content"))]
        if any(kind not in ("text", "image", "browser_state") for kind in kinds) or kinds.count("browser_state") > 1:
            self.found.add("A12", where, f"{where}.content: only text, image and one browser_state are allowed")

    def _abandon(self, i: int) -> None:
        """A45: a user's new words end the turn; a server tool that waits then has lost its result."""
        for call_id, (k, block) in self.servers.items():
            self._unresolved("A45", k, str(block.get("name")), call_id)
        for call_id, k in self.remote.items():
            if k < i:
                self._unresolved("A54", k, "mcp_tool_use", call_id)
        self.servers, self.remote = {}, {}

    def _unanswered(self, i: int, missing: list[Any], rule: str) -> None:
        self.found.add(
            rule,
            f"messages.{i}",
            f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after: {quoted(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        )

    def _unresolved(self, rule: str, i: int, name: str, call_id: object) -> None:
        self.found.add(
            rule,
            f"messages.{i}",
            f"messages.{i}: `{name}` tool use with id `{call_id}` was found without its result block",
        )

    def _orphan(self, rule: str, where: str, block: JSON) -> None:
        self.found.add(
            rule,
            where,
            f"{where}: unexpected `tool_use_id` found in `{block.get('type')}` blocks: {block.get('tool_use_id')}",
        )


def from_code(block: JSON) -> bool:
    """Whether running code has made this call (programmatic calling)."""
    caller = block.get("caller")
    return isinstance(caller, dict) and str(caller.get("type")).startswith("code_execution")
