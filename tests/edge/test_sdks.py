"""The official SDKs as clients: only their base URL is set. Plain and streamed turns, tool loops past the trigger, the right errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.sdk_clients import SDKS, Chat, genai, openai
from tests.edge.talks import compacted
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import Running, compactd, configured, taken
from tests.strict.answers import Call, Reply
from tests.strict.server import Rejection, StrictProvider

pytestmark = pytest.mark.filterwarnings(
    "ignore:The model:DeprecationWarning"
)  # the SDK knows days after which models end
LOW = {
    "name": "low",
    "strategy": "combined",
    "summary_model": "extractive",
    "trigger_threshold": 6_000,
    "target_threshold": 3_000,
}
RESULT = "A line of the page that was read, with a number: 4711.\n" * 60

every = pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.skipif(form == "gemini" and genai is None, reason="needs google-genai"))
        for form in SDKS
    ],
)
streaming = pytest.mark.parametrize("stream", [False, True])


@asynccontextmanager
async def talking(form: str, provider: StrictProvider, **sections: Any) -> AsyncIterator[tuple[Chat, Running]]:
    async with provider.serve() as url, compactd(configured(url, policies=[LOW], **sections), patience=60) as proxy:
        talk = SDKS[form](proxy.url)
        try:
            yield talk, proxy
        finally:
            await talk.close()


def working(form: str, body: dict[str, Any]) -> Reply:
    """A model that reads page after page until a result says that it is enough."""
    history = body.get("messages") or body.get("input") or body.get("contents") or []
    if "tools" in body and "enough" not in json.dumps(history[-1]):
        return Reply("I read on.", (Call("read", {"page": len(history)}),))
    return Reply(f"That is all, in {form}.")


async def grown(talk: Chat, rounds: int = 9) -> Chat:
    """After so many pages; the last result is still to be sent."""
    talk.ask("Read the book.")
    for _ in range(rounds):
        _, calls = await talk.turn()
        talk.results(calls, RESULT)
    return talk


@every
@streaming
async def test_plain_turns(form: str, stream: bool) -> None:
    provider = StrictProvider()
    async with talking(form, provider) as (talk, _):
        for number in range(3):
            talk.ask(f"Question {number}?")
            text, calls = await talk.turn(stream)
            assert text == f"Read {2 * number + 1} items."
            assert not calls
    assert [seen.status for seen in provider.requests] == [200] * 3


@every
@streaming
async def test_long_tool_loops_past_the_trigger(form: str, stream: bool) -> None:
    """Two questions, 10 rounds of reading each: compacted at both levels, and the provider never finds fault."""
    provider = StrictProvider(answer=working)
    async with talking(form, provider) as (talk, proxy):
        for question in ("Read the first book.", "Read the second book."):
            talk.ask(question)
            for number in range(11):
                text, calls = await talk.turn(stream)
                if not calls:
                    break
                talk.results(calls, RESULT + ("enough" if number == 9 else ""))
            assert text == f"That is all, in {form}."
        before = proxy.metric("request_tokens_sum", format=form, stage="before")
        after = proxy.metric("request_tokens_sum", format=form, stage="after")
        compactions = proxy.app.metrics.text().decode().count("compactd_compactions_total{")
        assert compactions >= 1
        assert after < before
        assert proxy.faults == {}
    assert {seen.status for seen in provider.requests} == {200}
    assert not [seen.violations for seen in provider.requests if seen.violations]
    assert max(seen.tokens for seen in provider.requests) < 8_000


ERRORS = {
    "openai": [
        (400, "BadRequestError"), (401, "AuthenticationError"), (403, "PermissionDeniedError"), (404, "NotFoundError"),
        (409, "ConflictError"), (422, "UnprocessableEntityError"), (429, "RateLimitError"), (500, "InternalServerError"),
        (503, "InternalServerError"),
    ],
    "anthropic": [
        (400, "BadRequestError"), (401, "AuthenticationError"), (403, "PermissionDeniedError"), (404, "NotFoundError"),
        (409, "ConflictError"), (413, "APIStatusError"), (429, "RateLimitError"), (500, "InternalServerError"),
        (529, "OverloadedError"),
    ],
    "google-genai": [
        (400, "ClientError"), (401, "ClientError"), (404, "ClientError"), (429, "ClientError"), (500, "ServerError"), (503, "ServerError"),
    ],
}  # fmt: skip


@every
@streaming
async def test_errors_are_of_the_class_that_they_are_without_us(form: str, stream: bool) -> None:
    """Long conversations, so that what is refused was compacted before."""
    rejection: Rejection | None = None
    provider = StrictProvider(answer=working, reject=lambda _: rejection)
    async with talking(form, provider) as (talk, _), talking_directly(form, provider) as straight:
        await grown(talk)
        await grown(straight)
        for status, name in ERRORS[talk.sdk]:
            rejection = Rejection(status, f"no, for {status}", headers=(("retry-after", "7"),))
            through, direct = await failing(talk, stream), await failing(straight, stream)
            assert type(through) is type(direct)
            assert name in [kind.__name__ for kind in type(through).__mro__]
            assert f"no, for {status}" in str(through)
            if hasattr(through, "response") and hasattr(through.response, "headers"):
                assert through.response.headers["retry-after"] == "7"


@asynccontextmanager
async def talking_directly(form: str, provider: StrictProvider) -> AsyncIterator[Chat]:
    async with provider.serve() as url:
        talk = SDKS[form](url)
        try:
            yield talk
        finally:
            await talk.close()


async def failing(talk: Chat, stream: bool) -> Exception:
    try:
        await talk.turn(stream)
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


@every
@streaming
async def test_overflow_is_healed_where_it_can_be_and_is_the_sdks_own_error_where_not(form: str, stream: bool) -> None:
    provider = StrictProvider(window=5_000)
    async with talking(form, provider) as (talk, _):
        for number in range(5):
            talk.ask(f"Question {number}? " + "word " * 900)
            await talk.turn(stream)
        talk.ask("word " * 30_000)
        error = await failing(talk, stream)
        assert type(error).__name__ in ("BadRequestError", "ClientError")
        assert getattr(error, "status_code", getattr(error, "code", None)) == 400


@every
@streaming
async def test_errors_of_compactds_own_are_understood(form: str, stream: bool) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        talk = SDKS[form](proxy.url)
        talk.ask("Hi.")
        error = await failing(talk, stream)
        await talk.close()
    assert type(error).__name__ in ("InternalServerError", "ServerError")
    assert "127.0.0.1:9" in str(error)


@every
async def test_stream_that_breaks_off_is_an_error_and_no_short_answer(form: str) -> None:
    """The SDK must not take half of an answer for all of it."""
    provider = StrictProvider(answer=lambda *_: Reply("word " * 200), drop_after_events=6)
    async with talking(form, provider) as (talk, _):
        talk.ask("Hi.")
        error = await failing(talk, True)
        assert not isinstance(error, AssertionError)


@pytest.mark.parametrize("form", ["openai-chat", "anthropic-messages"])
async def test_everything_else_of_an_sdk_passes(form: str) -> None:
    """Models, token counts, raw responses with compactd's headers."""
    provider = StrictProvider()
    async with talking(form, provider) as (talk, _):
        assert [model.id async for model in await_list(talk)] == ["strict-1"]
        assert (await talk.client.models.retrieve("strict-1")).id == "strict-1"
        messages = [{"role": "user", "content": "Hi."}]
        if form == "anthropic-messages":
            counted = await talk.client.messages.count_tokens(model="claude-sonnet-4-5", messages=messages)
            assert counted.input_tokens > 0
            raw = await talk.client.messages.with_raw_response.create(
                model="claude-sonnet-4-5", max_tokens=9, messages=messages
            )
        else:
            raw = await talk.client.chat.completions.with_raw_response.create(model="gpt-4o", messages=messages)
        assert (raw.headers["x-compactd-outcome"], raw.headers["x-request-id"]) == ("passed", "req_strict")


