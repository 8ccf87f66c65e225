"""One client per wire format that keeps a history and sends all of it every time; it knows nothing of compactd.

`Talk` is what SDKs and agents do, with dicts: ask, append the model's answer as it was received, answer its calls, ask again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.edge.wire import PATHS, request

Json = dict[str, Any]
MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4.1",
    "anthropic-messages": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
}
HISTORY = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic-messages": "messages",
    "gemini": "contents",
}
KEYS = {
    "openai-chat": ("authorization: Bearer k",), "openai-responses": ("authorization: Bearer k",),
    "anthropic-messages": ("x-api-key: k", "anthropic-version: 2023-06-01"), "gemini": ("x-goog-api-key: k",),
}  # fmt: skip
_SCHEMA = {"type": "object", "properties": {}}
_TOOLS: dict[str, Json] = {
    "openai-chat": {"tools": [{"type": "function", "function": {"name": "read", "parameters": _SCHEMA}}]},
    "openai-responses": {"tools": [{"type": "function", "name": "read", "parameters": _SCHEMA}]},
    "anthropic-messages": {"tools": [{"name": "read", "input_schema": _SCHEMA}], "max_tokens": 512},
    "gemini": {"tools": [{"functionDeclarations": [{"name": "read"}]}]},
}


@dataclass
class Talk:
    """`model`: instead of the format's usual one (Gemini: in the path)."""

    form: str
    model: str = ""
    key: str = "k"
    items: list[Any] = field(default_factory=list)

    def ask(self, text: str) -> Talk:
        if self.form == "gemini":
            self.items.append({"role": "user", "parts": [{"text": text}]})
        else:
            self.items.append({"role": "user", "content": text})
        return self

    def say(self, text: str) -> Talk:
        """The model's words, as if they had come from it."""
        item: Json = {"role": "assistant", "content": text}
        if self.form == "gemini":
            item = {"role": "model", "parts": [{"text": text}]}
        if self.form == "openai-responses":
            item = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        self.items.append(item)
        return self

    def call(self, ident: str) -> Talk:
        """The model calls the tool `read`."""
        calls: dict[str, Json] = {
            "openai-chat": {
                "role": "assistant", "content": None,
                "tool_calls": [{"id": ident, "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            "openai-responses": {"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}"},
            "anthropic-messages": {"role": "assistant", "content": [{"type": "tool_use", "id": ident, "name": "read", "input": {}}]},
            "gemini": {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
        }  # fmt: skip
        self.items.append(calls[self.form])
        return self

    def result(self, ident: str, text: str) -> Talk:
        results: dict[str, Json] = {
            "openai-chat": {"role": "tool", "tool_call_id": ident, "content": text},
            "openai-responses": {"type": "function_call_output", "call_id": ident, "output": text},
            "anthropic-messages": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": ident, "content": text}],
            },
            "gemini": {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": text}}}]},
        }
        self.items.append(results[self.form])
        return self

    def rounds(self, count: int, text: str = "line of a file\n" * 60, first: int = 0) -> Talk:
        """So many calls with their results."""
        for number in range(first, first + count):
            self.call(f"call_{number}").result(f"call_{number}", f"{number}: {text}")
        return self

    @property
    def body(self) -> Json:
        named = {} if self.form == "gemini" else {"model": self.model or MODELS[self.form]}
        return {**named, **_TOOLS[self.form], HISTORY[self.form]: self.items}

    def request(self, *lines: str, stream: bool = False, **more: Any) -> bytes:
        """The bytes of the request that sends all of it."""
        target = PATHS[self.form]
        if self.form == "gemini":
            action = "streamGenerateContent?alt=sse" if stream else "generateContent"
            target = f"/v1beta/models/{self.model or MODELS['gemini']}:{action}"
        elif stream:
            more = {"stream": True, **more}
        keys = [line.replace(" k", f" {self.key}") for line in KEYS[self.form]]
        body = json.dumps({**self.body, **more}).encode()
        return request("POST", target, *keys, "content-type: application/json", *lines, body=body)

    def heard(self, answer: Json) -> list[tuple[str, str]]:
        """Append the model's answer as it came; the calls in it, as (id, name)."""
        if self.form == "openai-chat":
            self.items.append(answer["choices"][0]["message"])
            return [(call["id"], call["function"]["name"]) for call in self.items[-1].get("tool_calls") or []]
        if self.form == "openai-responses":
            self.items += answer["output"]
            return [(item["call_id"], item["name"]) for item in answer["output"] if item["type"] == "function_call"]
        if self.form == "anthropic-messages":
            self.items.append({"role": "assistant", "content": answer["content"]})
            return [(block["id"], block["name"]) for block in answer["content"] if block["type"] == "tool_use"]
        self.items.append(answer["candidates"][0]["content"])
        parts = self.items[-1]["parts"]
        return [("", part["functionCall"]["name"]) for part in parts if "functionCall" in part]


def texts(value: Any) -> Iterator[str]:
    """All strings in a parsed body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def compacted(body: Any) -> bool:
    """Has compactd been at this body? Every note and placeholder of its says so."""
    return any("compaction" in text for text in texts(body))
