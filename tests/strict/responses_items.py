"""The rules that one Responses item can break alone: ids, required fields, part kinds, the shape of outputs.

source: github.com/openai/openai-openapi (item schemas), can1357/oh-my-pi#284, Wei-Shaw/sub2api#3981, github/copilot-cli#3560
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .violation import JSON, Found, gpt_version

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "file_search_call": "fs",
}
_TEXT = str
_LIST = list
_REQUIRED: dict[str, dict[str, type | None]] = {
    "function_call": {"call_id": _TEXT, "name": _TEXT, "arguments": _TEXT},
    "custom_tool_call": {"call_id": _TEXT, "name": _TEXT, "input": _TEXT},
    "shell_call": {"call_id": _TEXT, "action": dict},
    "apply_patch_call": {"call_id": _TEXT, "operation": dict, "status": _TEXT},
    "computer_call": {"call_id": _TEXT, "pending_safety_checks": _LIST},
    "code_interpreter_call": {"container_id": _TEXT, "outputs": None},
    "file_search_call": {"queries": _LIST},
    "image_generation_call": {"result": None},
    "program": {"call_id": _TEXT, "code": _TEXT, "fingerprint": _TEXT},
    "mcp_call": {"name": _TEXT, "arguments": _TEXT, "server_label": _TEXT},
}
"""Fields that R24 wants on a kept item, with their type; None: the key must be there, null is allowed."""
_ID_CHECKED = frozenset({"shell_call", "apply_patch_call", "computer_call"})
_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_OUTPUT_PARTS = frozenset({"output_text", "refusal"})
_RESULT_PARTS = frozenset({"input_text", "input_image", "input_file"})


def check(items: list[JSON], body: JSON, model: str, found: Found, quirks: frozenset[str]) -> None:
    """R13 to R16, R18 to R24, R26, R33, R37, R40, R41, R45 over all items; Q9 for gateways of DeepSeek's kind."""
    stored = body.get("store") is not False
    version = gpt_version(model)
    breakpoints = version is None or version >= (5, 6)
    open_reasoning = "deepseek_reasoning" in quirks
    seen: set[str] = set()
    for i, item in enumerate(items):
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        item_id = item.get("id")
        if isinstance(item_id, str):
            _id(i, item_id, kind, seen, found)
        if kind == "message":
            _message(i, item, breakpoints, found)
        elif kind == "reasoning":
            _reasoning(i, item, stored, open_reasoning, found)
        elif kind == "item_reference":
            if not stored:
                found.add("R23", f"input.{i}", _not_stored(item_id))
        elif kind == "compaction":
            if not isinstance(item.get("encrypted_content"), str) or not item["encrypted_content"]:
                found.add("R33", f"input.{i}", f"Missing required parameter: 'input[{i}].encrypted_content'.")
        elif kind == "compaction_trigger":
            if i < len(items) - 1:
                found.add("R37", f"input.{i}", "compaction_trigger must be the final input item.")
        elif kind in _OUTPUTS:
            _output(i, kind, item, breakpoints, found)
        else:
            _call(i, kind, item, found)
            if open_reasoning and kind == "function_call" and (i == 0 or items[i - 1].get("type") != "reasoning"):
                found.add(
                    "Q9", f"input.{i}", "The reasoning_content in the thinking mode must be passed back to the API."
                )


def _id(i: int, item_id: str, kind: str, seen: set[str], found: Found) -> None:
    if item_id in seen:
        found.add(
            "R21",
            f"input.{i}.id",
            f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
        )
    seen.add(item_id)
    if len(item_id) > 64:
        found.add(
            "R19",
            f"input.{i}.id",
            f"Invalid 'input[{i}].id': string too long. Expected a string with maximum length 64, but got a string with "
            f"length {len(item_id)} instead.",
        )
    prefix = _PREFIXES.get(kind)
    if prefix is not None and not item_id.startswith(prefix):
        found.add(
            "R20",
            f"input.{i}.id",
            f"Invalid 'input[{i}].id': '{item_id}'. Expected an ID that begins with '{prefix}'.",
        )


def _not_stored(item_id: object) -> str:
    return (
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with `store` "
        "set to true, or remove this item from your input."
    )


