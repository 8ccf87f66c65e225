"""Usage is seen in every grammar, coding and split, in huge and in broken answers; and the client gets its bytes as if nobody looked."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import brotli
import pytest
import zstandard

from app.core.sse import ENDS, MAX_LINE
from app.edge.watcher import TAIL, Watcher
from app.formats import FORMATS
from app.formats.base import Usage
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import PATHS, compactd, configured, request, taken, until
from tests.strict.answers import Answer, Call, Reply, chat, generate, messages, responses
from tests.strict.prefix_cache import Usage as Told

GRAMMARS: dict[str, Any] = {
    "openai-chat": chat, "openai-responses": responses, "anthropic-messages": messages, "gemini": generate,
}  # fmt: skip
SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
EVERY = pytest.mark.parametrize("form", FORMATS)
WORDS = 'Is "usage": {"input_tokens": 9} in the text? 日本語 😀 data: {"usage": 1}\n\n'


def answer(text: str = WORDS, **more: Any) -> Answer:
    """An answer of the strict provider's: 1,200 tokens in, 900 of them cached, 100 written to the cache, 40 out."""
    reply = Reply(text, (Call("read", {"usage": {"prompt_tokens": 5}}),), "Hm. ")
    return Answer(reply, Told(1_200, 40, 900, 100, 10), "m", "0123456789abcdef" * 2, seal="c2VhbA==", **more)


def reported(form: str) -> Usage:
    """Only Anthropic tells what was written to the cache."""
    return Usage(1_200, 40, 900, 100 if form == "anthropic-messages" else 0)


def stream(form: str, **more: Any) -> bytes:
    return b"".join(GRAMMARS[form].events(answer(**more)))


def whole(form: str, text: str = WORDS) -> bytes:
    return json.dumps(GRAMMARS[form].whole(answer(text))).encode()


def array() -> bytes:
    return b"".join(generate.array(answer()))


def split(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def watch(form: str, chunks: Iterable[bytes], kind: str = SSE, coding: str = "") -> Watcher:
    watcher = Watcher(FORMATS[form], kind, coding)
    for chunk in chunks:
        watcher.feed(chunk)
    watcher.end()
    return watcher


@EVERY
@pytest.mark.parametrize("size", [1, 2, 3, 16, 100, 1 << 20])
def test_streams(form: str, size: int) -> None:
    watcher = watch(form, split(stream(form), size))
    assert (watcher.usage, watcher.terminal) == (reported(form), True)


@EVERY
@pytest.mark.parametrize("size", [1, 3, 100, 1 << 20])
def test_plain_answers(form: str, size: int) -> None:
    assert watch(form, split(whole(form), size), JSON).usage == reported(form)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1 << 20])
def test_gemini_stream_that_is_one_array(size: int) -> None:
    watcher = watch("gemini", split(array(), size), JSON)
    assert (watcher.usage, watcher.terminal) == (reported("gemini"), True)


def test_chat_stream_that_was_not_asked_for_usage() -> None:
    watcher = watch("openai-chat", split(stream("openai-chat", with_usage=False), 9))
    assert (watcher.usage, watcher.terminal) == (None, True)


