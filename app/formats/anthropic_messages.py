"""Anthropic Messages.

An item is a message, and a message is a list of blocks: calls in the assistant's, their results at the head of the one user message
that follows. Nothing is ever written into it but a client tool's result, its call's input, and text; a block that we don't know, or
that counts where it stands, pins its message.
Rules: A1 to A71 in the tests; source: https://platform.claude.com/docs/en/api/messages/create and the pages named there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from app.core.jsonspan import FRONT, REMOVED, Edit, before, dump
from app.core.notes import BARE, is_note
from app.core.view import Clearing, Facts
from app.formats import wording
from app.formats.anthropic_blocks import (
    KNOWN,
    THINKING,
    Block,
    assistant_pairs,
    blocks_of,
    canonical,
    cites_of,
    kind_of,
    readable,
    results_of,
    sources_of,
)
from app.formats.base import Answer, Binding, CountCall, Format, Part, Target, Usage
from app.formats.lenient import figure, listed, string

COMPACT_EDIT, COMPACT_BETA = "compact_20260112", "compact-2026-01-12"
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_BOUND = re.compile(rb"bound to a different conversation|different conversation prefix", re.IGNORECASE)
_PATH = re.compile(r"(?:^|/v1)/messages/?$")
_INTRODUCTION = 1_000
"""Characters: longer system blocks are the client's own instructions and no business of a summariser's."""
_CLEARED = ("cleared_input_tokens", "cleared_thinking_turns", "cleared_tool_uses")
_STOPS = {
    "refusal": "refused", "max_tokens": "truncated", "model_context_window_exceeded": "truncated", "tool_use": "tool_call",
    "pause_turn": "tool_call",
}  # fmt: skip
_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip


class AnthropicMessages(Format):
    name: ClassVar[str] = "anthropic-messages"
    history: ClassVar[str] = "messages"
    fields: ClassVar[tuple[str, ...]] = (
        "model", "stream", "system", "tools", "output_config", "metadata", "thread", "previous_message_id", "compaction",
        "fallback_credit_token", "thinking", "context_management",
    )  # fmt: skip
    counted: ClassVar[tuple[str, ...]] = ("system", "tools", "output_config")
    auth_header: ClassVar[str] = "x-api-key"
    terminal: ClassVar[tuple[bytes, ...]] = (b"message_stop",)
    keepalive: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'

    def target(self, path: str) -> Target | None:
        return Target(self.name) if _PATH.search(path) else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        # The provider's own compaction in `context_management.edits` (A61) is no reason: it acts on what is forwarded.
        if fields.get("thread") or fields.get("previous_message_id"):
            return "server_history"
        if fields.get("fallback_credit_token"):
            return "must_not_change"  # A38
        if fields.get("compaction"):
            return "client_compaction"
        if isinstance(last, dict) and last.get("role") == "user":
            texts = (string(block.get("text")) for block in blocks_of(last.get("content")) or ())
            if any(wording.asks_for_summary("", text) for text in texts):
                return "client_compaction"
        return ""

    def session_hint(self, fields: Mapping[str, Any]) -> str:
        metadata = fields.get("metadata")
        return string(metadata.get("user_id")) if isinstance(metadata, dict) else ""

    # Reading an item

    def facts(self, item: Any) -> Facts:
        role = item.get("role") if isinstance(item, dict) else None
        blocks = blocks_of(item.get("content")) if isinstance(item, dict) else None
        if role == "system":
            return _system_facts(item, blocks)
        if role not in ("user", "assistant") or blocks is None:
            return Facts("assistant" if role == "assistant" else "user", pinned=True)
        kinds = [kind_of(block) for block in blocks]
        pinned = not all(kind in KNOWN or kind.endswith("_tool_result") for kind in kinds)
        if role == "assistant":
            calls, results = assistant_pairs(blocks)
            thinks = not THINKING.isdisjoint(kinds)
            return Facts(
                "assistant", calls, results, reasoning=thinks, late=thinks and kinds[0] not in THINKING, pinned=pinned,
                restarts=any(kind_of(block) == "compaction" and block.get("content") for block in blocks),
                sources=tuple(sources_of(blocks)), cites=tuple(cites_of(blocks)),
            )  # fmt: skip
        results, sources = results_of(blocks), tuple(sources_of(blocks))
        note = len(blocks) == 1 and is_note(string(blocks[0].get("text")))
        return Facts(
            "user", results=results, opens_turn=bool(blocks) and not results, pinned=pinned, note=note, sources=sources
        )

    def parts(self, item: Any) -> Iterator[Part]:
        for block in (blocks_of(item.get("content")) if isinstance(item, dict) else None) or ():
            kind = kind_of(block)
            if kind in THINKING:
                yield Part("reasoning", string(block.get("thinking")))
            elif kind.endswith("tool_use"):
                yield Part("call", dump(block.get("input", {})).decode(), string(block.get("name")))
            elif kind.endswith("tool_result"):
                yield from readable(block.get("content") or "", "result")
            else:
                yield from readable(block, "text")

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        yield from readable(fields.get("system"), "text")
        config = fields.get("output_config")
        for given in (fields.get("tools"), config.get("format") if isinstance(config, dict) else None):
            if given:
                yield Part("text", dump(given).decode())

    def canonical(self, item: Any) -> Any:
        return {**item, "content": canonical(item.get("content"))} if isinstance(item, dict) else item

    # Writing

    def clear(self, item: Any, clearings: Sequence[Clearing]) -> list[Edit]:
        facts = self.facts(item)
        return [
            (facts.calls[c.ordinal].path, b"{}") if c.inputs else (facts.results[c.ordinal].path, dump(c.text))
            for c in clearings
        ]

    def lead(self, item: Any, text: str) -> list[Edit]:
        content = item.get("content")
        if not isinstance(content, list):
            return [(("content",), dump(f"{text}\n\n{string(content)}"))]
        block = {"type": "text", "text": text}
        # Results come first in their message (A3).
        at = next((at for at, own in enumerate(content) if kind_of(own) != "tool_result"), len(content))
        if at < len(content) and kind_of(content[at]) == "text":
            return [(("content", at, "text"), dump(f"{text}\n\n{string(content[at].get('text'))}"))]
        return [(("content", before(at)), dump(block))]

    def without_reasoning(self, item: Any) -> list[Edit]:
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        gone = [at for at, block in enumerate(blocks) if kind_of(block) in ("thinking", "redacted_thinking")]
        # An assistant message may not end up empty (A26): then it keeps one line.
        edits: list[Edit] = [(("content", at), REMOVED) for at in gone]
        if gone and len(gone) == len(blocks):
            edits.append((("content", FRONT), dump({"type": "text", "text": BARE})))
        return edits

    def without_calls(self, item: Any) -> list[Edit] | None:
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        return [(("content", at), REMOVED) for at, block in enumerate(blocks) if kind_of(block) == "tool_use"]

    def binding(self, fields: Mapping[str, Any]) -> Binding:
        """AB1 to AB4. The field is refused without its beta header, so both go together."""
        thinking = fields.get("thinking")
        if not isinstance(thinking, dict) or thinking.get("type") not in ("enabled", "adaptive"):
            return Binding("impossible")
        bound = thinking.get("block_binding")
        chosen = bound.get("prefix_mismatch_behavior") if isinstance(bound, dict) else None
        if chosen == "error":
            return Binding("forbidden")
        if chosen is not None:
            return Binding("allowed")
        key = "prefix_mismatch_behavior"
        if isinstance(bound, dict):
            edit: Edit = (("thinking", "block_binding", key), dump("drop_block"))
        else:
            edit = (("thinking", "block_binding"), dump({key: "drop_block"}))
        return Binding("ask", (edit,), BINDING_BETA)

    def note(self, text: str) -> bytes:
        return dump({"role": "user", "content": text})

    # Answers

    def usage(self, event: Any) -> Usage | None:
        if not isinstance(event, dict):
            return None
        message = event.get("message")
        told = message.get("usage") if isinstance(message, dict) else event.get("usage")
        if not isinstance(told, dict):
            return None
        prompt = _prompt_usage(told)
        read, write = figure(prompt.get("cache_read_input_tokens")), figure(prompt.get("cache_creation_input_tokens"))
        edits = _applied_edits(event.get("context_management"))
        return Usage(
            figure(prompt.get("input_tokens")) + read + write, figure(told.get("output_tokens")), read, write, edits
        )

    def merge(self, earlier: Usage, later: Usage) -> Usage:
        prompt = later if later.input > earlier.input else earlier
        edits = later.edits or earlier.edits
        return Usage(prompt.input, later.output or earlier.output, prompt.cache_read, prompt.cache_write, edits)

    def overflow(self, status: int, body: bytes) -> int | None:
        return None if status == 413 else wording.overflow(status, body)  # 413 counts bytes (E6), not tokens

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        """Nothing of `thinking` and sampling: what a model takes of it differs (A36). Subscription tokens are checked against the short
        blocks that open the client's system prompt (A65)."""
        body: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
        given = fields.get("system")
        opening = [*takewhile(_introduces, given[:2])] if isinstance(given, list) else []
        if opening:
            body["system"] = opening
        body["messages"] = [{"role": "user", "content": text}]
        return (path or "/v1/messages").encode("latin-1"), dump(body)

    def answer(self, body: Any) -> Answer:
        told = body if isinstance(body, dict) else {}
        blocks = blocks_of(told.get("content")) or []
        kinds = {kind_of(block) for block in blocks}
        text = "\n".join(string(block.get("text")) for block in blocks if kind_of(block) == "text")
        problem = "tool_call" if "tool_use" in kinds else _STOPS.get(string(told.get("stop_reason")), "")
        if not problem and not text.strip() and not THINKING.isdisjoint(kinds):
            problem = "reasoning_only"
        return Answer(text, problem, self.usage(told) or Usage())

    def refused(self, fields: Mapping[str, Any], quirks: Collection[str]) -> Binding | None:
        """Server-side compaction on a model that answers it with a 400; the other edits stay."""
        managed = fields.get("context_management")
        edits = managed.get("edits") if isinstance(managed, dict) else None
        if not isinstance(edits, list) or "supports_server_compaction" in quirks:
            return None
        gone = [at for at, edit in enumerate(edits) if kind_of(edit) == COMPACT_EDIT]
        if not gone:
            return None
        return Binding("ask", tuple((("context_management", "edits", at), REMOVED) for at in gone), COMPACT_BETA)

    def counting(self, model: str, path: str) -> CountCall | None:
        keys = (
            "model", "messages", "system", "tools", "tool_choice", "thinking", "context_management", "mcp_servers", "output_config",
        )  # fmt: skip
        return CountCall(f"{path.rstrip('/')}/count_tokens".encode("latin-1"), "input_tokens", keys)

    def lesson(self, status: int, body: bytes) -> str:
        return "binds_thinking" if status == 400 and _BOUND.search(body) else wording.lesson(status, body)

    def error(self, status: int, code: str, message: str) -> bytes:
        kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
        return dump({"type": "error", "error": {"type": kind, "message": message, "code": code}})

    def stream_error(self, status: int, code: str, message: str) -> bytes:
        """source: https://platform.claude.com/docs/en/build-with-claude/streaming#error-events"""
        return b"event: error\ndata: " + self.error(status, code, message) + b"\n\n"


