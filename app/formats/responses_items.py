"""The item types of OpenAI Responses, as tables: which one calls, which one answers, what lies where.

A type that is in no table is new or not for us to read. A call that a program made, and an MCP call that somebody approved, name
another item that they can't be without: they count as one more result of it, so that all rules about pairs hold for them as well.
source: https://developers.openai.com/api/docs/guides/function-calling, github.com/openai/openai-openapi (item schemas).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from app.core.view import Call, Result
from app.formats.base import Part
from app.formats.lenient import json_size, json_text, listed, string
from app.formats.media import document_tokens, image_of, media_name

CALLS: dict[str, tuple[str, str, bool]] = {
    "function_call": ("", "arguments", True),
    "custom_tool_call": ("", "input", True),
    "local_shell_call": ("local_shell", "action", False),
    "shell_call": ("shell", "action", False),
    "apply_patch_call": ("apply_patch", "operation", False),
    "computer_call": ("computer", "action", False),
    "tool_search_call": ("tool_search", "arguments", False),
    "program": ("program", "code", False),
    "mcp_approval_request": ("", "arguments", False),
}
"""type -> (tool, "" where the item names it; where its input lies; may that be cleared)"""
OUTPUTS: dict[str, tuple[str, str, bool]] = {
    "function_call_output": ("", "output", True),
    "custom_tool_call_output": ("", "output", True),
    "local_shell_call_output": ("local_shell", "output", True),
    "shell_call_output": ("shell", "output", True),
    "apply_patch_call_output": ("apply_patch", "output", True),
    "computer_call_output": ("computer", "output", False),  # a screenshot has to stay one (R40)
    "tool_search_output": ("tool_search", "tools", False),
    "program_output": ("program", "result", False),
    "mcp_approval_response": ("", "approve", False),
}
"""type -> (tool; where its content lies; may that be cleared)"""
HOSTED: dict[str, tuple[str, str]] = {
    "web_search_call": ("action", ""),
    "file_search_call": ("queries", "results"),
    "code_interpreter_call": ("code", "outputs"),
    "image_generation_call": ("revised_prompt", ""),
    "mcp_call": ("arguments", "output"),
}
"""Calls that the provider ran itself (R8): type -> (where the call lies, where its result lies)"""
STANDING: dict[str, str] = {"mcp_list_tools": "tools", "additional_tools": "tools", "configuration_update": "text"}
"""Tool lists and settings that hold from their place on (R7, R38): type -> where its content lies"""
COMPACTIONS = frozenset({"compaction", "compaction_summary", "context_compaction", "compaction_trigger"})
"""What the provider's own compaction leaves or asks for (R33, R37)"""

_PAGE = 1_500
"""Tokens of a page of PDF: its text and a picture of it."""


def kind_of(item: Any) -> str:
    """An item's type; a message and a reference may come without one and are known by their shape (R23, R25). "": no idea."""
    if not isinstance(item, dict):
        return ""
    if item.get("type") is not None:
        return string(item["type"])
    if "role" in item:
        return "message"
    return "item_reference" if item.get("id") and set(item) <= {"id", "type"} else ""


def call_of(kind: str, item: Mapping[str, Any]) -> Call:
    """The call that an item of a kind in `CALLS` makes."""
    tool, key, clearable = CALLS[kind]
    given = item.get(key)
    ident = item.get("id") if kind == "mcp_approval_request" else item.get("call_id")
    return Call(
        string(ident), tool or string(item.get("name")), (key,), json_size(given), clearable and isinstance(given, str)
    )


def result_of(kind: str, item: Mapping[str, Any]) -> Result:
    """The result that an item of a kind in `OUTPUTS` brings."""
    tool, key, clearable = OUTPUTS[kind]
    ident = item.get("approval_request_id") if kind == "mcp_approval_response" else item.get("call_id")
    if kind == "local_shell_call_output" and not ident:  # the schema has only `id` (R6)
        ident = item.get("id")
    return Result(string(ident), tool or string(item.get("name")), (key,), json_size(item.get(key)), clearable)


def bonds_of(item: Mapping[str, Any]) -> tuple[Result, ...]:
    """The item that this one can't be without: the program that made the call (R39), the request that was approved for it (R7)."""
    caller = item.get("caller")
    program = caller.get("caller_id") if isinstance(caller, dict) and caller.get("type") == "program" else None
    owner = string(program or item.get("approval_request_id"))
    return (Result(owner, "", (), 0, clearable=False),) if owner else ()


