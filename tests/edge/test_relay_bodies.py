"""Request bodies on their way: chunked, compressed, expected, huge; and large answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from app.settings import Settings
from tests.edge.upstream.peers import Peer, answers, response, serve
from tests.edge.wire import PATHS, Taken, chunks, compactd, configured, remembering, request, taken, until

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": zstandard.compress,
    "zstd, zstd": lambda data: zstandard.compress(zstandard.compress(data[:99]) + zstandard.compress(data[99:])),
    "gzip, zstd": lambda data: zstandard.compress(gzip.compress(data, mtime=0)),
    "identity": lambda data: data,
}
LOW = [{"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 500, "keep_recent_tool_results": 1}]
MB = 1 << 20


def conversation(rounds: int = 6) -> dict[str, Any]:
    """A chat whose old tool results can be cleared."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all of it."}]
    for number in range(rounds):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number} of the file\n" * 80})
    return {"model": "gpt-4o", "messages": messages}


SHORT = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}).encode()
LONG = json.dumps(conversation()).encode()


async def sent(data: bytes, **sections: Any) -> tuple[Taken, Any]:
    async with (
        remembering(b"content-type: application/json") as (url, got),
        compactd(configured(url, **sections)) as proxy,
    ):
        answer = await proxy.ask(data)
    return got[0], answer


@pytest.mark.parametrize("coding", CODINGS)
async def test_unchanged_compressed_body_goes_on_as_it_came(coding: str) -> None:
    body = CODINGS[coding](SHORT)
    got, answer = await sent(request("POST", "/v1/chat/completions", f"content-encoding: {coding}", body=body))
    assert got.body == body
    assert got["content-encoding"] == coding
    assert answer.told == ("passed", "below_threshold")


@pytest.mark.parametrize("coding", CODINGS)
async def test_compacted_body_goes_on_plain_with_headers_that_fit(coding: str) -> None:
    body = CODINGS[coding](LONG)
    data = request(
        "POST", "/v1/chat/completions", f"content-encoding: {coding}", "content-type: application/json", body=body
    )
    got, answer = await sent(data, policies=LOW)
    assert answer.told == ("compacted", "threshold")
    assert got.all("content-encoding") == []
    assert got.all("content-length") == [str(len(got.body))]
    assert got.all("content-type") == ["application/json"]
    assert len(json.loads(got.body)["messages"]) == len(conversation()["messages"])
    assert len(got.body) < len(LONG)


@pytest.mark.parametrize(
    ("coding", "body", "reason"),
    [
        ("compress", LONG, "unknown_coding"),
        ("gzip", b"no gzip", "bad_coding"),
        ("gzip", gzip.compress(LONG, mtime=0)[:-9], "bad_coding"),
        ("gzip", gzip.compress(LONG, mtime=0) + gzip.compress(b" ", mtime=0), "bad_coding"),
        ("br", brotli.compress(LONG)[:-3], "bad_coding"),
        ("zstd", zstandard.compress(LONG)[:-3], "not_json"),
        ("zstd", zstandard.compress(LONG) + b"more", "bad_coding"),
        ("deflate", zlib.compress(LONG)[:-5], "bad_coding"),
        ("gzip", gzip.compress(b"", mtime=0), "not_json"),
    ],
)
async def test_body_that_can_not_be_opened_passes_untouched(coding: str, body: bytes, reason: str) -> None:
    data = request("POST", "/v1/chat/completions", f"content-encoding: {coding}", body=body)
    got, answer = await sent(data, policies=LOW)
    assert (got.body, got["content-encoding"]) == (body, coding)
    assert answer.told == ("passed", reason)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip"])
async def test_bomb_passes_as_it_came(coding: str) -> None:
    bomb = CODINGS.get(coding, lambda data: gzip.compress(gzip.compress(data, mtime=0), mtime=0))(bytes(8 * MB))
    data = request("POST", "/v1/messages", f"content-encoding: {coding}", body=bomb)
    got, answer = await sent(data, limits={"max_body_bytes": MB})
    assert got.body == bomb
    assert answer.told == ("passed", "too_large")


@pytest.mark.parametrize("form", PATHS)
async def test_body_over_the_limit_passes_unseen(form: str) -> None:
    body = b'{"model": "m", "x": "' + bytes(range(32, 127)) * 5_000 + b'"}'
    data = request("POST", PATHS[form], body=body)
    got, answer = await sent(data, limits={"max_body_bytes": 200_000})
    assert got.body == body
    assert got.all("content-length") == [str(len(body))]
    assert answer.told == ("passed", "too_large")


