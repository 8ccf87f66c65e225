"""OpenAI Responses: a flat list of items, each with a type of its own.

Calls and outputs find each other by `call_id`. What the provider checks besides is neighbourhood: a reasoning item wants the item that it
led to (R9), and that item, when it carries its id, wants the reasoning back (R10). So a reasoning item is `alone`, and a turn with
reasoning is cut only before one (R11). Items whose content is elsewhere, encrypted or unknown are pinned, and so is what stands beside
them (R23, R42, X5). A body that asks the provider to compact by itself (`context_management`, R36) is compacted here all the same if it
grows that far: the provider acts at its own threshold, on what it gets.
Rules: R1 to R45 in the tests; source: https://developers.openai.com/api/docs/guides/conversation-state, vercel/ai#7099.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from app.core.jsonspan import FRONT, REMOVED, Edit, dump, value
from app.core.notes import is_note
from app.core.view import Clearing, Facts, Role
from app.errors import NotCompactable
from app.formats import wording
from app.formats.base import Answer, CountCall, Format, Part, Target, Usage
from app.formats.lenient import figure, json_text, listed, string
from app.formats.responses_items import (
    CALLS,
    COMPACTIONS,
    HOSTED,
    OUTPUTS,
    STANDING,
    bonds_of,
    call_of,
    canonical_item,
    cleared_shell,
    content_of,
    kind_of,
    parts_of,
    result_of,
)  # fmt: skip

_PATH = re.compile(r"(?:^|/)responses/?$")
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SEARCHES = frozenset({"tool_search_call", "tool_search_output"})
"""They load the tools that later calls name, and come with reasoning: neither may they leave nor outlive it (R38, R10)."""
_NAMELESS = frozenset({"message", "function_call", "custom_tool_call", "shell_call", "apply_patch_call"})
"""What the model may have made and may come back without an `id`; source: github.com/openai/openai-openapi (input item schemas)."""
_KEPT = Facts("assistant", reasoning=True, alone=True, pinned=True)
"""What we can't see into. `reasoning` and `alone` forbid every cut at its edges but the one before the next request."""
_CODEX_PROMPTS = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "You have exceeded the maximum number of tokens, please stop",
)
"""How Codex' own summary requests begin; source: openai/codex codex-rs/core/templates/compact/prompt.md, in all its versions."""


_INSTRUCTIONS = "You write summaries of conversations."
"""Codex' own upstream (ChatGPT's) refuses a request without instructions."""
_REASONS = {"max_output_tokens": "truncated", "content_filter": "refused"}