def parts_of(item: Any) -> Iterator[Part]:
    """The item's readable stretches. Encrypted content has none."""
    kind = kind_of(item)
    if kind == "message":
        yield from content_of(item.get("content"), "text")
    elif kind == "reasoning":
        for block in (*listed(item.get("summary")), *listed(item.get("content"))):
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                yield Part("reasoning", block["text"])
    elif kind in CALLS:
        tool, key, _ = CALLS[kind]
        given = item.get("actions") if kind == "computer_call" and item.get("actions") else item.get(key)
        yield Part("call", json_text(given), tool or string(item.get("name")))
    elif kind in OUTPUTS:
        yield from content_of(item.get(OUTPUTS[kind][1]), "result")
    elif kind in HOSTED:
        called, answered = HOSTED[kind]
        yield Part("call", json_text(item.get(called)), string(item.get("name")) or kind.removesuffix("_call"))
        if kind == "image_generation_call":
            yield Part("media", "image", image=image_of(item.get("result")))
        elif item.get(answered) is not None:
            yield Part("result", json_text(item[answered]))
    elif kind in STANDING:
        yield Part("text", json_text(item.get(STANDING[kind])))
    elif kind not in COMPACTIONS and kind != "item_reference":
        yield Part("text", json_text(item))


def content_of(content: Any, kind: Literal["text", "result"]) -> Iterator[Part]:
    """The stretches of a message's content or of an output: a string, or blocks."""
    if content is None:
        return
    for block in content if isinstance(content, list) else (content,):
        yield from _block(block, kind)


def _block(block: Any, kind: Literal["text", "result"]) -> Iterator[Part]:
    if not isinstance(block, dict):
        yield Part(kind, json_text(block))
        return
    shape = string(block.get("type"))
    texts = [block[key] for key in ("text", "refusal", "stdout", "stderr") if isinstance(block.get(key), str)]
    if texts:
        yield from (Part(kind, text) for text in texts)
    elif "image_url" in block or shape in ("input_image", "computer_screenshot"):
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        yield Part("media", media_name(url, "image"), image=image_of(url, string(block.get("detail"))))
    elif shape in ("input_file", "input_audio"):
        data = block.get("file_data")
        yield Part("media", media_name(data, shape.removeprefix("input_")), tokens=document_tokens(data, _PAGE))
    elif "encrypted_content" not in block:
        yield Part(kind, json_text(block))


def canonical_item(item: Any) -> Any:
    """Without status, null and client-side keys; without an id where something else tells the item from others."""
    if not isinstance(item, dict):
        return item
    kind = kind_of(item)
    left_out = {"client_metadata", "internal_chat_message_metadata_passthrough"}
    if kind == "message":
        left_out |= {"id", "type"}
    elif item.get("call_id") or item.get("encrypted_content"):
        left_out.add("id")
    if kind not in ("apply_patch_call_output", "program_output"):  # there it says how the call went
        left_out.add("status")
    same = {key: thing for key, thing in item.items() if key not in left_out and thing is not None}
    for key in ("content", "output"):
        if isinstance(same.get(key), list):
            same[key] = _canonical_blocks(same[key])
    return same


def _canonical_blocks(blocks: list[Any]) -> Any:
    """Without what is only for display or moves along (cache breakpoints); one plain text is the same as a string."""
    passing = ("annotations", "logprobs", "prompt_cache_breakpoint")
    same = [
        {k: v for k, v in b.items() if k not in passing and v is not None} if isinstance(b, dict) else b for b in blocks
    ]
    only = same[0] if len(same) == 1 else None
    plain = isinstance(only, dict) and set(only) == {"type", "text"} and only["type"] in ("input_text", "output_text")
    return only["text"] if plain and only else same


def cleared_shell(output: Any, text: str) -> list[dict[str, Any]]:
    """A shell output keeps its array and what became of each command (R41); the first entry says what happened to the text."""
    entries = [entry for entry in output if isinstance(entry, dict)] if isinstance(output, list) else []
    entries = entries or [{"outcome": {"type": "exit", "exit_code": 0}}]
    return [{**entry, "stdout": "" if at else text, "stderr": ""} for at, entry in enumerate(entries)]