def _message(i: int, item: JSON, breakpoints: bool, found: Found) -> None:
    role, content = item.get("role"), item.get("content")
    if role != "assistant" and item.get("phase") is not None:
        found.add("R18", f"input.{i}.phase", f"Unknown parameter: 'input[{i}].phase'.")
    if isinstance(content, list):
        _parts(f"input.{i}.content", content, _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS, "R26", found)
        _breakpoints(f"input.{i}.content", content, breakpoints, found)
    elif not isinstance(content, str):
        found.add("R24", f"input.{i}.content", f"Missing required parameter: 'input[{i}].content'.")


def _parts(where: str, parts: list[Any], allowed: frozenset[str], rule: str, found: Found) -> None:
    for j, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            found.add(
                rule, f"{where}.{j}", f"Invalid value: '{kind}'. Supported values are: {', '.join(sorted(allowed))}."
            )


def _breakpoints(where: str, parts: list[Any], supported: bool, found: Found) -> None:
    for j, part in enumerate(parts):
        marked = isinstance(part, dict) and part.get("prompt_cache_breakpoint") is not None
        if marked and not (supported and part.get("type") in _RESULT_PARTS):
            found.add("R45", f"{where}.{j}", "prompt_cache_breakpoint is not supported on this part")


def _reasoning(i: int, item: JSON, stored: bool, open_reasoning: bool, found: Found) -> None:
    encrypted = item.get("encrypted_content")
    if not isinstance(item.get("summary"), list):
        found.add("R15", f"input.{i}", f"Missing required parameter: 'input[{i}].summary'.")
    if open_reasoning:
        if not item.get("content"):
            found.add("Q9", f"input.{i}.content", "The reasoning_content in the thinking mode must be passed back.")
    elif item.get("content"):
        found.add(
            "R16",
            f"input.{i}.content",
            f"Invalid 'input[{i}].content': array too long. Expected an array with maximum length 0, but got an array with "
            f"length {len(item['content'])} instead.",
        )
    if encrypted is not None and (not isinstance(encrypted, str) or not encrypted):
        found.add("R13", f"input.{i}", "The encrypted content could not be verified.")
    if not stored and item.get("id") and not encrypted:
        found.add("R14", f"input.{i}", _not_stored(item["id"]))


def _call(i: int, kind: str, item: JSON, found: Found) -> None:
    for key, kind_of_value in _REQUIRED.get(kind, {}).items():
        value = item.get(key)
        if key not in item if kind_of_value is None else not isinstance(value, kind_of_value):
            found.add("R24", f"input.{i}.{key}", f"Missing required parameter: 'input[{i}].{key}'.")
    if kind in _ID_CHECKED:
        _call_id(i, item, found)


def _call_id(i: int, item: JSON, found: Found) -> None:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and not 1 <= len(call_id) <= 64:
        found.add("R22", f"input.{i}.call_id", f"Invalid 'input[{i}].call_id': expected 1 to 64 characters.")


def _output(i: int, kind: str, item: JSON, breakpoints: bool, found: Found) -> None:
    if kind != "local_shell_call_output":
        _call_id(i, item, found)
    rule, right = _OUTPUTS[kind]
    output = item.get("output")
    if not right(item):
        found.add(rule, f"input.{i}.output", f"Invalid value for 'input[{i}].output'.")
    elif isinstance(output, list) and kind in ("function_call_output", "custom_tool_call_output"):
        _parts(f"input.{i}.output", output, _RESULT_PARTS, "R41", found)
        _breakpoints(f"input.{i}.output", output, breakpoints, found)


def _text_or_parts(item: JSON) -> bool:
    return isinstance(item.get("output"), str | list)


def _screenshot(item: JSON) -> bool:
    output = item.get("output")
    return (
        isinstance(output, dict)
        and output.get("type") == "computer_screenshot"
        and bool(output.get("image_url") or output.get("file_id"))
    )


def _shell(item: JSON) -> bool:
    output = item.get("output")
    return isinstance(output, list) and all(isinstance(part, dict) and "outcome" in part for part in output)


def _patch(item: JSON) -> bool:
    return isinstance(item.get("status"), str) and isinstance(item.get("output"), str | None)


_OUTPUTS: dict[str, tuple[str, Callable[[JSON], bool]]] = {
    "function_call_output": ("R41", _text_or_parts),
    "custom_tool_call_output": ("R41", _text_or_parts),
    "local_shell_call_output": ("R41", lambda item: isinstance(item.get("output"), str)),
    "shell_call_output": ("R41", _shell),
    "apply_patch_call_output": ("R41", _patch),
    "computer_call_output": ("R40", _screenshot),
}