async def await_list(talk: Chat) -> AsyncIterator[Any]:
    async for model in talk.client.models.list():
        yield model


async def test_uploads_of_an_sdk_pass() -> None:
    got: list[bytes] = []

    async def provider(peer: Peer) -> None:
        got.append((await taken(peer)).body)
        answer = json.dumps(
            {
                "id": "file-1",
                "object": "file",
                "bytes": 9,
                "created_at": 1,
                "filename": "f",
                "purpose": "batch",
                "status": "x",
            }
        )
        await peer.send(
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n{answer}".encode()
        )

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0)
        made = await client.files.create(file=("f.jsonl", bytes(range(256)) * 100), purpose="batch")
        await client.close()
    assert made.id == "file-1"
    assert bytes(range(256)) * 100 in got[0]


@every
async def test_sdks_own_retry_is_answered_from_the_checkpoint(form: str) -> None:
    """A 500 and then the same request again: compacted to the same bytes."""
    if form == "gemini":
        pytest.skip("google-genai does not retry by itself")
    waiting: list[Rejection] = []
    provider = StrictProvider(answer=working, reject=lambda _: waiting.pop() if waiting else None)
    async with talking(form, provider) as (talk, _):
        await grown(talk)
        waiting.append(Rejection(500, headers=(("retry-after-ms", "1"),)))
        talk.client = talk.client.with_options(max_retries=1)
        await talk.turn()
    first, second = provider.requests[-2:]
    assert (first.status, second.status) == (500, 200)
    assert first.raw == second.raw
    assert compacted(first.body)
