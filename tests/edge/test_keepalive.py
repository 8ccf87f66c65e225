"""An answer that is opened while a summary is still being made: what the client sees of it, and what it must never see otherwise."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from app.formats import FORMATS
from app.own import CompactionContext
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import Client, Running, chunks, compactd, configured, request, taken, until

SECONDS = 0.03
PATHS = {
    "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic-messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
}  # fmt: skip
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = b'data: {"hello": "w\xc3\xb6rld"}\n\ndata: [DONE]\n\n'
EVERY = pytest.mark.parametrize("form", FORMATS)

go: list[asyncio.Event] = []


async def waits(_: CompactionContext) -> None:
    """A strategy that takes as long as the test wants, and then wants nothing."""
    await go[-1].wait()


@pytest.fixture(autouse=True)
def _waiting() -> Iterator[None]:
    go.append(asyncio.Event())
    yield
    go.clear()


def policy(**more: Any) -> dict[str, Any]:
    return {
        "strategy": f"{__name__}:waits", "trigger_threshold": 1, "target_threshold": 1, "min_messages_before_compaction": 1,
        "keepalive_seconds": SECONDS, **more,
    }  # fmt: skip


def body(form: str, stream: bool = True) -> bytes:
    if form == "gemini":
        says = [("user", "Hi."), ("model", "Hello."), ("user", "And?")]
        return json.dumps({"contents": [{"role": role, "parts": [{"text": text}]} for role, text in says]}).encode()
    said = [
        {"role": role, "content": text} for role, text in (("user", "Hi."), ("assistant", "Hello."), ("user", "And?"))
    ]
    return json.dumps({"model": "m", "stream": stream, "max_tokens": 9, FORMATS[form].history: said}).encode()


async def ask(proxy: Running, form: str, *lines: str, target: str = "", stream: bool = True) -> Client:
    client = await proxy.connect()
    await client.send(request("POST", target or PATHS[form], "anthropic-version: 1", *lines, body=body(form, stream)))
    return client


def answering(*data: bytes) -> Any:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(*data)
        await peer.gone()

    return provider


@EVERY
async def test_signs_of_life_come_before_the_providers_own_events(form: str) -> None:
    async with (
        serve(answering(HEAD, chunks([STREAM]))) as server,
        compactd(configured(server.url, policies=[policy()])) as proxy,
    ):
        client = await ask(proxy, form, "x-compactd-session: mine")
        head = await client.head()
        assert (head.status, head["content-type"]) == (200, "text/event-stream")
        assert (head["cache-control"], head["x-accel-buffering"], head["x-compactd-session"]) == (
            "no-cache",
            "no",
            "mine",
        )
        assert head["x-compactd-request-id"]
        assert server.peers == []
        for _ in range(3):
            assert await client.piece() == FORMATS[form].keepalive
        go[-1].set()
        *beats, answer = [piece async for piece in _pieces(client)]
        assert answer == STREAM
        assert set(beats) <= {FORMATS[form].keepalive}


async def test_they_go_on_until_the_provider_answers() -> None:
    answer = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await answer.wait()
        await peer.send(HEAD, chunks([STREAM]))
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = await ask(proxy, "openai-chat")
        await client.head()
        await client.piece()
        go[-1].set()
        while not server.heads:
            await client.piece()
        for _ in range(2):
            assert await client.piece() == b": compacting\n"
        answer.set()
        pieces = [piece async for piece in _pieces(client)]
        assert b"".join(pieces).endswith(STREAM)
        assert pieces.index(STREAM) == len(pieces) - 1  # none after it


async def _pieces(client: Client) -> Any:
    while piece := await client.piece():
        yield piece


async def test_a_decision_in_time_opens_nothing() -> None:
    go[-1].set()
    async with (
        serve(answering(HEAD, chunks([STREAM]))) as server,
        compactd(configured(server.url, policies=[policy()])) as proxy,
    ):
        answer = await (await ask(proxy, "openai-chat")).answer()
        assert answer.body == STREAM
        assert answer["x-compactd-outcome"] == "declined"


@pytest.mark.parametrize(
    ("form", "target", "stream", "seconds"),
    [
        ("openai-chat", "", False, SECONDS),
        ("openai-chat", "", True, None),
        ("gemini", "/v1beta/models/g:streamGenerateContent", True, SECONDS),
        ("gemini", "/v1beta/models/g:generateContent?alt=sse", True, SECONDS),
    ],
)
async def test_nothing_is_sent_early_where_it_is_off_or_no_event_stream(
    form: str, target: str, stream: bool, seconds: float | None
) -> None:
    refused = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nretry-after: 7\r\n\r\n{}"
    rules = [policy(keepalive_seconds=seconds)]
    async with serve(answering(refused)) as server, compactd(configured(server.url, policies=rules)) as proxy:
        client = await ask(proxy, form, target=target, stream=stream)
        reading = asyncio.create_task(client.head())
        await asyncio.sleep(SECONDS * 3)
        assert not reading.done()
        go[-1].set()
        head = await reading
        assert (head.status, head["retry-after"]) == (429, "7")


@EVERY
async def test_a_refusal_comes_as_the_formats_error_event(form: str) -> None:
    said = {"error": {"message": "Slow\ndown, wörld.", "type": "rate_limit_error", "code": "slow_down"}}
    text = json.dumps(said, indent=1).encode()
    refused = b"HTTP/1.1 429 No\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
    async with serve(answering(refused)) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = await ask(proxy, form)
        assert (await client.head()).status == 200
        go[-1].set()
        *_, event = [piece async for piece in _pieces(client)]
        assert event == FORMATS[form].stream_error(429, "slow_down", "Slow\ndown, wörld.")
        assert proxy.metric("upstream_responses_total", upstream="provider", status="429") == 1


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\noops", "upstream_error", "oops"),
        (
            b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            "upstream_error",
            "The provider refused and did not say why.",
        ),
        (b'HTTP/1.1 500 No\r\ncontent-length: 17\r\n\r\n{"error": "oops"}', "upstream_error", "oops"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}", "upstream_error", "{}"),
        (HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: sdch\r\n\r\n") + chunks([b"?"]), "upstream_error", "?"),
        (b"", "upstream_broke_off", ""),
    ],
)
async def test_whatever_else_the_provider_answers_ends_the_stream_with_an_error(
    answer: bytes, code: str, message: str
) -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(answer)
        if not answer:
            peer.close()

    async with serve(provider) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = await ask(proxy, "openai-chat")
        await client.head()
        go[-1].set()
        stream = b"".join([piece async for piece in _pieces(client)])
        error = json.loads(stream.rpartition(b"data: ")[2])["error"]
        assert error["code"] == code
        assert error["message"].startswith(message)
        assert error["type"] == "server_error"


async def test_a_compressed_answer_is_opened_since_the_stream_began_plain() -> None:
    coded = HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    packed = gzip.compress(STREAM)
    pieces = chunks([packed[:7], packed[7:20], packed[20:]])
    async with (
        serve(answering(coded, pieces)) as server,
        compactd(configured(server.url, policies=[policy()])) as proxy,
    ):
        client = await ask(proxy, "openai-chat", "accept-encoding: gzip")
        assert (await client.head())["content-encoding"] == ""
        go[-1].set()
        stream = b"".join([piece async for piece in _pieces(client)])
        assert stream.replace(b": compacting\n", b"") == STREAM


async def test_a_stream_that_breaks_off_is_broken_for_the_client_too() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD, b"5\r\ndata:\r\n")
        peer.close()

    async with serve(provider) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = await ask(proxy, "openai-chat")
        await client.head()
        go[-1].set()
        with pytest.raises(asyncio.IncompleteReadError):
            _ = [piece async for piece in _pieces(client)]


async def test_a_client_that_leaves_is_noticed_and_beats_end() -> None:
    async with serve(answering()) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = await ask(proxy, "openai-chat")
        await client.head()
        await client.piece()
        client.leave()
        await until(lambda: proxy.metric("clients_disconnected_total", format="openai-chat"))
        go[-1].set()
        await asyncio.sleep(SECONDS * 2)
        beating = [task for task in asyncio.all_tasks() if "EarlyAnswer" in repr(task.get_coro())]
        assert beating == []
        assert server.peers == []


def test_error_events_have_the_formats_shape() -> None:
    events = {name: form.stream_error(504, "late", "Too\nlate.") for name, form in FORMATS.items()}
    told = {name: json.loads(event.partition(b"data: ")[2]) for name, event in events.items()}
    assert told == {
        "openai-chat": {"error": {"message": "Too\nlate.", "type": "server_error", "param": None, "code": "late"}},
        "openai-responses": {
            "type": "error",
            "code": "late",
            "message": "Too\nlate.",
            "param": None,
            "sequence_number": 0,
        },
        "anthropic-messages": {
            "type": "error",
            "error": {"type": "timeout_error", "message": "Too\nlate.", "code": "late"},
        },
        "gemini": json.loads(FORMATS["gemini"].error(504, "late", "Too\nlate.")),
    }
    for name, event in events.items():
        *lines, empty, end = event.split(b"\n")
        assert (empty, end) == (b"", b"")
        assert [line.partition(b":")[0] for line in lines] == (
            [b"data"] if name in ("openai-chat", "gemini") else [b"event", b"data"]
        )


# Real clients


async def test_openais_client_reads_on_and_raises_the_error() -> None:
    event = b'data: {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n'
    answer = chunks([event, b"data: [DONE]\n\n"])
    async with serve(answering(HEAD, answer)) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0)
        stream = await client.chat.completions.create(**json.loads(body("openai-chat")))
        go[-1].set()
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["Hi"]
    go[-1].clear()
    refused = b'HTTP/1.1 429 No\r\ncontent-length: 36\r\n\r\n{"error": {"message": "Slow down."}}'
    async with serve(answering(refused)) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0)
        stream = await client.chat.completions.create(**json.loads(body("openai-chat")))
        go[-1].set()
        with pytest.raises(openai.APIError, match="Slow down"):
            _ = [chunk async for chunk in stream]


async def test_anthropics_client_reads_on_and_raises_the_error() -> None:
    said = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
    asked = json.loads(body("anthropic-messages"))
    async with (
        serve(answering(HEAD, chunks([said]))) as server,
        compactd(configured(server.url, policies=[policy()])) as proxy,
    ):
        client = anthropic.AsyncAnthropic(base_url=proxy.url, api_key="k", max_retries=0)
        stream = await client.messages.create(**asked)
        go[-1].set()
        assert [event.type async for event in stream] == ["message_stop"]
    go[-1].clear()
    text = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Later."}}'
    refused = b"HTTP/1.1 529 No\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
    async with serve(answering(refused)) as server, compactd(configured(server.url, policies=[policy()])) as proxy:
        client = anthropic.AsyncAnthropic(base_url=proxy.url, api_key="k", max_retries=0)
        stream = await client.messages.create(**asked)
        go[-1].set()
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
            _ = [event async for event in stream]
