"""Agent SDKs as clients: LangChain, pydantic-ai, OpenAI's agents and LiteLLM, with only their base URL set.

The official SDKs below them are tested in `test_sdks`; what is at stake here is what these make of a history: each writes its messages in
its own words, splits and joins them, sends ids and empty fields of its own, and runs its own tool loop. Every test looks at both ends:
what the SDK returned, and what the strict provider got.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.agent_clients import MODELS, SYSTEM, Book, LangChain, LiteLLM, OpenAIAgents, PydanticAI
from tests.edge.talks import compacted
from tests.edge.wire import Running, compactd, configured
from tests.strict.server import Rejection, StrictProvider

pytestmark = [
    pytest.mark.filterwarnings("ignore:The model:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly`:UserWarning"),  # LiteLLM's own types
]

WINDOW = 5_000  # tokens, of the provider and as compactd is told
SDKS: list[tuple[type[Any], str]] = [
    *((kind, form) for kind in (LangChain, PydanticAI) for form in MODELS),
    *((OpenAIAgents, form) for form in ("openai-chat", "openai-responses")),
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
        assert proxy.faults == {}
        assert f'strategy="{strategy}"' in proxy.app.metrics.text().decode()
    assert book.read == book.asked == list(range(1, 13))
    clean(provider, form)
    after = [seen for seen in provider.requests if compacted(seen.body)]
    assert len(after) >= len(provider.requests) // 2
    assert max(seen.tokens for seen in provider.requests) < WINDOW
    assert b"Question 4" in provider.requests[-1].raw


@every
async def test_several_calls_at_once_past_the_trigger(kind: type[Any], form: str) -> None:
    """Their results stay together, whatever order the SDK runs them in."""
    book = Book(steps=4, at_once=2)
    provider = StrictProvider(answer=book.model, window=2 * WINDOW)
    async with talking(kind, form, provider, book) as (talk, proxy):
        for number in range(1, 5):
            assert await talk.ask(f"Question {number}?", stream=number % 2 == 0) == f"Read up to page {4 * number}."
        assert proxy.faults == {}
    assert sorted(book.read) == book.asked == list(range(1, 17))
    assert any(compacted(seen.body) for seen in provider.requests)
    clean(provider, form)


CLASSES = {
    "LangChain": {"openai": ("openai", "RateLimitError"), "anthropic": ("anthropic", "RateLimitError")},
    "PydanticAI": {"openai": ("pydantic_ai", "ModelHTTPError"), "anthropic": ("pydantic_ai", "ModelHTTPError")},
    "OpenAIAgents": {"openai": ("openai", "RateLimitError")},
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
