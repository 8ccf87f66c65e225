"""What OpenAI's Chat Completions API refuses in a history, and what servers that speak its format refuse besides.

One walk over the messages keeps the calls that still wait for their answers: every other rule looks at one message alone.
Rules of other servers are quirks, off by default: `alternating_roles` (strict chat templates), `mistral_order`,
`mistral_ids`, `deepseek_reasoning`, `refuses_reasoning` (DeepSeek R1, Groq), `json_arguments` (vLLM, SGLang),
`thought_signatures` (Google's compatible endpoint).
source: https://developers.openai.com/api/docs/guides/function-calling, github.com/openai/openai-openapi
"""

from __future__ import annotations

import json
import re
from typing import Any

from . import chat_quirks
from .violation import JSON, NO_QUIRKS, Found, Violation, gpt_version, mentions_json, quoted

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_TEXT = frozenset({"text"})
_PARTS = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "system": _TEXT,
    "developer": _TEXT,
    "tool": _TEXT,
    "function": _TEXT,
}
_BREAKPOINT_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


def violations(body: JSON, *, model: str = "", quirks: frozenset[str] = NO_QUIRKS) -> list[Violation]:
    """What the provider would refuse in a chat body. `model` stands in for a missing `body["model"]` (Azure)."""
    found = Found()
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        found.add("C22", "messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.")
        return found
    _pairs(messages, found)
    for i, message in enumerate(messages):
        _message(i, message, quirks, found)
    _tool_choice(body, found)
    _breakpoints(messages, str(body.get("model") or model), found)
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_object" and not mentions_json(messages):
        found.add(
            "C29",
            "messages",
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        )
    if quirks:
        chat_quirks.check(messages, quirks, found)
    return found


def _pairs(messages: list[JSON], found: Found) -> None:
    """C1 to C5 and C15: calls are answered at once, by tool messages only, each once."""
    waiting: dict[Any, None] = {}
    answered: set[Any] = set()
    caller = 0
    function: str | None = None
    for i, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id in waiting:
                del waiting[call_id]
                answered.add(call_id)
            elif call_id in answered:
                found.add("C5", f"messages.{i}", f"Duplicate value for 'tool_call_id' of {call_id}.")
            else:
                found.add(
                    "C2",
                    f"messages.[{i}].role",
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                )
            continue
        if waiting:
            _unanswered(messages, caller, i, waiting, found)
        if function is not None and (role != "function" or message.get("name") != function):
            found.add("C15", f"messages.{i}", f"function_call '{function}' must be followed by its function message")
        if role == "function" and (function is None or not message.get("name")):
            found.add("C15", f"messages.{i}", "messages with role 'function' must follow a function_call of that name")
        waiting, answered, caller, function = {}, set(), i, None
        if role != "assistant":
            continue
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            waiting = {call.get("id"): None for call in calls}
            if len(waiting) != len(calls):
                found.add("C5", f"messages.{i}.tool_calls", f"Duplicate tool call ids among {quoted(waiting)}")
        legacy = message.get("function_call")
        if isinstance(legacy, dict):
            function = str(legacy.get("name"))
            if calls:
                found.add("C15", f"messages.{i}", "'function_call' and 'tool_calls' may not both be set")
    if waiting:
        _unanswered(messages, caller, len(messages), waiting, found)
    if function is not None:
        found.add("C15", f"messages.{caller}", f"function_call '{function}' must be followed by its function message")


def _unanswered(messages: list[JSON], caller: int, end: int, waiting: dict[Any, None], found: Found) -> None:
    """C1, or C3 if the answers do come, but after a message that may not stand between."""
    late = set()
    for message in messages[end:]:
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            late.add(message.get("tool_call_id"))
    rule = "C3" if late.issuperset(waiting) else "C1"
    found.add(
        rule,
        f"messages.[{end}].role" if end < len(messages) else f"messages.{caller}",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {quoted(waiting)}",
    )


