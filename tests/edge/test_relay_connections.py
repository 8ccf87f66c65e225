"""A client's connection over several requests: kept, pipelined, upgraded, with heads that are too large or no HTTP at all."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import PATHS, Taken, chunks, compactd, configured, request, taken

BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}'


class Echo:
    """A provider that answers every request with its line and body, and keeps its connections."""

    def __init__(self) -> None:
        self.got: list[Taken] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await taken(peer)
            self.got.append(request)
            body = request.line.encode() + b" " + request.body
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def test_requests_follow_each_other_on_one_connection() -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        for number in range(5):
            await client.send(request("POST", f"/v1/chat/completions?n={number}", body=BODY))
            assert (await client.answer()).body == b"POST /v1/chat/completions?n=%d HTTP/1.1 %b" % (number, BODY)
            await client.send(request("GET", f"/v1/models/{number}"))
            assert (await client.answer()).body == b"GET /v1/models/%d HTTP/1.1 " % number
    assert len(server.peers) == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        posts = [request("POST", f"/v1/chat/completions?n={number}", body=BODY) for number in range(4)]
        upload = request("PUT", "/v1/files", "transfer-encoding: chunked", length=False) + chunks([b"up", b"load"])
        await client.send(b"".join(posts) + upload + request("GET", "/v1/models"))
        for number in range(4):
            assert (await client.answer()).body.startswith(b"POST /v1/chat/completions?n=%d " % number)
        assert (await client.answer()).body == b"PUT /v1/files HTTP/1.1 upload"
        assert (await client.answer()).body == b"GET /v1/models HTTP/1.1 "


async def test_streams_on_one_connection_one_after_the_other() -> None:
    async def provider(peer: Peer) -> None:
        while True:
            await taken(peer)
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            await peer.send(b"a\r\ndata: one\n\r\n", b"c\r\ndata: [DONE]\r\n", b"0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        for _ in range(3):
            await client.send(request("POST", "/v1/chat/completions", body=BODY))
            assert (await client.answer()).body == b"data: one\ndata: [DONE]"


async def test_close_is_the_clients_wish_and_is_kept() -> None:
    async with serve(Echo()) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("GET", "/v1/models", "connection: close"))
        assert (await client.answer())["connection"] == "close"
        assert await client.rest() == b""


async def test_the_providers_close_is_not_the_clients() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        for _ in range(2):
            await client.send(request("GET", "/v1/models"))
            answer = await client.answer()
            assert (answer.body, answer["connection"]) == (b"ok", "")


async def test_http_1_0_client() -> None:
    async with serve(Echo()) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert (await client.answer()).body == b"GET /v1/models HTTP/1.1 "
        assert await client.rest() == b""


async def test_http_1_0_client_that_offers_another_protocol() -> None:
    """It need not name a host, and it knows no chunks."""

    async def provider(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunks([b"ok"]))

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(b"GET /v1/models HTTP/1.0\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        head = await client.head()
        assert (head.status, head["transfer-encoding"], await client.rest()) == (200, "", b"ok")


WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize("target", ["/v1/responses", "/v1/realtime?model=gpt", "/v1/models"])
async def test_websocket_is_refused_at_once(target: str) -> None:
    """Codex asks for one first and falls back to POST on a 426."""
    async with serve(Echo()) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("GET", target, *WEBSOCKET))
        answer = await client.answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (426, "websocket_unsupported")
        assert (answer["upgrade"], answer["connection"].lower()) == ("HTTP/1.1", "upgrade")
        assert answer.told == ("passed", "websocket_unsupported")
        await client.send(request("GET", "/v1/models"))
        assert (await client.answer()).status == 200
    assert [head.partition(b"\r\n")[0] for head in server.heads] == [b"GET /v1/models HTTP/1.1"]


async def test_websocket_refusal_is_in_the_formats_shape() -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        error = json.loads((await proxy.ask(request("GET", "/v1/messages", *WEBSOCKET))).body)
        assert (error["type"], error["error"]["code"]) == ("error", "websocket_unsupported")
        error = json.loads((await proxy.ask(request("GET", PATHS["gemini"], *WEBSOCKET))).body)["error"]
        assert (error["code"], error["details"][0]["reason"]) == (426, "websocket_unsupported")


@pytest.mark.parametrize("upgrade", ["h2c", "TLS/1.2, h9"])
async def test_other_upgrades_are_passed_over(upgrade: str) -> None:
    """Java's HttpClient offers h2c with the first request of a connection, body and all."""
    lines = (
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {upgrade}",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/chat/completions", *lines, body=BODY))
        assert (await client.answer()).body == b"POST /v1/chat/completions HTTP/1.1 " + BODY
        await client.send(request("POST", "/v1/chat/completions", body=BODY))
        assert (await client.answer()).body.endswith(BODY)
        await client.send(request("GET", "/v1/models", *lines))
        assert (await client.answer()).body == b"GET /v1/models HTTP/1.1 "
        await client.send(request("GET", "/v1/models"))
        assert (await client.answer()).body == b"GET /v1/models HTTP/1.1 "
    assert not {"upgrade", "http2-settings", "connection"} & {name for got in echo.got for name, _ in got.headers}


