"""Agent SDKs as clients: LangChain, pydantic-ai and LiteLLM, with only their base URL set, and each with its own tools and histories.

The official SDKs below them are tested in `test_sdks`; what is at stake here is what these make of a history: each writes its messages in
its own words, splits and joins them, sends ids and empty fields of its own, and runs its own tool loop. Every test looks at both ends:
what the SDK returned, and what the strict provider got.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.talks import compacted
from tests.edge.wire import Running, compactd, configured
from tests.strict.answers import Call, Reply
from tests.strict.server import Rejection, StrictProvider

# Read when the SDKs are imported, which the tests do (LiteLLM alone takes seconds): nothing but loopback is ever asked.
os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false", LITELLM_LOCAL_MODEL_COST_MAP="True")
os.environ.update(HF_HUB_OFFLINE="1")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The model:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly`:UserWarning"),  # LiteLLM's own types
]

WINDOW = 5_000  # tokens, of the provider and as compactd is told
SYSTEM = "You read books, page by page."
PAGE = "A line of the page that was read, with a number: 4711.\n" * 80  # about 1,100 tokens
MODELS = {"openai-chat": "gpt-4o", "openai-responses": "gpt-4.1", "anthropic-messages": "claude-sonnet-4-5"}


class Book:
    """What the model asks for and what the tool reads of it; `steps` pages answer a question."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.asked: list[int] = []
        self.read: list[int] = []

    def model(self, _form: str, body: dict[str, Any]) -> Reply:
        last = (body.get("messages") or body["input"])[-1]
        if "The last page." in json.dumps(last):
            return Reply(f"Read up to page {self.asked[-1]}.")
        self.asked.append(len(self.asked) + 1)
        return Reply("I read on.", (Call("read", {"page": self.asked[-1]}),))

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


SDKS: list[tuple[type[Any], str]] = [
    *((kind, form) for kind in (LangChain, PydanticAI) for form in MODELS),
    (LiteLLM, "openai-chat"),
    (LiteLLM, "anthropic-messages"),
]
every = pytest.mark.parametrize(("kind", "form"), SDKS, ids=[f"{kind.__name__}-{form}" for kind, form in SDKS])
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def talking(
    kind: type[Any], form: str, provider: StrictProvider, book: Book, strategy: str = "tool_result_clearing"
) -> AsyncIterator[tuple[Any, Running]]:
    policy = {
        "name": "low",
        "strategy": strategy,
        "trigger_threshold": 0.7,
        "target_threshold": 0.4,
        "clear_at_least": 0,
    }
    async with provider.serve() as url:
        settings = configured(url, policies=[policy], models={"*": {"context_window": WINDOW}})
        async with compactd(settings, patience=60) as proxy:
            yield kind(form, proxy.url, book), proxy


def clean(provider: StrictProvider, form: str) -> None:
    """The provider found no fault with any request, and each was in its format and had the system prompt."""
    assert provider.requests
    for seen in provider.requests:
        assert (seen.status, seen.violations, seen.form) == (200, [], form)
        assert SYSTEM.encode() in seen.raw


@every
async def test_plain_and_streamed_turns(kind: type[Any], form: str) -> None:
    provider = StrictProvider()
    async with talking(kind, form, provider, Book(1)) as (talk, _):
        said = [await talk.ask(f"Question {number}?", stream=number % 2 == 1) for number in range(4)]
    first = int(said[0].split()[1])
    assert said == [f"Read {first + 2 * number} items." for number in range(4)]
    always = (kind, form) == (PydanticAI, "anthropic-messages")  # it streams, and hands out the whole
    assert [bool(seen.body and seen.body.get("stream")) for seen in provider.requests] == [always, True] * 2
    clean(provider, form)


@every
@streaming
async def test_tool_loop(kind: type[Any], form: str, stream: bool) -> None:
    """Three steps below the trigger: the calls come through with their arguments, and nothing is changed on the way."""
    book = Book(steps=3)
    provider = StrictProvider(answer=book.model)
    async with talking(kind, form, provider, book) as (talk, _):
        assert await talk.ask("Read the book.", stream) == "Read up to page 3."
    assert book.read == book.asked == [1, 2, 3]
    assert len(provider.requests) == 4
    assert not any(compacted(seen.body) for seen in provider.requests)
    clean(provider, form)


@every
@pytest.mark.parametrize(("stream", "strategy"), [(False, "sliding_window"), (True, "tool_result_clearing")])
async def test_session_past_the_trigger(kind: type[Any], form: str, stream: bool, strategy: str) -> None:
    """Nearly three times the window is read; the provider is never asked for more than it, and the SDK goes on as if nothing were."""
    book = Book(steps=3)
    provider = StrictProvider(answer=book.model, window=WINDOW)
    async with talking(kind, form, provider, book, strategy) as (talk, proxy):
        for number in range(1, 5):
            assert await talk.ask(f"Question {number}: what comes next?", stream) == f"Read up to page {3 * number}."
        assert "compactd_faults_total{" not in proxy.app.metrics.text().decode()
        assert f'strategy="{strategy}"' in proxy.app.metrics.text().decode()
    assert book.read == book.asked == list(range(1, 13))
    clean(provider, form)
    after = [seen for seen in provider.requests if compacted(seen.body)]
    assert len(after) >= len(provider.requests) // 2
    assert max(seen.tokens for seen in provider.requests) < WINDOW
    assert b"Question 4" in provider.requests[-1].raw


CLASSES = {
    "LangChain": {"openai": ("openai", "RateLimitError"), "anthropic": ("anthropic", "RateLimitError")},
    "PydanticAI": {"openai": ("pydantic_ai", "ModelHTTPError"), "anthropic": ("pydantic_ai", "ModelHTTPError")},
    "LiteLLM": {"openai": ("litellm", "RateLimitError"), "anthropic": ("litellm", "RateLimitError")},
}


@every
@streaming
async def test_an_error_of_the_provider_is_of_the_sdks_own_class(kind: type[Any], form: str, stream: bool) -> None:
    """In a session that is compacted by then; the provider is asked once, and the session goes on after it."""
    rejection: Rejection | None = None
    book = Book(steps=6)
    provider = StrictProvider(answer=book.model, window=WINDOW, reject=lambda _: rejection)
    module, name = CLASSES[kind.__name__][form.split("-")[0]]
    async with talking(kind, form, provider, book) as (talk, _):
        await talk.ask("Read the book.", stream)
        rejection, asked = Rejection(429, "slow down, please", headers=(("retry-after", "7"),)), len(provider.requests)
        with pytest.raises(getattr(pytest.importorskip(module), name), match="slow down, please") as caught:
            await talk.ask("And then?", stream)
    assert getattr(caught.value, "status_code", None) == 429
    (refused,) = provider.requests[asked:]
    assert compacted(refused.body)
