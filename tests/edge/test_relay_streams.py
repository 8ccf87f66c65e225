"""Event streams on their way to the client: each event when it comes, every byte as it was, and an end that is true."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import Client, Running, compactd, configured, request, taken

CHAT = b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "Hi."}]}'
MESSAGES = (
    b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "Hi."}]}'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = [
    b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}\n\n',
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b": OPENROUTER PROCESSING\n\n",
    b'event: content_block_delta\r\ndata: {"type": "content_block_delta",\r\n'
    b'data: "delta": {"text": "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"}}\r\n\r\n',
    b"event: something_new\ndata: no JSON at all {[\n\n",
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n',
    b"retry: 100\nid: 7\n\n",
    b'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}\n\n',
    b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
]
WHOLE = b"".join(EVENTS)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def ask(proxy: Running, body: bytes = MESSAGES, target: str = "/v1/messages") -> Client:
    client = await proxy.connect()
    await client.send(request("POST", target, "anthropic-version: 2023-06-01", body=body))
    return client


async def test_each_event_arrives_before_the_next_one_is_sent() -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD)
        for event in EVENTS:
            await peer.send(chunk(event))
            assert await seen.get() == event
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy)
        head = await client.head()
        assert head["content-type"] == "text/event-stream"
        for _ in EVENTS:
            seen.put_nowait(await client.piece())
        assert await client.piece() == b""


async def test_head_arrives_before_the_first_event() -> None:
    heard = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD)
        await heard.wait()
        await peer.send(chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy, CHAT, "/v1/chat/completions")
        assert (await client.head()).status == 200
        heard.set()
        assert await client.piece() == b"data: [DONE]\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
async def test_stream_is_the_same_and_its_usage_is_read_at_any_split(size: int) -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD)
        for at in range(0, len(WHOLE), size):
            await peer.send(chunk(WHOLE[at : at + size]))
        await peer.send(b"0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy)
        assert (await client.answer()).body == WHOLE
        labels = {"upstream": "provider", "model": "claude-sonnet-4-5"}
        assert proxy.metric("upstream_tokens_total", kind="input", **labels) == 25
        assert proxy.metric("upstream_tokens_total", kind="output", **labels) == 15


async def test_single_writes_that_cut_chunks_anywhere() -> None:
    data = HEAD + b"".join(chunk(event) for event in EVENTS) + b"0\r\n\r\n"

    async def provider(peer: Peer) -> None:
        await taken(peer)
        for at in range(len(data)):
            await peer.send(data[at : at + 1])

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        assert (await (await ask(proxy)).answer()).body == WHOLE


@pytest.mark.parametrize("wbits", [31, 15])
async def test_compressed_stream_passes_as_it_is_and_is_read_in_a_copy(wbits: int) -> None:
    coding = b"content-encoding: gzip\r\n" if wbits == 31 else b"content-encoding: deflate\r\n"
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD[:-2] + coding + b"\r\n")
        pack = zlib.compressobj(wbits=wbits)
        for event in EVENTS:
            data = pack.compress(event) + pack.flush(zlib.Z_SYNC_FLUSH)
            await peer.send(chunk(data))
            assert await seen.get() == data
        await peer.send(chunk(pack.flush()), b"0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy)
        await client.head()
        got = b""
        while piece := await client.piece():
            seen.put_nowait(piece)
            got += piece
        assert zlib.decompress(got, wbits) == WHOLE
        assert (
            proxy.metric("upstream_tokens_total", upstream="provider", model="claude-sonnet-4-5", kind="output") == 15
        )


async def test_answer_that_lies_about_its_coding_passes_all_the_same() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD[:-2] + b"content-encoding: gzip\r\n\r\n", chunk(WHOLE), b"0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        assert (await (await ask(proxy)).answer()).body == WHOLE


@pytest.mark.parametrize(
    "payload",
    [
        b'{"usage": 1}', b'{"usage": {"input_tokens": "many"}}', b'{"usage": {"input_tokens": -1, "output_tokens": 1e400}}', b'"usage"',
        b'{"message": {"usage": [1]}, "usage": null}', b'[{"usage": {"output_tokens": {}}}]', b'{"usage": ' + b"[" * 5_000, b"usage",
        b'{"type": "message_delta", "usage": {"output_tokens": 99999999999999999999999}}',
        b'{"choices": 7, "usage": {"prompt_tokens": [], "prompt_tokens_details": 3}}',
        b'{"response": {"usage": "x"}, "usageMetadata": "usage"}',
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/v1/messages", MESSAGES),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", b'{"model": "gpt-5", "input": [{"role": "user", "content": "Hi."}]}'),
        (
            "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            b'{"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}',
        ),
    ],
)
async def test_odd_usage_never_breaks_a_stream(target: str, body: bytes, payload: bytes) -> None:
    stream = b"data: " + payload + b"\n\ndata: end\n\n"

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD, chunk(stream), b"0\r\n\r\n")
        await taken(peer)
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(payload), payload
        )

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy, body, target)
        assert (await client.answer()).body == stream
        await client.send(request("POST", target, body=body))
        assert (await client.answer()).body == payload


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("framing", [b"transfer-encoding: chunked", b"content-length: 1000"])
@pytest.mark.parametrize("target", ["/v1/messages", "/v1/files/f/content"])
async def test_provider_that_dies_ends_the_clients_connection_in_an_error(
    target: str, framing: bytes, reset: bool
) -> None:
    event = EVENTS[0]
    heard = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + framing + b"\r\n\r\n"
        await peer.send(head, chunk(event) if b"chunked" in framing else event)
        await heard.wait()
        if reset:
            peer.reset()

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy, target=target)
        await client.head()
        first = await client.piece() if b"chunked" in framing else await client.reader.readexactly(len(event))
        assert first == event
        heard.set()
        assert await client.rest() == b""  # neither a last chunk nor anything made up
        assert client.reader.at_eof()


async def test_dead_stream_is_told_in_the_log_and_not_as_a_client_that_left(capsys: pytest.CaptureFixture[str]) -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(HEAD, chunk(EVENTS[0]))

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy)
        await client.head()
        await client.rest()
        assert proxy.metric("clients_disconnected_total", format="anthropic-messages") == 0
        assert proxy.metric("inflight_requests") == 0
    assert "upstream_broke_off" in capsys.readouterr().out


async def test_many_streams_at_once_lose_nothing() -> None:
    async def provider(peer: Peer) -> None:
        number = (await taken(peer)).line.split(" ")[1].rpartition("/")[2]
        await peer.send(HEAD)
        for event in range(50):
            await peer.send(chunk(b"data: %s.%d\n\n" % (number.encode(), event)))
            await asyncio.sleep(0)
        await peer.send(b"0\r\n\r\n")

    async def one(proxy: Running, number: int) -> None:
        answer = await proxy.ask(request("GET", f"/v1/responses/{number}"))
        assert answer.body == b"".join(b"data: %d.%d\n\n" % (number, event) for event in range(50))

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        await asyncio.gather(*(one(proxy, number) for number in range(64)))


async def test_slow_client_slows_the_provider_down() -> None:
    """What a client does not read is left with the provider, not gathered here."""
    sent = 0

    async def provider(peer: Peer) -> None:
        nonlocal sent
        await taken(peer)
        await peer.send(HEAD)
        for _ in range(1_000):
            await peer.send(chunk(bytes(65_536)))
            sent += 65_536

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy, target="/v1/files/f/content")
        await client.head()
        last = -1
        while sent != last:
            last = sent
            await asyncio.sleep(0.1)
        assert sent < 16 << 20  # what sockets hold
        assert len(await client.reader.readexactly(1 << 20)) == 1 << 20


@pytest.mark.parametrize("lines", [b"", b"content-encoding: gzip\r\n"])
async def test_usage_of_a_whole_answer(lines: bytes) -> None:
    answer = b'{"usage": {"prompt_tokens": 11, "completion_tokens": 4}, "choices": []}'
    data = gzip.compress(answer) if lines else answer

    async def provider(peer: Peer) -> None:
        await taken(peer)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(data)
        await peer.send(head + lines + b"\r\n" + data)

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await ask(proxy, CHAT, "/v1/chat/completions")
        assert (await client.answer()).body == data
        assert proxy.metric("upstream_tokens_total", upstream="provider", model="gpt-4o", kind="input") == 11
        assert proxy.metric("upstream_tokens_total", upstream="provider", model="gpt-4o", kind="output") == 4