@pytest.mark.parametrize("value", [b"x" * 70_000, b"x" * 3_000_000])
@pytest.mark.parametrize("complete", [False, True])
async def test_head_over_the_limit_is_refused(value: bytes, complete: bool) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        client = await proxy.connect()
        client.writer.write(
            b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + value + (b"\r\n\r\n" if complete else b"")
        )
        assert (await client.answer()).status == 431
        assert not proxy.app.relay.inflight


async def test_head_within_the_limit_passes() -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        assert (await proxy.ask(request("GET", "/v1/models", f"x-long: {'x' * 65_000}"))).status == 200
        many = [f"x-{number}: {'y' * 200}" for number in range(200)]
        assert (await proxy.ask(request("GET", "/v1/models?" + "q" * 8_000, *many))).status == 200
    assert len(echo.got[0]["x-long"]) == 65_000


async def test_many_large_heads_on_one_connection_do_not_add_up() -> None:
    async with serve(Echo()) as server, compactd(configured(server.url, limits={"max_header_bytes": 1_000})) as proxy:
        client = await proxy.connect()
        for _ in range(4):
            await client.send(request("GET", "/v1/models", f"x: {'x' * 800}"))
            assert (await client.answer()).status == 200
        await client.send(*(bytes([byte]) for byte in request("GET", "/v1/models", f"x: {'x' * 800}")))
        assert (await client.answer()).status == 200
        await client.send(request("GET", "/v1/models", f"x: {'x' * 1000}"))
        assert (await client.answer()).status == 431


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx: a\r\n\tb\x00\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere:443\r\n\r\n",
    ],
)
async def test_what_is_no_request_never_reaches_a_provider(data: bytes) -> None:
    """Above all requests of two lengths, with which one request is smuggled in another."""
    async with serve(Echo()) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(data)
        assert b" 400 " in (await client.rest()).partition(b"\r\n")[0]
    assert not server.heads


async def test_broken_chunks_end_the_upload_on_both_sides() -> None:
    """A body of which the end is not known is not given an end."""
    cut = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await peer.head()
        assert not (await peer.gone()).endswith(b"0\r\n\r\n")
        cut.set()

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", "transfer-encoding: chunked"), b"4\r\ngood\r\n")
        await client.send(b"zz\r\nbad\r\n")
        await cut.wait()


async def test_trailers_are_no_headers() -> None:
    """Of a conversation too, which is forwarded after they have come."""
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        data = request("POST", "/v1/chat/completions", "transfer-encoding: chunked", length=False)
        await proxy.ask(data + chunks([BODY], b"authorization: Bearer sneaked\r\nx-compactd-mode: off\r\n"))
    assert not {"authorization", "x-compactd-mode"} & {name for name, _ in echo.got[0].headers}
