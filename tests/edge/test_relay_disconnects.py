"""Clients that leave: the provider sees it at once, and it is counted as what it was."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.edge.talks import Talk
from tests.edge.upstream.peers import Peer, response, serve
from tests.edge.wire import chunks, compactd, configured, request, taken, until

SOON = 0.5  # seconds
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODIES = {
    "/v1/chat/completions": b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "Hi."}]}',
    "/v1/messages": b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "Hi."}]}',
    "/v1/responses": b'{"model": "gpt-5", "stream": true, "input": [{"role": "user", "content": "Hi."}]}',
    "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse": b'{"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}',
    "/v1/embeddings": b'{"input": "Hi."}',
}
FORMATS = dict(zip(BODIES, ["openai-chat", "anthropic-messages", "openai-responses", "gemini", "none"], strict=True))
LAST = {
    "/v1/chat/completions": b"data: [DONE]\n\n",
    "/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "/v1/responses": b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n',
    "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse": b'data: {"candidates": [{"finishReason": "STOP"}]}\n\n',
}


class Watched:
    """A provider that tells when its client closed."""

    def __init__(self, *answer: bytes) -> None:
        self.answer = answer
        self.asked = asyncio.Event()
        self.closed: float | None = None

    async def __call__(self, peer: Peer) -> None:
        await taken(peer)
        await peer.send(*self.answer)
        self.asked.set()
        await peer.gone()
        self.closed = time.monotonic()

    async def closes(self, left: float) -> None:
        await until(lambda: self.closed is not None)
        assert self.closed is not None
        assert self.closed - left < SOON


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("target", BODIES)
@pytest.mark.parametrize("politely", [False, True])
async def test_client_gone_before_the_first_byte(target: str, politely: bool) -> None:
    provider = Watched()
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", target, body=BODIES[target]))
        await provider.asked.wait()
        client.writer.close() if politely else client.leave()
        await provider.closes(time.monotonic())
        await until(lambda: proxy.metric("clients_disconnected_total", format=FORMATS[target]) == 1)
        assert proxy.app.relay.inflight == 0


@pytest.mark.parametrize("target", BODIES)
async def test_client_gone_in_mid_stream(target: str) -> None:
    provider = Watched(HEAD, chunk(b'data: {"some": "event"}\n\n'))
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", target, body=BODIES[target]))
        await client.head()
        await client.piece()
        client.leave()
        await provider.closes(time.monotonic())
        await until(lambda: proxy.metric("clients_disconnected_total", format=FORMATS[target]) == 1)


async def test_client_gone_while_it_reads_nothing() -> None:
    """Also where compactd waits for the client to take more."""

    async def provider(peer: Peer) -> None:
        nonlocal closed
        await taken(peer)
        await peer.send(HEAD)
        try:
            while True:
                await peer.send(chunk(bytes(65_536)))
        except ConnectionError:
            closed = time.monotonic()

    closed = 0.0
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("GET", "/v1/files/f/content"))
        await client.head()
        await asyncio.sleep(0.2)  # until everything is full
        left = time.monotonic()
        client.leave()
        await until(lambda: closed)
        assert closed - left < SOON


@pytest.mark.parametrize("target", ["/v1/files", "/v1/messages"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_client_gone_during_an_upload(target: str, chunked: bool) -> None:
    """On a path that is not looked at, and on one whose body is over the limit."""
    began, closed = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def provider(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readexactly(50_000)
        began.set()
        await peer.gone()
        closed.set_result(time.monotonic())

    settings = {"limits": {"max_body_bytes": 10_000}}
    async with serve(provider) as server, compactd(configured(server.url, **settings)) as proxy:
        client = await proxy.connect()
        framing = "transfer-encoding: chunked" if chunked else "content-length: 200000"
        piece = bytes(100_000)
        await client.send(request("POST", target, framing), chunks([piece])[:-5] if chunked else piece)
        await began.wait()
        left = time.monotonic()
        client.leave()
        assert await closed - left < SOON
        await until(lambda: not proxy.app.relay.inflight)
        form = "anthropic-messages" if target == "/v1/messages" else "none"
        assert proxy.metric("clients_disconnected_total", format=form) == 1


async def test_what_is_made_for_a_client_that_has_left_is_held_until_it_is_made() -> None:
    """Or whoever asks and leaves, again and again, fills the memory with bodies that nobody counts."""
    go = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await go.wait()
        await peer.send(
            response(
                b'{"choices": [{"message": {"role": "assistant", "content": "They spoke."}, "finish_reason": "stop"}]}'
            )
        )

    low = {
        "name": "low",
        "strategy": "summarize",
        "trigger_threshold": 500,
        "target_threshold": 200,
        "min_messages_before_compaction": 0,
    }
    talk = Talk("openai-chat")
    for number in range(9):
        talk.ask(f"{number}. What stands there?").say("A line of many words. " * 40)
    async with serve(provider) as server, compactd(configured(server.url, policies=[low])) as proxy:
        relay, client = proxy.app.relay, await proxy.connect()
        data = talk.ask("And now?").request()
        await client.send(data)
        await until(lambda: server.heads)
        client.leave()
        await until(lambda: not relay.inflight)
        assert relay.held > 5_000
        go.set()
        await until(lambda: not relay.held)
        assert (await proxy.ask(data)).told == ("replayed", "checkpoint")


async def test_client_gone_before_its_conversation_is_complete() -> None:
    """The provider hears nothing of it."""

    async def provider(_: Peer) -> None:
        raise AssertionError("nobody asks")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/messages", "content-length: 1000"), b'{"model"')
        await until(lambda: proxy.app.relay.inflight == 1)
        client.leave()
        await until(lambda: proxy.app.relay.inflight == 0)
        assert proxy.metric("clients_disconnected_total", format="anthropic-messages") == 1


async def test_client_gone_during_the_answer_to_a_refused_upload() -> None:
    """The provider refused half-way and goes on talking: it must still be told."""
    closed = asyncio.get_running_loop().create_future()

    async def provider(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readexactly(1_000)
        await peer.send(HEAD.replace(b"200 OK", b"400 Bad Request"), chunk(b"data: no\n\n"))
        while await peer.gone():
            pass
        closed.set_result(time.monotonic())

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", "content-length: 1000000"), bytes(1_000))
        await client.head()
        assert await client.piece() == b"data: no\n\n"
        left = time.monotonic()
        client.leave()
        assert await closed - left < SOON


@pytest.mark.parametrize("target", LAST)
async def test_leaving_after_the_last_event_is_no_abort(target: str) -> None:
    provider = Watched(HEAD, chunk(b'data: {"some": "event"}\n\n'), chunk(LAST[target][:9]), chunk(LAST[target][9:]))
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", target, body=BODIES[target]))
        await client.head()
        got = b""
        while not got.endswith(LAST[target]):
            got += await client.piece()
        client.leave()
        await provider.closes(time.monotonic())
        await until(lambda: not proxy.app.relay.inflight)
        assert proxy.metric("clients_disconnected_total", format=FORMATS[target]) == 0
        labels = {"format": FORMATS[target], "upstream": "provider", "outcome": "passed", "reason": "below_threshold"}
        assert proxy.metric("requests_total", **labels) == 1


async def test_client_that_has_its_whole_answer_and_leaves_is_no_abort() -> None:
    async def provider(peer: Peer) -> None:
        while True:
            await taken(peer)
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        for target, body in BODIES.items():
            client = await proxy.connect()
            await client.send(request("POST", target, body=body))
            await client.answer()
            client.leave()
        await until(lambda: not proxy.app.relay.inflight)
        assert sum(proxy.metric("clients_disconnected_total", format=form) for form in FORMATS.values()) == 0


async def test_the_next_client_gets_a_provider_connection_that_is_good() -> None:
    """What a client left behind in mid-stream is not what another one gets."""
    provider = Watched(HEAD, chunk(b"data: for the first\n\n"))

    async def both(peer: Peer) -> None:
        if peer.number == 0:
            await provider(peer)
        else:
            await taken(peer)
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond")

    async with serve(both) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/messages", body=BODIES["/v1/messages"]))
        await client.head()
        client.leave()
        assert (await proxy.ask(request("POST", "/v1/messages", body=BODIES["/v1/messages"]))).body == b"second"
