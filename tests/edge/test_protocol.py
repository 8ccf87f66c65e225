"""Requests that two servers could read in two ways, clients that are slow on purpose or very old, and more of them than there is room for.

Everything over raw sockets. A provider behind compactd says what it was asked: a request that is smuggled in another's body would be heard
by it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest

from app.edge.protocol import PIPELINED
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import Client, Taken, compactd, configured, request, taken, until

HEAD = b"POST /v1/files HTTP/1.1\r\nhost: x\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"

REFUSED = {
    "both lengths": HEAD + b"content-length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "both lengths, the other way round": HEAD + CHUNKED + b"content-length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "the same length twice": HEAD + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "a list of lengths": HEAD + b"content-length: 5, 5\r\n\r\nhello",
    "a signed length": HEAD + b"content-length: +5\r\n\r\nhello",
    "a negative length": HEAD + b"content-length: -5\r\n\r\nhello",
    "a hexadecimal length": HEAD + b"content-length: 0x5\r\n\r\nhello",
    "a space before the colon": HEAD + b"content-length : 5\r\n\r\nhello",
    "another coding": HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a coding before chunked": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding behind chunked": HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "identity": HEAD + b"transfer-encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": HEAD + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "chunked and identity": HEAD + CHUNKED + b"transfer-encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked behind a control character": HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked in quotes": HEAD + b'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n' + SMUGGLED,
    "a folded header": HEAD + b"x-a: 1\r\n folded\r\ncontent-length: 5\r\n\r\nhello",
    "a folded coding": HEAD + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a folded length": HEAD + b"content-length:\r\n 5\r\n\r\nhello",
    "bare line feeds": b"POST /v1/files HTTP/1.1\nhost: x\ncontent-length: 5\n\nhello",
    "one bare line feed": HEAD + b"x-a: 1\n" + CHUNKED + b"content-length: 5\r\n\r\nhello",
    "a bare carriage return": HEAD + b"x-a: 1\r" + CHUNKED + b"content-length: 5\r\n\r\nhello",
    "a nought": HEAD + b"x-a: 1\x00\r\ncontent-length: 5\r\n\r\nhello",
    "a space in a name": HEAD + b"x a: 1\r\n\r\n",
    "no name": HEAD + b": 1\r\n\r\n",
    "no colon": HEAD + b"nocolon\r\n\r\n",
    "a first header that is folded": b"GET /v1/models HTTP/1.1\r\n host: x\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/models HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "two hosts for a page of ours": b"GET /compactd/api/config HTTP/1.1\r\nhost: localhost\r\nhost: evil.test\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/files HTTP/1.0\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/1.2": b"GET /v1/models HTTP/1.2\r\nhost: x\r\n\r\n",
    "HTTP/2.0": b"GET /v1/models HTTP/2.0\r\nhost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    "CONNECT": b"CONNECT evil.test:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "no path": b"GET @evil.test/v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
}  # fmt: skip
BROKEN_BODIES = {
    "a line feed behind a size": b"5\nhello\r\n0\r\n\r\n",
    "a line feed in an extension": b"5;\nxx\r\nhello\r\n0\r\n\r\n",
    "a size beyond all bounds": b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a prefixed size": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a longer chunk than said": b"5\r\nhelloXX0\r\n\r\n",
    "no line behind the last chunk": b"0\r\n" + SMUGGLED,
}
OUTSIDE = [
    # target, what the provider is asked for
    ("http://evil.test/v1/models", "/v1/models"),
    ("https://evil.test:99/v1/models?x=1", "/v1/models?x=1"),
    ("http://user:pw@evil.test/v1/models", "/v1/models"),
    ("//evil.test/v1/models", "//evil.test/v1/models"),
    ("/\\evil.test/v1", "/\\evil.test/v1"),
    ("/v1/models#@evil.test", "/v1/models"),
    ("/http://evil.test/", "/http://evil.test/"),
    ("/v1/models?url=http://evil.test", "/v1/models?url=http://evil.test"),
]
CLIMBING = [
    "/v1/../../admin", "/..", "/../x", "/v1/../..", "/%2e%2e/x", "/v1/%2E./../x", "/v1/..%2f..%2fadmin", "/v1/..\\..\\admin",
    "/v1/%5c..%5c..%5cx", "/provider/../x", "/%252e%252e/x", "http://x/v1/../../x", "/v1//../..", "/v1/./../..", "*",
]  # fmt: skip


class Echo:
    """A provider that answers in chunks and remembers what it was asked."""

    def __init__(self) -> None:
        self.got: list[Taken] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            self.got.append(await taken(peer))
            await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n2\r\nay\r\n0\r\n\r\n")


async def end(client: Client) -> bytes:
    """All that comes until the connection ends."""
    async with asyncio.timeout(10):
        return await client.rest()


async def test_what_could_be_read_in_two_ways_is_refused_and_ends_the_connection() -> None:
    echo, answered = Echo(), {}
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        for name, data in REFUSED.items():
            client = await proxy.connect()
            await client.send(data)
            answered[name] = (await end(client)).split(b"\r\n")[0]
        assert not proxy.app.relay.inflight
    assert {name: line for name, line in answered.items() if line != b"HTTP/1.1 400 Bad Request"} == {}
    assert echo.got == []


async def test_no_request_is_smuggled_in_a_broken_body() -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        for body in BROKEN_BODIES.values():
            client = await proxy.connect()
            await client.send(request("POST", "/v1/chat/completions", "transfer-encoding: chunked"), body)
            assert (await end(client)).startswith(b"HTTP/1.1 400 ")
    assert echo.got == []


async def test_what_is_no_request_waits_for_the_answers_before_it() -> None:
    """Some clients send a line too much behind a body; nothing of ours may stand in the middle of an answer."""
    go = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        await go.wait()
        await peer.send(b"2\r\nay\r\n0\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        together, later = await proxy.connect(), await proxy.connect()
        await together.send(request("POST", "/v1/chat/completions", body=b"{}") + b"no request\r\n\r\n")
        await later.send(request("POST", "/v1/chat/completions", body=b"{}"))
        assert (await later.head()).status == 200
        await later.send(b"no request\r\n\r\n" + SMUGGLED)
        await asyncio.sleep(0.05)
        go.set()
        assert (await together.answer()).body == b"okay"
        assert await end(together) == b""
        assert await end(later) == b"2\r\nok\r\n2\r\nay\r\n0\r\n\r\n"
    assert len(server.heads) == 2


async def test_nothing_is_written_into_an_answer_that_has_begun() -> None:
    """A body may break while a provider answers already."""

    async def provider(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        await asyncio.sleep(10)

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(HEAD + CHUNKED + b"\r\n2\r\nhi\r\n")
        assert (await client.head()).status == 200
        await client.send(b"no size\r\n")
        assert await end(client) == b"2\r\nok\r\n"


async def test_what_follows_a_request_is_a_request_of_its_own() -> None:
    """The same bytes for both sides: what is left of a body never becomes a head."""
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        inner = request("POST", "/v1/files", body=SMUGGLED)
        await client.send(inner, request("POST", "/v1/files", "connection: content-length", body=b"hello"))
        await client.send(request("POST", "/v1/files", "content_length: 99", body=b"hello"))
        for _ in range(3):
            assert (await client.answer()).body == b"okay"
    assert [one.body for one in echo.got] == [SMUGGLED, b"hello", b"hello"]
    assert all(one.line == "POST /v1/files HTTP/1.1" and one.all("content-length") for one in echo.got)


@pytest.mark.parametrize(("target", "asked"), OUTSIDE)
async def test_no_request_chooses_whom_compactd_talks_to(target: str, asked: str) -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        assert (await proxy.ask(request("GET", target))).status == 200
        host = server.url.removeprefix("http://")
    assert [(one.line, one.all("host")) for one in echo.got] == [(f"GET {asked} HTTP/1.1", [host])]


@pytest.mark.parametrize("target", CLIMBING)
async def test_no_request_leaves_an_upstreams_base_path(target: str) -> None:
    """Behind a key that compactd brings, other paths of the same host may be somebody else's."""
    echo = Echo()
    async with serve(echo) as server, compactd(configured(f"{server.url}/tenant/7")) as proxy:
        answer = await proxy.ask(request("GET", target))
        assert answer.status == 400
        assert b"bad_path" in answer.body
        assert (await proxy.ask(request("GET", "/v1/files/a..b/...?x=/../y"))).status == 200
    assert [one.line for one in echo.got] == ["GET /tenant/7/v1/files/a..b/...?x=/../y HTTP/1.1"]