def _message(i: int, message: JSON, quirks: frozenset[str], found: Found) -> None:
    """The rules of one message: C6 to C13, C16, C19."""
    role = message.get("role")
    parts = _PARTS.get(role) if isinstance(role, str) else None
    if parts is None or not isinstance(role, str):
        found.add("C10", f"messages.{i}.role", f"Invalid value: '{role}'.")
        return
    if "mistral_order" in quirks and role == "assistant":
        parts = parts | {"thinking"}
    content = message.get("content")
    if isinstance(content, list):
        _parts(i, role, content, parts, found)
    elif content is None:
        if role == "assistant":
            carried = ("tool_calls", "function_call", "audio", "refusal")
            if not any(message.get(key) for key in carried):
                found.add("C9", f"messages.{i}.content", "Invalid value for 'content': expected a string, got null.")
        elif role != "function" or "content" not in message:
            found.add("C10", f"messages.{i}.content", "Invalid value for 'content': expected a string, got null.")
    elif not isinstance(content, str):
        found.add("C11", f"messages.{i}.content", "Invalid type for 'content': expected a string or an array.")
    calls = message.get("tool_calls")
    if calls is not None:
        _calls(i, calls, quirks, found)
    name = message.get("name")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        found.add(
            "C19",
            f"messages.{i}.name",
            f"Invalid 'messages[{i}].name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'.",
        )


def _parts(i: int, role: str, content: list[Any], allowed: frozenset[str], found: Found) -> None:
    if not content:
        found.add("C11", f"messages.{i}.content", f"Invalid 'messages[{i}].content': empty array.")
    refusals = 0
    for j, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            image = kind == "image_url"
            found.add(
                "C12" if image else "C11",
                f"messages.{i}.content.{j}",
                f"Invalid 'messages[{i}]'. Image URLs are only allowed for messages with role 'user', but this message "
                f"with role '{role}' contains an image URL."
                if image
                else f"Invalid value: '{kind}'. Supported values are: {quoted(sorted(allowed))}.",
            )
        elif kind == "refusal":
            refusals += 1
        elif kind == "text" and not isinstance(part.get("text"), str):
            found.add("C11", f"messages.{i}.content.{j}.text", "Invalid type for 'text': expected a string.")
    if refusals and len(content) > 1:
        found.add("C13", f"messages.{i}.content", "content may hold text parts or exactly one refusal part")


def _calls(i: int, calls: object, quirks: frozenset[str], found: Found) -> None:
    if not isinstance(calls, list) or not calls:
        found.add(
            "C6",
            f"messages.{i}.tool_calls",
            f"Invalid 'messages[{i}].tool_calls': empty array. Expected an array with minimum length 1.",
        )
        return
    for j, call in enumerate(calls):
        where = f"messages.{i}.tool_calls.{j}"
        call_id = call.get("id")
        if isinstance(call_id, str) and len(call_id) > 40:
            found.add(
                "C7",
                f"{where}.id",
                f"Invalid 'messages[{i}].tool_calls[{j}].id': string too long. Expected a string with maximum length 40, "
                f"but got a string with length {len(call_id)} instead.",
            )
        if call.get("type") == "custom":
            custom = call.get("custom")
            if not isinstance(custom, dict) or not isinstance(custom.get("input"), str):
                found.add("C16", where, "Missing required parameter: 'custom.input'.")
            continue
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if not isinstance(arguments, str):
            found.add("C8", f"{where}.function.arguments", "Invalid type for 'arguments': expected a string.")
        elif "json_arguments" in quirks and not _is_object(arguments):
            found.add("Q14", f"{where}.function.arguments", "function.arguments is not the JSON text of an object")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _tool_choice(body: JSON, found: Found) -> None:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return
    kind = choice.get("type")
    forced = choice.get(kind) if kind in ("function", "custom") else None
    if not isinstance(forced, dict):
        return
    tools = body.get("tools")
    names = {tool.get(kind, {}).get("name") for tool in tools} if isinstance(tools, list) else set()
    if forced.get("name") not in names:
        found.add("C24", "tool_choice", f"Tool choice '{forced.get('name')}' not found in 'tools' parameter.")


def _breakpoints(messages: list[JSON], model: str, found: Found) -> None:
    version = gpt_version(model)
    for i, message in enumerate(messages):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("prompt_cache_breakpoint") is not None:
                too_old = version is not None and version < (5, 6)
                if too_old or part.get("type") not in _BREAKPOINT_PARTS:
                    found.add(
                        "C26", f"messages.{i}.content.{j}", "prompt_cache_breakpoint is not supported on this part"
                    )
