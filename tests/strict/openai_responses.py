"""What OpenAI's Responses API refuses in the input items of a request.

Items are a flat list: calls and outputs find each other by `call_id`, reasoning and what it led to by neighbourhood and
ids. With a chain (`previous_response_id`, `conversation`) or an `item_reference` a part of the history is not in the body;
rules that would need it then keep silent. Which item came with which reasoning can't be seen in a body that lost the
reasoning; `reasoning_pairs` reads it from the client's own body, to be handed in as `came_with`.
source: https://developers.openai.com/api/docs/guides/reasoning, github.com/openai/openai-openapi, vercel/ai#7099
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import responses_items
from .violation import JSON, NO_QUIRKS, Found, Violation, mentions_json

_ANSWERS = {
    "function_call_output": ("function_call", "local_shell_call"),
    "custom_tool_call_output": ("custom_tool_call",),
    "shell_call_output": ("shell_call",),
    "apply_patch_call_output": ("apply_patch_call",),
    "computer_call_output": ("computer_call",),
    "local_shell_call_output": ("local_shell_call",),
    "tool_search_output": ("tool_search_call",),
    "program_output": ("program",),
}
_CALLS = frozenset(call for calls in _ANSWERS.values() for call in calls)
_NOT_BY_MODEL = frozenset(_ANSWERS) | {
    "mcp_approval_response",
    "compaction_trigger",
    "additional_tools",
    "configuration_update",
}


def violations(
    body: JSON,
    *,
    model: str = "",
    quirks: frozenset[str] = NO_QUIRKS,
    came_with: Mapping[str, str] | None = None,
) -> list[Violation]:
    """What the provider would refuse in a Responses body.

    `came_with`: item id -> id of the reasoning item that it came with, for rule R10; without it R10 is not checked.
    """
    found = Found()
    chained = bool(body.get("previous_response_id") or body.get("conversation"))
    if body.get("previous_response_id") and body.get("conversation"):
        found.add("R28", "", "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.")
    items = body.get("input")
    if _asks_for_json(body) and not mentions_json(items):
        found.add(
            "C29",
            "input",
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
        )
    if isinstance(items, str):
        return found
    if not isinstance(items, list) or not items:
        if not chained and not body.get("prompt"):
            found.add("R32", "input", "One of 'input', 'previous_response_id', 'prompt' or 'conversation' is required.")
        return found
    partial = chained or any(kind_of(item) == "item_reference" for item in items)
    _pairs(items, partial, found)
    _reasoning(items, {} if partial else came_with or {}, found)
    _approvals(items, partial, found)
    responses_items.check(items, body, str(body.get("model") or model), found, quirks)
    return found


def reasoning_pairs(body: JSON) -> dict[str, str]:
    """Item id -> id of the reasoning directly before it, read from a body as its client first sent it."""
    pairs: dict[str, str] = {}
    before: str | None = None
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if kind_of(item) == "reasoning":
            before = item.get("id") or before
        else:
            if before and item.get("id") and _by_model(item):
                pairs[item["id"]] = before
            before = None
    return pairs


def kind_of(item: JSON) -> str:
    """An item's type; a message and a reference are known by their shape when `type` is absent (R23, R25)."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    if "role" in item:
        return "message"
    return "item_reference" if "id" in item else ""


def _asks_for_json(body: JSON) -> bool:
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") == "json_object"


def _by_model(item: JSON) -> bool:
    kind = kind_of(item)
    return item.get("role") == "assistant" if kind == "message" else kind not in _NOT_BY_MODEL