async def test_chunked_body_over_the_limit_stays_chunked() -> None:
    pieces = [bytes([65 + number]) * 50_000 for number in range(8)]
    data = request("POST", "/v1/messages", "transfer-encoding: chunked", length=False) + chunks(pieces)
    got, answer = await sent(data, limits={"max_body_bytes": 100_000})
    assert got.body == b"".join(pieces)
    assert (got["transfer-encoding"], got.all("content-length")) == ("chunked", [])
    assert answer.told == ("passed", "too_large")


@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_is_exact(over: int) -> None:
    data = request("POST", "/v1/chat/completions", body=SHORT)
    _, answer = await sent(data, limits={"max_body_bytes": len(SHORT) - over})
    assert answer.told == ("passed", "too_large" if over else "below_threshold")


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/files"])
async def test_expect_100_continue(target: str) -> None:
    async with remembering() as (url, got), compactd(configured(url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", target, "Expect: 100-continue", f"content-length: {len(SHORT)}"))
        assert (await client.answer()).status == 100
        await client.send(SHORT)
        assert (await client.answer()).status == 200
    assert got[0].body == SHORT
    assert got[0].all("expect") == []


async def test_expecting_client_is_refused_without_having_to_send() -> None:
    keys = {"provider": {"base_url": "http://127.0.0.1:9", "formats": ["openai-chat"], "api_key": "sk-own"}}
    async with compactd(configured("", upstreams=keys, auth={"keys": ["client-1"]})) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", "Expect: 100-continue", "content-length: 1000"))
        assert (await client.answer()).status == 401


async def test_upload_is_streamed_and_not_kept() -> None:
    """200 MB pass while the provider takes what comes; compactd holds a small part at any time."""
    size, piece = 200 * MB, bytes(MB)
    most = 0

    async def provider(peer: Peer) -> None:
        nonlocal most
        head = await peer.head()
        assert b"content-length: %d\r\n" % size in head
        began = _rss()
        left = size
        while left:
            left -= len(await peer.reader.read(1 << 18))
            most = max(most, _rss() - began)
        await peer.send(response(b"{}"))

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/files", f"content-length: {size}"))
        for _ in range(size // len(piece)):
            await client.send(piece)
        assert (await client.answer()).body == b"{}"
    assert most < 16 * MB


async def test_a_body_is_held_once_while_its_answer_is_waited_for() -> None:
    body = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "%b"}]}' % (b"x" * 8 * MB)
    sent, held = request("POST", "/v1/chat/completions", body=body), 0

    async def provider(peer: Peer) -> None:
        nonlocal held
        await taken(peer)
        held = tracemalloc.get_traced_memory()[0]
        await peer.send(response(b"{}"))

    policies = [{"name": "off", "mode": "off"}]
    async with serve(provider) as server, compactd(configured(server.url, policies=policies)) as proxy:
        client = await proxy.connect()
        tracemalloc.start()
        try:
            await client.send(sent)
            assert (await client.answer()).body == b"{}"
        finally:
            tracemalloc.stop()
    assert len(body) <= held < len(body) * 1.5


async def test_upload_arrives_while_it_is_sent() -> None:
    """The provider sees each piece before the client sends the next one."""
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def provider(peer: Peer) -> None:
        await peer.head()
        for _ in range(5):
            got.put_nowait(await peer.reader.readexactly(4))
        await peer.send(response(b"{}"))

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("PUT", "/upload/v1beta/files", "content-length: 20"))
        for number in range(5):
            await client.send(b"%04d" % number)
            assert await got.get() == b"%04d" % number
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("target", ["/v1/files", "/v1/messages"])
async def test_provider_that_refuses_during_an_upload_is_heard(target: str) -> None:
    """A 413 after the first piece reaches the client, which need not send the rest."""
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 7\r\nconnection: close\r\n\r\ntoo big"

    async def provider(peer: Peer) -> None:
        await peer.head()
        await peer.reader.readexactly(1000)
        await peer.send(refusal)
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url, limits={"max_body_bytes": 1000})) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", target, f"content-length: {10 * MB}"), bytes(70_000))
        answer = await client.answer()
        assert (answer.status, answer.body) == (413, b"too big")