async def test_trace_is_not_forwarded() -> None:
    """Its answer would repeat the credentials that compactd brings."""
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        assert (await proxy.ask(request("TRACE", "/v1/models"))).status == 405
    assert echo.got == []


# HTTP/1.0


@pytest.mark.parametrize("line", ["", "connection: keep-alive\r\n", "expect: 100-continue\r\n"])
async def test_a_client_of_http_1_0_gets_no_chunks(line: str) -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(f"POST /v1/files HTTP/1.0\r\n{line}content-length: 2\r\n\r\nhi".encode())
        head, _, body = (await end(client)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body == b"okay"
        for path in (b"/livez", b"/compactd/api/sessions"):
            client = await proxy.connect()
            await client.send(b"GET " + path + b" HTTP/1.0\r\nhost: localhost\r\n\r\n")
            head, _, body = (await end(client)).partition(b"\r\n\r\n")
            assert b"content-length: %d" % len(body) in head
    assert echo.got[0].body == b"hi"


async def test_a_stream_for_http_1_0_comes_as_it_is_made_and_breaks_where_it_breaks() -> None:
    go = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(b"b\r\ndata: one\n\n\r\n")
        await go.wait()
        peer.reset()

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        await client.reader.readuntil(b"\r\n\r\n")
        assert await client.reader.readexactly(11) == b"data: one\n\n"
        go.set()
        with pytest.raises(ConnectionError):
            await client.reader.read()


# Slow, and many


@pytest.mark.parametrize("tail", [b"0\r\n" + b"a: b\r\n" * 3_000, b"0\r\na: " + b"b" * 20_000, b"2;" + b"b" * 20_000])
async def test_what_hangs_on_chunks_is_bounded_like_a_head(tail: bytes) -> None:
    """Trailers and extensions are dropped, but not before they are whole."""
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url, limits={"max_header_bytes": 8_000})) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/chat/completions", CHUNKED.decode().strip()), b"2\r\n{}\r\n")
        for at in range(0, len(tail), 1_000):
            with suppress(ConnectionError, RuntimeError):  # it is closed by now
                await client.send(tail[at : at + 1_000])
                await asyncio.sleep(0.001)
        assert (await end(client))[:13] in (b"HTTP/1.1 431 ", b"")  # who goes on sending may not hear it
        sound = b"2;x=y\r\n{}\r\n0\r\nx-a: b\r\n\r\n"
        assert (await proxy.ask(request("POST", "/v1/files", CHUNKED.decode().strip()) + sound)).body == b"okay"
    assert [one.body for one in echo.got] == [b"{}"]