@pytest.mark.parametrize(
    ("event", "usage"),
    [
        ({"x_groq": {"id": "r", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}, "choices": []}, Usage(12, 3)),
        (
            {"choices": [{"delta": {}, "usage": {"prompt_tokens": 12, "completion_tokens": 3, "cached_tokens": 8}}]},
            Usage(12, 3, 8),
        ),
        (
            {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_cache_hit_tokens": 8}},
            Usage(12, 3, 8),
        ),
        (
            {
                "choices": [],
                "usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2}},
            },
            Usage(12, 0, 8, 2),
        ),
        ({"choices": [], "usage": None}, None),
    ],
)
def test_where_chat_servers_put_it(event: dict[str, Any], usage: Usage | None) -> None:
    data = (
        b'data: {"choices": [{"delta": {"content": "a"}}], "usage": null}\n\ndata: %b\n\ndata: [DONE]\n\n'
        % json.dumps(event).encode()
    )
    assert watch("openai-chat", split(data, 5)).usage == usage


def test_anthropic_counts_what_comes_from_and_goes_to_the_cache() -> None:
    data = (
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 900, '
        b'"cache_creation_input_tokens": 97, "output_tokens": 1}}}\n\nevent: message_delta\ndata: {"type": "message_delta", '
        b'"usage": {"output_tokens": 25}}\n\n'
    )
    assert watch("anthropic-messages", split(data, 4)).usage == Usage(1_000, 25, 900, 97)


def test_anthropic_tells_the_prompt_at_once() -> None:
    """A client that leaves in the middle of an answer: what the prompt was is known all the same."""
    data = stream("anthropic-messages")
    half = watch("anthropic-messages", [data[: data.index(b"content_block_start")]])
    assert half.usage is not None
    assert (half.usage.input, half.usage.cache_read, half.usage.cache_write) == (1_200, 900, 100)
    assert not half.terminal


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_last_events_of_responses(kind: str) -> None:
    event = {"type": f"response.{kind}", "response": {"status": kind, "usage": {"input_tokens": 7, "output_tokens": 2}}}
    data = b'data: {"type": "response.created", "response": {"usage": null}}\n\nevent: response.%b\ndata: %b\n\n' % (
        kind.encode(), json.dumps(event).encode(),
    )  # fmt: skip
    watcher = watch("openai-responses", split(data, 11))
    assert (watcher.usage, watcher.terminal) == (Usage(7, 2), True)


def test_gemini_chunks_that_tell_a_part() -> None:
    chunks = [
        {"promptTokenCount": 9, "cachedContentTokenCount": 4},
        {"promptTokenCount": 9, "candidatesTokenCount": 2},
        {"totalTokenCount": 11},
    ]
    data = b"".join(b"data: %b\r\n\r\n" % json.dumps({"usageMetadata": chunk}).encode() for chunk in chunks)
    assert watch("gemini", split(data, 3)).usage == Usage(9, 2, 4)
    snake = b'data: {"usage_metadata": {"prompt_token_count": 9, "thoughts_token_count": 5}}\n\n'
    assert watch("gemini", [snake]).usage == Usage(9, 5)


# Codings


def flushed(pack: Any) -> Callable[[bytes], bytes]:
    """Packed as a server does it that flushes after each event."""

    def packed(data: bytes) -> bytes:
        coder, out = pack(), b""
        for piece in data.split(b"\n\n"):
            out += coder[0](piece + b"\n\n") + coder[1]()
        return out + coder[2]()

    return packed


def _zlib(wbits: int) -> Any:
    coder = zlib.compressobj(wbits=wbits)
    return coder.compress, lambda: coder.flush(zlib.Z_SYNC_FLUSH), coder.flush


def _brotli() -> Any:
    coder = brotli.Compressor(quality=4)
    return coder.process, coder.flush, coder.finish


def _zstd() -> Any:
    coder = zstandard.ZstdCompressor().compressobj()
    return coder.compress, lambda: coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), coder.flush


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip flushed": ("GZIP", flushed(lambda: _zlib(31))),
    "gzip in members": ("x-gzip", lambda data: b"".join(gzip.compress(part) for part in split(data, 300))),
    "deflate": ("deflate", zlib.compress),
    "deflate flushed": ("deflate", flushed(lambda: _zlib(15))),
    "deflate raw": ("deflate", flushed(lambda: _zlib(-15))),
    "br": ("br", brotli.compress),
    "br flushed": ("br", flushed(_brotli)),
    "zstd": ("zstd", zstandard.compress),
    "zstd flushed": ("zstd", flushed(_zstd)),
    "zstd in frames": ("zstd", lambda data: b"".join(zstandard.compress(part) for part in split(data, 300))),
    "two": ("gzip, br", lambda data: brotli.compress(gzip.compress(data))),
    "identity": ("identity", bytes),
}
PACKED = pytest.mark.parametrize("packer", PACKERS)


@EVERY
@PACKED
@pytest.mark.parametrize("size", [1, 13, 4_096])
def test_compressed_streams(form: str, packer: str, size: int) -> None:
    coding, pack = PACKERS[packer]
    watcher = watch(form, split(pack(stream(form)), size), SSE, coding)
    assert (watcher.usage, watcher.terminal) == (reported(form), True)


@PACKED
@pytest.mark.parametrize("size", [1, 13, 4_096])
def test_compressed_array(packer: str, size: int) -> None:
    coding, pack = PACKERS[packer]
    assert watch("gemini", split(pack(array()), size), JSON, coding).usage == reported("gemini")


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_what_is_not_what_it_says_is_not_watched(coding: str) -> None:
    assert watch("openai-chat", split(stream("openai-chat"), 50), SSE, coding).usage is None
    assert watch("openai-chat", split(stream("openai-chat"), 50), SSE, "exi").usage is None