async def test_10_mb_answers() -> None:
    whole = bytes(range(256)) * 40_960
    pieces = [whole[at : at + 100_001] for at in range(0, len(whole), 100_001)]
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks(pieces)
    async with serve(answers(response(whole), chunked)) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        for _ in range(2):
            await client.send(request("POST", "/v1/chat/completions", body=SHORT))
            assert (await client.answer()).body == whole


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_bodies_beyond_what_there_is_room_for_pass_unseen() -> None:
    """All requests together take so much memory and no more; none is refused for it."""
    half = json.dumps({"messages": [{"role": "user", "content": "x" * 60_000}]}).encode()
    limits = {"max_held_bytes": 100_000}
    async with remembering() as (url, got), compactd(configured(url, limits=limits)) as proxy:
        waiting = await proxy.connect()
        data = request("POST", PATHS["openai-chat"], body=half)
        await waiting.send(data[:-1])
        await until(lambda: proxy.app.relay.held > 50_000)
        asked = request("POST", PATHS["openai-chat"], "transfer-encoding: chunked", length=False)
        late = await proxy.connect()
        await late.send(asked, b"%x\r\n%b\r\n" % (len(half), half))
        await until(lambda: proxy.app._upstream.open_connections)  # it is on its way
        await late.send(chunks([half]))
        answer = await late.answer()
        assert (answer.status, answer.told) == (200, ("passed", "no_room"))
        await waiting.send(data[-1:])
        assert (await waiting.answer()).told[0] == "passed"
        assert (await proxy.ask(data)).told == ("passed", "below_threshold")
        await until(lambda: not proxy.app.relay.inflight)
        assert proxy.app.relay.held == 0
    assert [one.body for one in got] == [half * 2, half, half]


async def test_what_a_compressed_body_unfolds_to_is_held_too() -> None:
    """A few hundred bytes that stand for 60,000, for as long as the answer takes."""
    body = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "x" * 60_000}]}).encode())
    data = request("POST", PATHS["openai-chat"], "content-encoding: gzip", body=body)
    go = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await go.wait()
        await peer.send(response(b"{}"))

    async with serve(provider) as server, compactd(configured(server.url, limits={"max_held_bytes": 100_000})) as proxy:
        first, second = await proxy.connect(), await proxy.connect()
        await first.send(data)
        await until(lambda: proxy.app.relay.held > 60_000)
        await second.send(data)
        await until(lambda: len(server.heads) == 2)
        assert proxy.app.relay.held < 100_000
        go.set()
        assert (await first.answer()).told == ("passed", "below_threshold")
        assert (await second.answer()).told == ("passed", "no_room")
        await until(lambda: not proxy.app.relay.inflight)
        assert proxy.app.relay.held == 0


async def test_a_body_that_is_too_large_to_be_seen_goes_to_nobody_by_guess() -> None:
    async with remembering() as (url, got), remembering() as (other, theirs):
        upstreams = {
            "one": {"base_url": url, "formats": ["openai-chat"]},
            "other": {"base_url": other, "formats": ["openai-chat"], "models": ["other-*"]},
        }
        settings = Settings(upstreams=upstreams, store={"url": "memory://"}, limits={"max_body_bytes": 50_000})
        body = b'{"messages": [], "x": "' + b"x" * 200_000 + b'", "model": "other-1"}'
        async with compactd(settings) as proxy:
            refused = await proxy.ask(request("POST", "/v1/chat/completions", body=body))
            assert (refused.status, json.loads(refused.body)["error"]["code"]) == (413, "body_too_large")
            named = await proxy.ask(request("POST", "/other/v1/chat/completions", body=body))
            assert (named.status, named.told) == (200, ("passed", "too_large"))
    assert got == []
    assert [one.body for one in theirs] == [body]


async def test_whoever_sends_slowly_does_not_keep_the_room_from_others() -> None:
    """A few connections and a byte a minute were enough that nobody's conversation was looked at any more."""
    limits = {"max_held_bytes": 100_000, "request_seconds": 1.0}
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 60_000}]}).encode()
    async with remembering() as (url, got), compactd(configured(url, limits=limits)) as proxy:
        slow = await proxy.connect()
        data = request("POST", PATHS["openai-chat"], body=body)
        await slow.send(data[:-10])
        await until(lambda: proxy.app.relay.held > 50_000)
        for at in range(-10, -5):
            await asyncio.sleep(0.25)
            await slow.send(data[at : at + 1])
        await until(lambda: not proxy.app.relay.held)
        assert (await proxy.ask(data)).told == ("passed", "below_threshold")
        await slow.send(data[-5:])
        assert (await slow.answer()).told == ("passed", "no_room")
    assert [one.body for one in got] == [body, body]
