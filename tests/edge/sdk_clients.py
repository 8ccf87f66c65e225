"""The official SDKs as clients of `test_sdks`: each keeps a history in its SDK's own types and sends all of it every time.

`turn` sends the history, plainly or as a stream, and lets it go on with the answer, as the SDK gave it; `results` answers the calls.
"""

from __future__ import annotations

from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
try:
    from google import genai
except ImportError:
    genai = None

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"page": {"type": "integer"}}}


class Chat:
    """openai-python, Chat Completions."""

    form, sdk = "openai-chat", "openai"

    def __init__(self, url: str) -> None:
        self.client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self.history: list[Any] = []

    def ask(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    async def turn(self, stream: bool = False) -> tuple[str, list[tuple[str, str]]]:
        """The model's text and its calls (id, name); the history goes on with them."""
        tools = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]
        given = {"model": "gpt-4o", "messages": self.history, "tools": tools}
        if stream:
            async with self.client.chat.completions.stream(**given) as events:
                async for _ in events:
                    pass
                answer = await events.get_final_completion()
        else:
            answer = await self.client.chat.completions.create(**given)
        message = answer.choices[0].message
        self.history.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        return message.content or "", [(call.id, call.function.name) for call in message.tool_calls or []]

    def results(self, calls: list[tuple[str, str]], text: str) -> None:
        self.history += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, _ in calls]

    async def close(self) -> None:
        await self.client.close()


class Responses(Chat):
    """openai-python, Responses, stateless."""

    form = "openai-responses"

    async def turn(self, stream: bool = False) -> tuple[str, list[tuple[str, str]]]:
        tools = [{"type": "function", "name": "read", "parameters": SCHEMA}]
        given = {"model": "gpt-4.1", "input": self.history, "tools": tools, "store": False}
        if stream:
            async with self.client.responses.stream(**given) as events:
                async for _ in events:
                    pass
                answer = await events.get_final_response()
        else:
            answer = await self.client.responses.create(**given)
        self.history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        for item in self.history:
            for block in item.get("content") or [] if isinstance(item.get("content"), list) else []:
                block.pop("parsed", None)
        return answer.output_text, [(item.call_id, item.name) for item in answer.output if item.type == "function_call"]

    def results(self, calls: list[tuple[str, str]], text: str) -> None:
        self.history += [{"type": "function_call_output", "call_id": ident, "output": text} for ident, _ in calls]


class Messages(Chat):
    """anthropic-sdk-python."""

    form, sdk = "anthropic-messages", "anthropic"

    def __init__(self, url: str) -> None:
        self.client = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
        self.history = []

    async def turn(self, stream: bool = False) -> tuple[str, list[tuple[str, str]]]:
        tools = [{"name": "read", "input_schema": SCHEMA}]
        given = {"model": "claude-sonnet-4-5", "max_tokens": 512, "messages": self.history, "tools": tools}
        if stream:
            async with self.client.messages.stream(**given) as events:
                async for _ in events.text_stream:
                    pass
                answer = await events.get_final_message()
        else:
            answer = await self.client.messages.create(**given)
        self.history.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]}
        )
        for block in self.history[-1]["content"]:
            block.pop("parsed_output", None)
        text = "".join(block.text for block in answer.content if block.type == "text")
        return text, [(block.id, block.name) for block in answer.content if block.type == "tool_use"]

    def results(self, calls: list[tuple[str, str]], text: str) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, _ in calls]
        self.history.append({"role": "user", "content": blocks})


class Gemini(Chat):
    """google-genai."""

    form, sdk = "gemini", "google-genai"

    def __init__(self, url: str) -> None:
        self.client = genai.Client(api_key="k", http_options={"base_url": url})
        self.history = []

    def ask(self, text: str) -> None:
        self.history.append(genai.types.Content(role="user", parts=[genai.types.Part(text=text)]))

    async def turn(self, stream: bool = False) -> tuple[str, list[tuple[str, str]]]:
        declared = genai.types.FunctionDeclaration(name="read", parameters_json_schema=SCHEMA)
        off = genai.types.AutomaticFunctionCallingConfig(disable=True)
        config = genai.types.GenerateContentConfig(
            tools=[genai.types.Tool(function_declarations=[declared])], automatic_function_calling=off
        )
        given = {"model": "gemini-2.5-flash", "contents": self.history, "config": config}
        if stream:
            chunks = [chunk async for chunk in await self.client.aio.models.generate_content_stream(**given)]
        else:
            chunks = [await self.client.aio.models.generate_content(**given)]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
        self.history.append(genai.types.Content(role="model", parts=parts))
        return "".join(part.text or "" for part in parts), [
            ("", part.function_call.name) for part in parts if part.function_call
        ]

    def results(self, calls: list[tuple[str, str]], text: str) -> None:
        parts = [genai.types.Part.from_function_response(name=name, response={"output": text}) for _, name in calls]
        self.history.append(genai.types.Content(role="user", parts=parts))

    async def close(self) -> None:
        await self.client.aio.aclose()


SDKS = {kind.form: kind for kind in (Chat, Responses, Messages, Gemini)}
