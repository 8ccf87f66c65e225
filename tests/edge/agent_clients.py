"""Agent SDKs as clients of `test_agent_sdks`: each with its own history, tools and loop, and with only its base URL set.

A client is made with a wire format, an address and a `Book`; `ask` runs its loop until the model answers in words. An SDK that is not
installed skips the test that wants it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.strict.answers import Call, Reply

# Read when the SDKs are imported, which their clients do (LiteLLM alone takes seconds): nothing but loopback is ever asked.
os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false", LITELLM_LOCAL_MODEL_COST_MAP="True")
os.environ.update(HF_HUB_OFFLINE="1", OPENAI_AGENTS_DISABLE_TRACING="1")

SYSTEM = "You read books, page by page."
PAGE = "A line of the page that was read, with a number: 4711.\n" * 80  # about 1,100 tokens
MODELS = {"openai-chat": "gpt-4o", "openai-responses": "gpt-4.1", "anthropic-messages": "claude-sonnet-4-5"}


class Book:
    """What the model asks for, `at_once` pages a round, and what the tool reads of it; `steps` pages answer a question."""

    def __init__(self, steps: int, at_once: int = 1) -> None:
        self.steps, self.at_once = steps, at_once
        self.asked: list[int] = []
        self.read: list[int] = []

    def model(self, _form: str, body: dict[str, Any]) -> Reply:
        last = (body.get("messages") or body["input"])[-self.at_once :]
        if "The last page." in json.dumps(last):
            return Reply(f"Read up to page {self.asked[-1]}.")
        pages = range(len(self.asked) + 1, len(self.asked) + 1 + self.at_once)
        self.asked += pages
        return Reply("I read on.", tuple(Call("read", {"page": page}) for page in pages))

    def page(self, number: int) -> str:
        self.read.append(number)
        return f"Page {number}.\n{PAGE}" + ("" if number % self.steps else "The last page.")


class LangChain:
    """A chat model with a bound tool; its messages are LangChain's, and the tool makes its own results of the calls."""

    def __init__(self, form: str, url: str, book: Book) -> None:
        messages = pytest.importorskip("langchain_core.messages")
        tools = pytest.importorskip("langchain_core.tools")
        if form == "anthropic-messages":
            kind = pytest.importorskip("langchain_anthropic").ChatAnthropic
            more: dict[str, Any] = {"base_url": url, "max_tokens": 512}
        else:
            kind = pytest.importorskip("langchain_openai").ChatOpenAI
            more = {"base_url": f"{url}/v1", "use_responses_api": form == "openai-responses"}

        @tools.tool
        def read(page: int) -> str:
            """Read a page."""
            return book.page(page)

        self.tool = read
        self.client = kind(model=MODELS[form], api_key="k", max_retries=0, **more).bind_tools([read])
        self.history: list[Any] = [messages.SystemMessage(SYSTEM)]
        self.question = messages.HumanMessage

    async def ask(self, text: str, stream: bool) -> str:
        self.history.append(self.question(text))
        while True:
            answer = await (self._streamed() if stream else self.client.ainvoke(self.history))
            self.history.append(answer)
            if not answer.tool_calls:
                return str(answer.text)
            self.history += [await self.tool.ainvoke(call) for call in answer.tool_calls]

    async def _streamed(self) -> Any:
        answer: Any = None
        async for chunk in self.client.astream(self.history):
            answer = chunk if answer is None else answer + chunk
        return answer


class PydanticAI:
    """An agent that runs its loop itself; the history of a run is what the next one is given."""

    def __init__(self, form: str, url: str, book: Book) -> None:
        ai = pytest.importorskip("pydantic_ai")
        if form == "anthropic-messages":
            models = pytest.importorskip("pydantic_ai.models.anthropic")
            client = pytest.importorskip("anthropic").AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
            provider = pytest.importorskip("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=client)
            model = models.AnthropicModel(MODELS[form], provider=provider)
        else:
            models = pytest.importorskip("pydantic_ai.models.openai")
            client = pytest.importorskip("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
            provider = pytest.importorskip("pydantic_ai.providers.openai").OpenAIProvider(openai_client=client)
            kind = models.OpenAIResponsesModel if form == "openai-responses" else models.OpenAIChatModel
            model = kind(MODELS[form], provider=provider)
        self.agent = ai.Agent(model, instructions=SYSTEM)

        @self.agent.tool_plain
        def read(page: int) -> str:
            """Read a page."""
            return book.page(page)

        self.history: list[Any] = []

    async def ask(self, text: str, stream: bool) -> str:
        async def watch(_: Any, events: AsyncIterator[Any]) -> None:
            async for _event in events:
                pass

        watched = {"event_stream_handler": watch} if stream else {}
        run = await self.agent.run(text, message_history=self.history, **watched)
        self.history = run.all_messages()
        return str(run.output)


class LiteLLM:
    """Chat messages, whatever the provider's format: it is LiteLLM that translates them."""

    def __init__(self, form: str, url: str, book: Book) -> None:
        self.lite = pytest.importorskip("litellm")
        self.book = book
        provider, base = ("anthropic", url) if form == "anthropic-messages" else ("openai", f"{url}/v1")
        schema = {"type": "object", "properties": {"page": {"type": "integer"}}}
        self.given = {
            "model": f"{provider}/{MODELS[form]}",
            "api_base": base,
            "api_key": "k",
            "max_retries": 0,
            "max_tokens": 512,
            "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}],
        }
        self.history: list[Any] = [{"role": "system", "content": SYSTEM}]

    async def ask(self, text: str, stream: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            answer = await self.lite.acompletion(messages=self.history, stream=stream, **self.given)
            if stream:
                answer = self.lite.stream_chunk_builder([chunk async for chunk in answer])
            message = answer.choices[0].message
            self.history.append(message)
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                page = json.loads(call.function.arguments)["page"]
                self.history.append({"role": "tool", "tool_call_id": call.id, "content": self.book.page(page)})


class OpenAIAgents:
    """OpenAI's agents, over either of its two formats; what a run made of the history is what the next one is given."""

    def __init__(self, form: str, url: str, book: Book) -> None:
        self.sdk = pytest.importorskip("agents")
        kinds = {"openai-chat": "OpenAIChatCompletionsModel", "openai-responses": "OpenAIResponsesModel"}
        client = pytest.importorskip("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        model = getattr(self.sdk, kinds[form])(model=MODELS[form], openai_client=client)

        @self.sdk.function_tool
        def read(page: int) -> str:
            """Read a page."""
            return book.page(page)

        self.agent = self.sdk.Agent(name="Reader", instructions=SYSTEM, model=model, tools=[read])
        self.history: list[Any] = []

    async def ask(self, text: str, stream: bool) -> str:
        given = [*self.history, {"role": "user", "content": text}]
        if stream:
            run = self.sdk.Runner.run_streamed(self.agent, given)
            async for _ in run.stream_events():
                pass
        else:
            run = await self.sdk.Runner.run(self.agent, given)
        self.history = run.to_input_list()
        return str(run.final_output)
