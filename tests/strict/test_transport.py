"""Over a real socket: pace, compression, cut connections, clients that leave; and the official SDKs as clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic as anthropic_sdk
import httpx
import openai
import pytest

from .answers import Call, Reply
from .samples import chat, content, gemini, user
from .server import StrictProvider

SPOKEN = Reply("A longer answer that comes in pieces.", (Call("read", {"path": "a.py"}),))


@pytest.fixture
async def served() -> AsyncIterator[tuple[StrictProvider, str]]:
    provider = StrictProvider(answer=lambda _form, _body: SPOKEN)
    async with provider.serve() as url:
        yield provider, url


Served = tuple[StrictProvider, str]
STREAM = chat(user("hi"), stream=True)


async def test_gzip_decodes_to_the_same_bytes(served: Served) -> None:
    provider, url = served
    async with httpx.AsyncClient(base_url=url) as http:
        plain = [(await http.post("/v1/chat/completions", json=body)).content for body in (STREAM, chat(user("hi")))]
        provider.gzip = True
        packed = [await http.post("/v1/chat/completions", json=body) for body in (STREAM, chat(user("hi")))]
    assert [answer.content for answer in packed] == plain
    assert {answer.headers["content-encoding"] for answer in packed} == {"gzip"}
    assert int(packed[1].headers["content-length"]) < len(plain[1])


async def test_a_dropped_stream_has_no_end(served: Served) -> None:
    provider, url = served
    provider.drop_after_events = 2
    events = b""
    async with httpx.AsyncClient(base_url=url) as http:
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 the break comes while reading
            async with http.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
                async for chunk in answer.aiter_bytes():
                    events += chunk
    assert events.count(b"data: ") == 2
    assert (provider.requests[0].status, provider.requests[0].finished) == (200, False)


async def test_a_client_that_leaves_is_noticed(served: Served) -> None:
    provider, url = served
    provider.event_gap = 30.0
    async with httpx.AsyncClient(base_url=url) as http:
        async with http.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            await anext(answer.aiter_bytes())
        for _ in range(200):
            if provider.requests[0].abandoned:
                break
            await asyncio.sleep(0.01)
    assert provider.requests[0].abandoned
    assert not provider.requests[0].finished


async def test_nothing_is_sent_before_the_delay(served: Served) -> None:
    provider, url = served
    provider.delay = 30.0
    async with httpx.AsyncClient(base_url=url, timeout=0.1) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/chat/completions", json=STREAM)
    provider.delay = 0.0
    async with httpx.AsyncClient(base_url=url) as http:
        assert (await http.post("/v1/chat/completions", json=STREAM)).status_code == 200


async def test_gemini_streams_both_ways(served: Served) -> None:
    _, url = served
    path = "/v1beta/models/gemini-3-pro:streamGenerateContent"
    async with httpx.AsyncClient(base_url=url) as http:
        array = await http.post(path, json=gemini(content("user", "hi")))
        framed = await http.post(path, params={"alt": "sse"}, json=gemini(content("user", "hi")))
    chunks = [json.loads(line.removeprefix("data: ")) for line in framed.text.splitlines() if line]
    assert framed.headers["content-type"] == "text/event-stream"
    assert array.json() == chunks
    assert chunks[-1]["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] == "read"


async def test_openai_sdk_chat(served: Served) -> None:
    provider, url = served
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as sdk:
        whole = await sdk.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hi"}])
        text, usage = "", None
        stream = await sdk.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            usage = chunk.usage or usage
        with pytest.raises(openai.BadRequestError, match="must be a response to a preceeding message"):
            await sdk.chat.completions.create(
                model="gpt-4o", messages=[{"role": "tool", "tool_call_id": "a", "content": "x"}]
            )
        assert [model.id async for model in sdk.models.list()] == ["strict-1"]
    assert text == whole.choices[0].message.content == SPOKEN.text
    assert whole.choices[0].message.tool_calls is not None
    assert usage is not None
    assert whole.usage is not None
    assert usage.prompt_tokens == whole.usage.prompt_tokens == provider.requests[0].tokens
    assert dict(provider.requests[0].headers)["authorization"] == "Bearer key"


async def test_openai_sdk_responses(served: Served) -> None:
    _, url = served
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as sdk:
        whole = await sdk.responses.create(model="gpt-5", input="hi")
        async with sdk.responses.stream(model="gpt-5", input="hi") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        counted = await sdk.responses.input_tokens.count(model="gpt-5", input="hi")
    assert whole.output_text == final.output_text == SPOKEN.text
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert whole.usage is not None
    assert counted.input_tokens == whole.usage.input_tokens


async def test_anthropic_sdk(served: Served) -> None:
    provider, url = served
    async with anthropic_sdk.AsyncAnthropic(base_url=url, api_key="key", max_retries=0) as sdk:
        ask: dict[str, Any] = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "hi"}]}
        whole = await sdk.messages.create(max_tokens=99, **ask)
        async with sdk.messages.stream(max_tokens=99, **ask) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        counted = await sdk.messages.count_tokens(**ask)
        with pytest.raises(anthropic_sdk.BadRequestError, match="first message must use the"):
            await sdk.messages.create(
                model="claude-opus-5",
                max_tokens=99,
                messages=[{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
            )
        provider.window = 3
        with pytest.raises(anthropic_sdk.BadRequestError, match="prompt is too long: 5 tokens > 3 maximum"):
            await sdk.messages.create(max_tokens=99, **ask)
    assert text == SPOKEN.text
    said = [[block.model_dump(exclude={"id"}) for block in message.content] for message in (whole, final)]
    assert said[0] == said[1]
    assert final.stop_reason == "tool_use"
    assert counted.input_tokens == whole.usage.input_tokens == provider.requests[0].tokens