def _system_facts(item: Mapping[str, Any], blocks: list[Block] | None) -> Facts:
    """A system message in mid-history has few legal places (A19), so it leaves with its neighbours and its text is carried (A21).

    source: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages, …/effort-per-message
    """
    configured = bool(item.get("output_config"))
    if configured and not item.get("content"):
        return Facts("system", stays=True)  # an effort alone may stand anywhere, and holds until the next one
    if configured or not blocks or any(kind_of(block) != "text" for block in blocks):
        return Facts("system", pinned=True)  # tool_addition, tool_removal (A22)
    # With `clear_at` it was said for the turn before it only: behind another user message the model does not see it.
    return Facts("system", carried=item.get("clear_at") != "next_user_message")


def _introduces(block: Any) -> bool:
    return isinstance(block, dict) and kind_of(block) == "text" and len(string(block.get("text"))) <= _INTRODUCTION


def _prompt_usage(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures of the prompt as it was sent. With server tools the totals add up every pass over it (U8, U9), so only the
    first pass will do; where that is not told, or was a compaction's, nothing is."""
    passes = told.get("iterations")
    if isinstance(passes, list) and passes and isinstance(passes[0], dict):
        return passes[0] if passes[0].get("type", "message") == "message" else {}
    used = told.get("server_tool_use")
    return {} if isinstance(used, dict) and any(figure(count) for count in used.values()) else told


def _applied_edits(managed: Any) -> tuple[tuple[str, int], ...]:
    """What context editing cleared, all edits together; source: https://platform.claude.com/docs/en/build-with-claude/context-editing."""
    applied = listed(managed.get("applied_edits")) if isinstance(managed, dict) else []
    totals = ((name, sum(figure(edit.get(name)) for edit in applied if isinstance(edit, dict))) for name in _CLEARED)
    return tuple((name, total) for name, total in totals if total)