async def test_few_requests_wait_on_one_connection() -> None:
    """Each takes a hundred times its own bytes. Those that wait are answered, and the client is to come again with the others."""
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        client = await proxy.connect()
        await client.send(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 4_000)
        [protocol] = proxy.server.server_state.connections
        waiting = []
        answered = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while (await client.answer()).status == 200:
                answered += 1
                waiting.append(len(protocol.pipeline))  # type: ignore[union-attr]
        assert max(waiting) <= PIPELINED
        assert answered >= PIPELINED
        assert not proxy.server.server_state.connections


async def test_a_head_behind_a_long_body_is_no_large_head() -> None:
    echo, body = Echo(), b"x" * 60_000
    async with serve(echo) as server, compactd(configured(server.url, limits={"max_header_bytes": 8_000})) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", body=body) + b"GET /v1/mod")
        assert (await client.answer()).body == b"okay"
        await client.send(b"els HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.answer()).body == b"okay"


async def test_a_head_that_comes_before_its_turn_may_wait() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok")
        await asyncio.sleep(0.6)
        await peer.send(b"ay")

    async with serve(provider) as server, compactd(configured(server.url, limits={"request_seconds": 0.1})) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", body=b"hi") + b"GET /v1/mod")
        assert (await client.answer()).body == b"okay"
        assert (await end(client)).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with compactd(configured("http://127.0.0.1:9", limits={"request_seconds": 0.3})) as proxy:
        silent, slow = await proxy.connect(), await proxy.connect()
        await slow.send(b"GET /v1/models HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                await asyncio.sleep(0.02)
                slow.writer.write(b"x: y\r\n")

        dripping = asyncio.create_task(drip())
        assert await end(silent) == b""
        assert (await end(slow)).startswith(b"HTTP/1.1 408 ")
        dripping.cancel()
        assert not proxy.server.server_state.connections


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    echo = Echo()
    limits = {"request_seconds": 0.3}
    async with serve(echo) as server, compactd(configured(server.url, limits=limits)) as proxy:
        stuck = await proxy.connect()
        await stuck.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhe")
        steady = await proxy.connect()
        await steady.send(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.1)
            await steady.send(b"x")
        assert (await steady.answer()).body == b"okay"
        assert (await end(stuck)).startswith(b"HTTP/1.1 408 ")
    assert [one.body for one in echo.got] == [b"x" * 10]


async def test_a_long_answer_is_no_slow_client() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await asyncio.sleep(0.8)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0.8)
        await peer.send(b"late")

    limits = {"request_seconds": 0.2}
    async with serve(provider) as server, compactd(configured(server.url, limits=limits)) as proxy:
        assert (await proxy.ask(request("POST", "/v1/chat/completions", body=b"{}"))).body == b"late"


async def test_a_client_that_does_not_take_its_answer_is_not_waited_for() -> None:
    ended = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n")
        with suppress(ConnectionError):
            for _ in range(50):
                await peer.send(b"x" * 1_000_000)
        ended.set()

    limits = {"request_seconds": 0.05}
    async with serve(provider) as server, compactd(configured(server.url, limits=limits)) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(request("GET", "/v1/files/1"))
            await asyncio.wait_for(ended.wait(), 10)
            await until(lambda: not proxy.app.relay.inflight)
            assert not proxy.server.server_state.connections


async def test_clients_beyond_the_bound_are_refused_and_the_others_served() -> None:
    echo = Echo()
    async with serve(echo) as server, compactd(configured(server.url, limits={"max_clients": 2})) as proxy:
        first, second, third = [await proxy.connect() for _ in range(3)]
        assert (await end(third)).startswith(b"HTTP/1.1 503 ")
        for client in (first, second):
            await client.send(request("GET", "/v1/models"))
            assert (await client.answer()).status == 200
        first.leave()
        for _ in range(100):
            again = await proxy.connect()
            await again.send(request("GET", "/v1/models"))
            if (await again.head()).status == 200:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("the room that one leaves is never given to another")
