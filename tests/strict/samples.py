"""Small builders for bodies of the four formats, so that a test shows only what it is about."""

from __future__ import annotations

from typing import Any

from . import VIOLATIONS

JSON = dict[str, Any]


def rules(form: str, body: JSON, **options: Any) -> set[str]:
    """The ids of the rules that a body breaks."""
    return {violation.rule for violation in VIOLATIONS[form](body, **options)}


# --- Anthropic


def message(role: str, *blocks: JSON | str) -> JSON:
    """A message; a lone string is its content as a string, strings among blocks become text blocks."""
    if len(blocks) == 1 and isinstance(blocks[0], str):
        return {"role": role, "content": blocks[0]}
    return {"role": role, "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def user(*blocks: JSON | str) -> JSON:
    return message("user", *blocks)


def assistant(*blocks: JSON | str) -> JSON:
    return message("assistant", *blocks)


def text(words: str, **more: Any) -> JSON:
    return {"type": "text", "text": words, **more}


def use(call_id: str = "toolu_1", **more: Any) -> JSON:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}, **more}


def result(call_id: str = "toolu_1", content: Any = "done", **more: Any) -> JSON:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def server_use(call_id: str = "srvtoolu_1", name: str = "web_search") -> JSON:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {}}


def server_result(call_id: str = "srvtoolu_1", name: str = "web_search") -> JSON:
    return {"type": f"{name}_tool_result", "tool_use_id": call_id, "content": []}


def thinking(words: str = "Hm.", signature: str = "sig") -> JSON:
    return {"type": "thinking", "thinking": words, "signature": signature}


def anthropic(*messages: JSON, **more: Any) -> JSON:
    tools = [{"name": "read", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 99, "tools": tools, "messages": list(messages)} | more


# --- Chat


def calls(*ids: str, **more: Any) -> JSON:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for call_id in ids
        ],
    } | more


def tool(call_id: str, content: Any = "done") -> JSON:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*messages: JSON, **more: Any) -> JSON:
    return {"model": "gpt-4o", "messages": list(messages)} | more


# --- Responses


def function_call(call_id: str = "call_1", **more: Any) -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"} | more


def output(call_id: str = "call_1", value: Any = "done", kind: str = "function_call", **more: Any) -> JSON:
    return {"type": f"{kind}_output", "call_id": call_id, "output": value} | more


def reasoning(item_id: str | None = "rs_1", **more: Any) -> JSON:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "enc"} | more
    return {"id": item_id, **item} if item_id else item


def said(words: str = "Fine.", **more: Any) -> JSON:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content} | more


def items(*entries: JSON, **more: Any) -> JSON:
    return {"model": "gpt-5", "input": list(entries)} | more


# --- Gemini


def content(role: str, *parts: JSON | str) -> JSON:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def function(name: str = "read", **more: Any) -> JSON:
    return {"functionCall": {"name": name, "args": {}}} | more


def response(name: str = "read", value: Any = None, **more: Any) -> JSON:
    return {"functionResponse": {"name": name, "response": {"output": "done"} if value is None else value} | more}


def gemini(*contents: JSON, **more: Any) -> JSON:
    return {"contents": list(contents)} | more