def test_damage_in_the_middle_takes_nothing_back() -> None:
    data = flushed(lambda: _zlib(31))(stream("anthropic-messages"))
    start = gzip.decompress(gzip.compress(b"")) + data
    watcher = Watcher(FORMATS["anthropic-messages"], SSE, "gzip")
    watcher.feed(start[: len(start) // 2])
    watcher.feed(b"\xff" * 500)
    watcher.feed(start[len(start) // 2 :])
    watcher.end()
    assert watcher.usage is not None
    assert watcher.usage.input == 1_200


# Huge answers

NOISE = random.Random(7).randbytes(3 << 20).hex()
"""Six million characters."""
PLACE = "PLACEHOLDER"


def swollen(data: bytes, size: int) -> bytes:
    """With so many characters of noise wherever the answer's text stands as a whole."""
    return data.replace(PLACE.encode(), NOISE[:size].encode())


@EVERY
def test_huge_plain_answer(form: str) -> None:
    data = whole(form, NOISE)
    watcher = Watcher(FORMATS[form], JSON, "")
    chunks = [*split(data, 64 << 10)]
    tracemalloc.start()
    for chunk in chunks:
        watcher.feed(chunk)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    watcher.end()
    assert watcher.usage == reported(form)
    assert kept < 8 * ENDS


def test_huge_array() -> None:
    data = swollen(b"".join(generate.array(answer(PLACE))), 40 * ENDS)
    assert len(data) > 40 * ENDS
    watcher = watch("gemini", split(data, 5_000), JSON)
    assert (watcher.usage, watcher.terminal) == (reported("gemini"), True)


@pytest.mark.parametrize("size", [10_000, 300_000, MAX_LINE, MAX_LINE + ENDS, 5_000_000])
def test_event_that_repeats_the_whole_answer(size: int) -> None:
    """`response.completed` does: text, tools, pictures; its usage comes near the end."""
    data = swollen(b"".join(responses.events(answer(PLACE))), size)
    watcher = watch("openai-responses", split(data, 16 << 10))
    assert (watcher.usage, watcher.terminal) == (reported("openai-responses"), True)


def test_usage_ahead_of_a_huge_answer() -> None:
    data = json.dumps(
        {"usage": {"prompt_tokens": 7, "completion_tokens": 2}, "choices": [{"message": {"content": NOISE}}]}
    ).encode()
    assert watch("openai-chat", split(data, 60_000), JSON).usage == Usage(7, 2)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b'event: error\ndata: {"error": {"message": "no"}}\n\n', b'{"error": {"message": "no"}}'),
        (b': hello\n\ndata: {"error": "no"}\n\ndata: [DONE]\n\n', b'{"error": "no"}'),
        (b'data: {"choices": [], "error": null}\n\ndata: {"error": "late"}\n\n', b""),
        (b'data: {"choices": [{"delta": {"content": "error"}}]}\n\n', b""),
        (b'data: {"error": "cut', b""),
        (b"data: [DONE]\n\n", b""),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_stream_that_begins_with_an_error(stream: bytes, error: bytes, size: int) -> None:
    watcher = Watcher(FORMATS["openai-chat"], "text/event-stream", "")
    for at in range(0, len(stream), size):
        watcher.feed(stream[at : at + size])
    watcher.end()
    assert watcher.error == error


def test_tail_is_where_the_end_is_told() -> None:
    watcher = watch("openai-chat", [b"data: [DONE]\n\n", *[b": bye\n"] * TAIL])
    assert not watcher.terminal


# Broken and odd answers


@EVERY
def test_broken_stream_gives_what_had_come(form: str) -> None:
    data = stream(form)
    last = data.rindex(b"usage")
    for cut in (last - 200, len(data) // 2, 20, 0):
        watcher = watch(form, split(data[: max(0, cut)], 33))
        assert watcher.usage is None or watcher.usage.input in (0, 1_200)
        assert not watcher.terminal or form in ("gemini", "openai-responses")  # these name it ahead of their figures


@pytest.mark.parametrize("missing", [1, 5, 40, 200])
def test_broken_array_gives_what_had_come(missing: int) -> None:
    watcher = watch("gemini", split(array()[:-missing], 50), JSON)
    assert watcher.usage is not None
    assert (watcher.usage.input, watcher.usage.cache_read) == (1_200, 900)


def test_last_event_without_its_line_end() -> None:
    assert watch("openai-responses", split(stream("openai-responses").rstrip(), 50)).usage == reported(
        "openai-responses"
    )


@pytest.mark.parametrize("content_type", ["text/event-stream", "Text/Event-Stream;charset=UTF-8"])
def test_kinds_of_streams(content_type: str) -> None:
    assert watch("openai-chat", [stream("openai-chat")], content_type).usage == reported("openai-chat")


@EVERY
@pytest.mark.parametrize("kind", [JSON, SSE, "", "text/html"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"usage"',
        b'data: {"usage":\n\n',
        b"<html>usage</html>",
        b"\xff\xfe",
        b"data: [1, {}]usage\n",
    ],
)
def test_nonsense_is_no_usage(form: str, kind: str, data: bytes) -> None:
    assert watch(form, split(data, 3), kind).usage is None


@EVERY
@pytest.mark.parametrize(
    "told", [None, [], "x", {"input_tokens": "7", "prompt_tokens": None}, {"input_tokens": -1, "promptTokenCount": -1}]
)
def test_figures_that_are_none_count_nothing(form: str, told: Any) -> None:
    key = "usageMetadata" if form == "gemini" else "usage"
    watcher = watch(form, [b"data: " + json.dumps({key: told}).encode() + b"\n\n"])
    assert watcher.usage in (None, Usage())


# Through the relay


@EVERY
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
async def test_compressed_stream_through_the_relay(form: str, coding: str) -> None:
    """Each piece is passed on as it comes, in its coding, and what it says of usage is counted."""
    packer = {"gzip": _zlib(31), "br": _brotli(), "zstd": _zstd(), "deflate": _zlib(15)}[coding]
    pieces = [packer[0](event) + packer[1]() for event in GRAMMARS[form].events(answer())]
    pieces.append(packer[2]())
    pieces = [piece for piece in pieces if piece]
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(head.encode())
        for piece in pieces:
            await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            assert await arrived.get() == piece
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    data = json.dumps(
        {"model": "gpt-4o", FORMATS[form].history: [json.loads(FORMATS[form].note("Hi."))], "stream": True}
    ).encode()
    path = PATHS[form].replace("generateContent", "streamGenerateContent?alt=sse")
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", path, "accept-encoding: gzip, br, zstd, deflate", body=data))
        assert (await client.head())["content-encoding"] == coding
        for _ in pieces:
            arrived.put_nowait(await client.piece())
        assert await client.piece() == b""
        model = proxy.app.relay.wiring.registry.label("gemini-2.5-flash" if form == "gemini" else "gpt-4o")
        labels = {"upstream": "provider", "model": model}
        await until(lambda: proxy.metric("upstream_tokens_total", kind="input", **labels) == 1_200)
        assert proxy.metric("upstream_tokens_total", kind="cache_read", **labels) == 900


async def test_usage_of_a_stream_that_broke_off_is_counted() -> None:
    data = stream("anthropic-messages")
    half = data[: data.index(b"content_block_stop")]

    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(b"%x\r\n%b\r\n" % (len(half), half))
        peer.reset()

    body = b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "Hi."}]}'
    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("POST", "/v1/messages", "anthropic-version: 2023-06-01", body=body))
        await client.head()
        await client.rest()
        labels = {"upstream": "provider", "model": proxy.app.relay.wiring.registry.label("claude-sonnet-4-5")}
        await until(lambda: proxy.metric("upstream_tokens_total", kind="input", **labels) == 1_200)


def test_strict_answers_are_what_this_file_says() -> None:
    """The figures above are the provider's own: its answer is taken apart by hand here."""
    told = json.loads(whole("anthropic-messages"))["usage"]
    assert told["input_tokens"] + told["cache_read_input_tokens"] + told["cache_creation_input_tokens"] == 1_200
    assert json.loads(array())[-1]["usageMetadata"]["promptTokenCount"] == 1_200
    assert replace(reported("gemini"), cache_write=100) == reported("anthropic-messages")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_an_answer_that_unfolds_without_end_is_not_followed(coding: str) -> None:
    """A few kilobytes that stand for 200 megabytes: the copy is given up, the answer goes on."""
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress, "deflate": zlib.compress, "br": lambda data: brotli.compress(data, quality=1), "zstd": zstandard.compress,
    }  # fmt: skip
    packed = pack[coding](bytes(200 << 20))
    watcher = Watcher(FORMATS["openai-chat"], JSON, coding)
    tracemalloc.start()
    watcher.feed(packed)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    watcher.end()
    assert most < 48 << 20
    assert watcher.usage is None