class OpenAIResponses(Format):
    name: ClassVar[str] = "openai-responses"
    history: ClassVar[str] = "input"
    fields: ClassVar[tuple[str, ...]] = (
        "model", "stream", "instructions", "tools", "text", "prompt_cache_key", "previous_response_id", "conversation", "client_metadata",
    )  # fmt: skip
    counted: ClassVar[tuple[str, ...]] = ("instructions", "tools", "text")
    auth_header: ClassVar[str] = "authorization"
    terminal: ClassVar[tuple[bytes, ...]] = (
        b"response.completed",
        b"response.incomplete",
        b"response.failed",
        b'"total_tokens"',
    )
    # A comment, without a blank line behind it: some clients take that for an event. source: theopenco/llmgateway#2334
    keepalive: ClassVar[bytes] = b": compacting\n"

    def target(self, path: str) -> Target | None:
        return Target(self.name) if _PATH.search(path) else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        if fields.get("previous_response_id") or fields.get("conversation"):
            return "server_history"
        if kind_of(last) == "compaction_trigger" or _codex_request(fields.get("client_metadata")) == "compaction":
            return "client_compaction"
        if kind_of(last) == "message" and last.get("role") == "user":
            text = _text(last.get("content"))
            if text.startswith(_CODEX_PROMPTS) or wording.asks_for_summary(string(fields.get("instructions")), text):
                return "client_compaction"
        return ""

    def session_hint(self, fields: Mapping[str, Any]) -> str:
        return string(fields.get("prompt_cache_key"))

    # Reading an item

    def facts(self, item: Any) -> Facts:
        kind = kind_of(item)
        if kind == "message":
            return self._message(item)
        if kind == "reasoning":
            return Facts("assistant", reasoning=True, alone=True)
        if kind in CALLS:
            return Facts("assistant", calls=(call_of(kind, item),), results=bonds_of(item), pinned=kind in _SEARCHES)
        if kind in OUTPUTS:
            return Facts("tool", results=(result_of(kind, item),), pinned=kind in _SEARCHES)
        if kind in HOSTED:
            return Facts("assistant", results=bonds_of(item))
        if kind in STANDING:
            return Facts("system", stays=True)
        if kind in COMPACTIONS:
            return Facts("assistant", pinned=True)
        return _KEPT

    def _message(self, item: Mapping[str, Any]) -> Facts:
        role = _ROLES.get(string(item.get("role")))
        if role is None:
            return _KEPT
        if role != "user":
            return Facts(role, stays=role == "system")
        content = item.get("content")
        alone = isinstance(content, str) or (isinstance(content, list) and len(content) == 1)
        return Facts("user", opens_turn=True, note=alone and is_note(_text(content)))

    def parts(self, item: Any) -> Iterator[Part]:
        return parts_of(item)

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        for key in ("instructions", "tools", "text"):
            if fields.get(key):
                yield Part("text", json_text(fields[key]))

    def canonical(self, item: Any) -> Any:
        return canonical_item(item)

    # Writing

    def clear(self, item: Any, clearings: Sequence[Clearing]) -> list[Edit]:
        if kind_of(item) != "shell_call_output":
            return super().clear(item, clearings)
        return [(("output",), dump(cleared_shell(item.get("output"), clearing.text))) for clearing in clearings]

    def lead(self, item: Any, text: str) -> list[Edit]:
        content = item.get("content")
        block = {"type": "input_text", "text": text}
        if isinstance(content, list):
            return [(("content", FRONT), dump(block))]
        return [(("content",), dump([block, {"type": "input_text", "text": string(content)}]))]

    def without_reasoning(self, item: Any) -> list[Edit]:
        """Reasoning is an item of its own here. What came with it is tied to it by its own `id` (R10); that may go (R12), unless the schema
        insists on one."""
        if not isinstance(item, dict) or "id" not in item:
            return []
        if kind_of(item) not in _NAMELESS:
            raise NotCompactable("bound_to_reasoning")
        return [(("id",), REMOVED)]

    def note(self, text: str) -> bytes:
        """The easy form, without an id: ids are the provider's to give (R20)."""
        return dump({"role": "user", "content": text})

    def obliges(self, fields: Mapping[str, Any]) -> str:
        """C29; what `instructions` say does not count."""
        text = fields.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
        return "JSON" if isinstance(wanted, dict) and wanted.get("type") == "json_object" else ""

    # Answers

    def usage(self, event: Any) -> Usage | None:
        response = event.get("response", event) if isinstance(event, dict) else None
        told = response.get("usage") if isinstance(response, dict) else None
        if not isinstance(told, dict):
            return None
        details = told.get("input_tokens_details")
        details = details if isinstance(details, dict) else {}
        return Usage(
            figure(told.get("input_tokens")), figure(told.get("output_tokens")),
            figure(details.get("cached_tokens")), figure(details.get("cache_write_tokens")),
        )  # fmt: skip

    def overflow(self, status: int, body: bytes) -> int | None:
        """E2, which a stream says in a 200, as an `error` or `response.failed` event; and the words of servers that speak this format."""
        if status != 200:
            return wording.overflow(status, body)
        try:
            event = value(body)
        except NotCompactable:
            return None
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "error":
            return wording.overflow(400, dump({**event, "type": ""}))
        response = event.get("response") if kind == "response.failed" else None
        return wording.overflow(400, dump(response.get("error"))) if isinstance(response, dict) else None

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        """`stream_only` is Codex' upstream for subscribers: no answer but a stream, no limit, and a list for input."""
        said = [{"role": "user", "content": text}]
        body: dict[str, Any] = {"model": model, "instructions": _INSTRUCTIONS, "input": said, "store": False}
        body |= {"stream": True} if "stream_only" in quirks else {"max_output_tokens": max_tokens}
        return (path or "/v1/responses").encode("latin-1"), dump(body)

    def answer(self, body: Any) -> Answer:
        response, items = _answered(body)
        kinds = [kind_of(item) for item in items]
        blocks = [block for item in items if kind_of(item) == "message" for block in listed(item.get("content"))]
        text = "\n".join(string(block.get("text")) for block in blocks if isinstance(block, dict))
        details, status = response.get("incomplete_details"), response.get("status")
        if not CALLS.keys().isdisjoint(kinds):
            problem = "tool_call"
        elif any(kind_of(block) == "refusal" for block in blocks):
            problem = "refused"
        elif status in ("incomplete", "failed", "cancelled"):
            problem = _REASONS.get(string(details.get("reason")), "failed") if isinstance(details, dict) else "failed"
        else:
            problem = "reasoning_only" if "reasoning" in kinds and not text.strip() else ""
        return Answer(text, problem, self.usage(response) or Usage())

    def counting(self, model: str, path: str) -> CountCall | None:
        keys = (
            "model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "truncation", "parallel_tool_calls",
        )  # fmt: skip
        return CountCall(f"{path.rstrip('/')}/input_tokens".encode("latin-1"), "input_tokens", keys)

    def stream_error(self, status: int, code: str, message: str) -> bytes:
        """An `error` event; source: https://developers.openai.com/api/reference/resources/responses/streaming-events."""
        event = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
        return b"event: error\ndata: " + dump(event) + b"\n\n"


def _answered(body: Any) -> tuple[Mapping[str, Any], list[Any]]:
    """The response and its output items; of a stream the last response told of, and the items as they were done."""
    if isinstance(body, list):
        events = [event for event in body if isinstance(event, dict)]
        responses = [event["response"] for event in events if isinstance(event.get("response"), dict)]
        last: Mapping[str, Any] = responses[-1] if responses else {}
        done = [event.get("item") for event in events if event.get("type") == "response.output_item.done"]
        return last, done or listed(last.get("output"))
    return (body, listed(body.get("output"))) if isinstance(body, dict) else ({}, [])


def _codex_request(metadata: Any) -> str:
    """What Codex says that this request is for: "turn", "compaction", … It sends a JSON text among its client metadata."""
    told = metadata.get("x-codex-turn-metadata") if isinstance(metadata, dict) else None
    try:
        turn = value(told.encode()) if isinstance(told, str) else None
    except (NotCompactable, UnicodeEncodeError):
        return ""
    return string(turn.get("request_kind")) if isinstance(turn, dict) else ""


def _text(content: Any) -> str:
    return "\n".join(part.text for part in content_of(content, "text") if part.kind == "text")
