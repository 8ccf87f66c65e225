"""Two ordinary clients, one for each wire format. They know nothing of compactd: they keep their history and send all of it every time.

The model's part of a story comes back from the provider; the client appends it as it was received, runs the tools, and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from deploy.demo.story import SYSTEM, TOOLS, Call, Story

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """What the provider reports: tokens of the whole prompt, of these read from and written to its cache, and of the answer."""

    prompt: int
    cached: int
    written: int
    output: int


def _schema(parameters: dict[str, str]) -> Json:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in parameters.items()}}


@dataclass(slots=True)
class Client:
    """A conversation in one wire format."""

    story: Story
    messages: list[Json] = field(default_factory=list)

    label = path = format = model = ""

    def headers(self) -> dict[str, str]:
        raise NotImplementedError

    def request(self) -> Json:
        """The body of the next request."""
        raise NotImplementedError

    def answered(self, answer: Json) -> Usage:
        """Append the model's answer to the history."""
        raise NotImplementedError

    def tools_answered(self, calls: tuple[Call, ...]) -> None:
        """Append what the tools say to the calls of the last answer."""
        raise NotImplementedError

    def asks(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    async def send(self, http: httpx.AsyncClient) -> tuple[Json, httpx.Response]:
        """The body that was sent, and the response."""
        body = self.request()
        return body, await http.post(self.path, json=body, headers=self.headers())


class Chat(Client):
    """OpenAI Chat Completions."""

    label, path, format, model = "chat", "/v1/chat/completions", "openai-chat", "demo-large"

    def headers(self) -> dict[str, str]:
        return {"authorization": "Bearer demo"}

    def request(self) -> Json:
        tools = [
            {
                "type": "function",
                "function": {"name": name, "description": TOOLS[name][0], "parameters": _schema(TOOLS[name][1])},
            }
            for name in self.story.tools
        ]
        system = {"role": "system", "content": SYSTEM}
        return {"model": f"{self.model}-{self.story.name}", "messages": [system, *self.messages], "tools": tools}

    def answered(self, answer: Json) -> Usage:
        self.messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        return Usage(
            usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], 0, usage["completion_tokens"]
        )

    def tools_answered(self, calls: tuple[Call, ...]) -> None:
        ids = [call["id"] for call in self.messages[-1].get("tool_calls", [])]
        self.messages += [
            {"role": "tool", "tool_call_id": id, "content": call.result} for id, call in zip(ids, calls, strict=True)
        ]


class Messages(Client):
    """Anthropic Messages, with cache markers that move along as an agent moves them."""

    label, path, format, model = "anthropic", "/v1/messages", "anthropic-messages", "demo-wise"

    def headers(self) -> dict[str, str]:
        return {"x-api-key": "demo", "anthropic-version": "2023-06-01"}

    def request(self) -> Json:
        tools = [
            {"name": name, "description": TOOLS[name][0], "input_schema": _schema(TOOLS[name][1])}
            for name in self.story.tools
        ]
        mark = {"cache_control": {"type": "ephemeral"}}
        system = [{"type": "text", "text": SYSTEM, **mark}]
        *earlier, last = self.messages
        content = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
        last = {**last, "content": [*content[:-1], {**content[-1], **mark}]}
        return {
            "model": f"{self.model}-{self.story.name}", "max_tokens": 1024, "system": system, "tools": tools, "messages": [*earlier, last],
        }  # fmt: skip

    def answered(self, answer: Json) -> Usage:
        self.messages.append({"role": "assistant", "content": answer["content"]})
        usage = answer["usage"]
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        return Usage(usage["input_tokens"] + read + written, read, written, usage["output_tokens"])

    def tools_answered(self, calls: tuple[Call, ...]) -> None:
        ids = [block["id"] for block in self.messages[-1]["content"] if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": id, "content": call.result}
            for id, call in zip(ids, calls, strict=True)
        ]
        self.messages.append({"role": "user", "content": results})