def _pairs(items: list[JSON], partial: bool, found: Found) -> None:
    """R1, R2, R4, R5, R6, R39: one output behind each call. Ids may be used again once their call is answered."""
    waiting: dict[tuple[str, Any], tuple[int, JSON]] = {}
    answered: set[tuple[str, Any]] = set()
    programs: set[Any] = {None}
    late: list[tuple[int, str, tuple[tuple[str, Any], ...]]] = []
    last_user = -1
    for i, item in enumerate(items):
        kind = kind_of(item)
        if kind in _CALLS:
            call_id = item.get("call_id") or item.get("id")
            if kind == "program":
                programs.update((item.get("id"), item.get("call_id")))
            elif not partial and _program(item) not in programs:
                found.add("R39", f"input.{i}", f"No program found for caller_id {_program(item)}.")
            if kind != "tool_search_call" or item.get("execution") == "client":
                waiting[kind, call_id] = (i, item)
        elif kind in _ANSWERS:
            if kind == "tool_search_output" and item.get("execution") != "client":
                continue
            call_id = item.get("call_id") or item.get("id")
            keys = tuple((call, call_id) for call in _ANSWERS[kind])
            key = next((key for key in keys if key in waiting), None)
            if key is None and kind == "local_shell_call_output" and not item.get("call_id"):
                key = next((key for key in waiting if key[0] == "local_shell_call"), None)
            if key is not None:
                call = waiting.pop(key)[1]
                answered.add(key)
                if kind != "program_output" and _program(call) != _program(item):
                    found.add("R39", f"input.{i}", f"caller of output {call_id} differs from the caller of its call")
            elif not answered.isdisjoint(keys):
                found.add("R5", f"input.{i}", f"Duplicate tool output found for call_id {call_id}.")
            elif not partial:
                late.append((i, kind, keys))
        elif kind == "message" and item.get("role") == "user":
            last_user = i
    _report_orphans(waiting, late, last_user, partial, found)


def _report_orphans(
    waiting: dict[tuple[str, Any], tuple[int, JSON]],
    late: list[tuple[int, str, tuple[tuple[str, Any], ...]]],
    last_user: int,
    partial: bool,
    found: Found,
) -> None:
    kinds = {call_id: kind for kind, call_id in waiting}
    for i, kind, keys in late:
        call_id = keys[0][1]
        rule = "R2"
        if any(key in waiting for key in keys):
            rule = "R4"  # the call is there, but it comes after its output
        elif call_id in kinds:
            rule = "R5"  # a call has this id, but is answered by another kind of output
        what = kind.removesuffix("_output").replace("_", " ")
        found.add(rule, f"input.{i}", f"No tool call found for {what} output with call_id {call_id}.")
    if partial:
        return
    for (kind, call_id), (i, _) in waiting.items():
        # A program runs on at the provider while the client answers the calls that it made.
        if kind != "program" or i < last_user:
            found.add("R1", f"input.{i}", f"No tool output found for {kind.replace('_', ' ')} {call_id}.")


def _program(item: JSON) -> object:
    caller = item.get("caller")
    return caller.get("caller_id") if isinstance(caller, dict) and caller.get("type") == "program" else None


def _reasoning(items: list[JSON], came_with: Mapping[str, str], found: Found) -> None:
    """R9 and R10: reasoning with an id leads to the model's next item, and that item does not come without it."""
    pending: dict[str, int] = {}
    for i, item in enumerate(items):
        kind = kind_of(item)
        if kind == "reasoning":
            if item.get("id"):
                pending[item["id"]] = i
            continue
        if pending and not (_by_model(item) or kind == "item_reference"):
            _dangling(pending, found)
            pending = {}
        item_id = item.get("id")
        needed = came_with.get(item_id) if isinstance(item_id, str) else None
        if needed is not None and needed not in pending:
            found.add(
                "R10",
                f"input.{i}",
                f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'.",
            )
        pending = {}
    _dangling(pending, found)


def _dangling(pending: dict[str, int], found: Found) -> None:
    for item_id, i in pending.items():
        found.add(
            "R9",
            f"input.{i}",
            f"Item '{item_id}' of type 'reasoning' was provided without its required following item.",
        )


def _approvals(items: list[JSON], partial: bool, found: Found) -> None:
    """R7: an approval answers a request that is there."""
    if partial:
        return
    requests: set[Any] = set()
    for i, item in enumerate(items):
        kind = item.get("type")
        if kind == "mcp_approval_request":
            requests.add(item.get("id"))
        elif kind == "mcp_approval_response" and item.get("approval_request_id") not in requests:
            found.add("R7", f"input.{i}", f"No approval request found for '{item.get('approval_request_id')}'.")
