"""Taking bodies in, opening codings within a bound, watching answers."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from app.edge.bodies import DECODERS, ClientGone, TooFar, open_coding, take_body
from app.edge.watcher import TAIL, Watcher
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.base import Usage

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": zstandard.compress,
}
MB = 1 << 20


def receiving(*messages: dict[str, Any]) -> Callable[[], Any]:
    waiting = iter(messages)

    async def receive() -> Any:
        return next(waiting)

    return receive


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_whole_body() -> None:
    assert await take_body(receiving(part(b"a"), part(b""), part(b"bc", more=False)), 10) == ([b"a", b"bc"], True)
    assert await take_body(receiving({"type": "http.request"}), 10) == ([], True)


async def test_body_over_the_limit_is_left_where_it_is() -> None:
    receive = receiving(part(b"abc"), part(b"defg"), part(b"rest"))
    assert await take_body(receive, 5) == ([b"abc", b"defg"], False)
    assert (await receive())["body"] == b"rest"


async def test_client_gone_in_the_body() -> None:
    with pytest.raises(ClientGone):
        await take_body(receiving(part(b"abc"), {"type": "http.disconnect"}), 5)


@pytest.mark.parametrize("coding", PACK)
@settings(deadline=None)
@given(data=st.binary(max_size=2_000))
def test_opening_is_the_reverse_of_packing(coding: str, data: bytes) -> None:
    assert open_coding(PACK[coding](data), coding, 2_000) == data
    assert open_coding(PACK[coding](PACK["gzip"](data)), f" gzip , {coding.upper()}", 2_100) == data


@pytest.mark.parametrize("coding", PACK)
@settings(deadline=None)
@given(data=st.binary(max_size=300), cut=st.integers(0, 300), flip=st.integers(0, 300))
def test_damaged_bodies_are_refused_or_read_and_nothing_else(coding: str, data: bytes, cut: int, flip: int) -> None:
    packed = bytearray(PACK[coding](data))[: max(1, cut)]
    packed[flip % len(packed)] ^= 0x55
    reason = ""
    try:
        open_coding(bytes(packed), coding, 1_000)
    except NotCompactable as refusal:
        reason = refusal.reason
    assert reason in ("", "bad_coding", "too_large")


@pytest.mark.parametrize("coding", PACK)
@settings(deadline=None)
@given(data=st.binary(max_size=2_000), size=st.integers(1, 400))
def test_pieces_are_opened_as_the_whole_is(coding: str, data: bytes, size: int) -> None:
    packed, decoder = PACK[coding](data), DECODERS[coding]()
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(decoder.decompress(piece, 2_000) for piece in pieces) == data
    assert decoder.whole


@pytest.mark.parametrize("coding", PACK)
def test_a_piece_that_unfolds_too_far_is_given_up(coding: str) -> None:
    assert DECODERS[coding]().decompress(PACK[coding](bytes(1_000)), 1_000) == bytes(1_000)
    with pytest.raises(TooFar):
        DECODERS[coding]().decompress(PACK[coding](bytes(1_000)), 999)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_body_that_is_cut_short_or_has_more_behind_it_is_not_taken(coding: str) -> None:
    packed = PACK[coding](b"hello")
    for body in (packed[:-1], packed + packed, b""):
        with pytest.raises(NotCompactable, match="bad_coding"):
            open_coding(body, coding, 1_000)


def test_only_so_many_gzip_members_are_opened() -> None:
    """A body of 32 MB of nothing else would have held the event loop for minutes: each end was looked for in all that follows."""
    nothing = gzip.compress(b"")
    assert DECODERS["gzip"]().decompress(nothing * 10_000, 100) == b""
    with pytest.raises(TooFar):
        DECODERS["gzip"]().decompress(nothing * 10_001, 100)


def test_raw_deflate_is_read_too() -> None:
    pack = zlib.compressobj(wbits=-15)
    assert open_coding(pack.compress(b"hello") + pack.flush(), "deflate", 10) == b"hello"


@pytest.mark.parametrize("coding", PACK)
def test_the_bound_is_exact(coding: str) -> None:
    packed = PACK[coding](bytes(1_000))
    assert len(open_coding(packed, coding, 1_000)) == 1_000
    with pytest.raises(NotCompactable, match="too_large"):
        open_coding(packed, coding, 999)


@pytest.mark.parametrize("coding", [*PACK, "gzip, gzip", "zstd, br"])
def test_bomb_takes_no_more_memory_than_the_bound(coding: str) -> None:
    bomb = bytes(256 * MB)
    for name in coding.split(", "):
        bomb = PACK[name](bomb)
    tracemalloc.start()
    with pytest.raises(NotCompactable, match="too_large"):
        open_coding(bomb, coding, MB)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * MB


@pytest.mark.parametrize(
    ("coding", "reason"),
    [
        ("compress", "unknown_coding"),
        ("gzip, aws-chunked", "unknown_coding"),
        ("gzip, br, gzip, br", "unknown_coding"),
        ("gzip", "bad_coding"),
    ],
)
def test_coding_that_is_not_ours(coding: str, reason: str) -> None:
    with pytest.raises(NotCompactable, match=reason):
        open_coding(b"hello", coding, 10)


def test_no_coding() -> None:
    assert open_coding(b"hello", "identity", 10) == b"hello"
    assert open_coding(b"hello", " ,", 10) == b"hello"


def watched(
    form: str, data: bytes, size: int, kind: str = "text/event-stream; charset=utf-8", coding: str = ""
) -> Watcher:
    watcher = Watcher(FORMATS[form], kind, coding)
    for at in range(0, len(data), size):
        watcher.feed(data[at : at + size])
    watcher.end()
    return watcher


STREAMS = {
    "openai-chat": (
        b'data: {"choices": [], "usage": null}\n\ndata: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, '
        b'"prompt_tokens_details": {"cached_tokens": 5}}}\n\ndata: [DONE]\n\n',
        Usage(7, 3, 5),
    ),
    "openai-responses": (
        b'event: response.completed\ndata: {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 3, '
        b'"input_tokens_details": {"cached_tokens": 5}}}}\n\n',
        Usage(7, 3, 5),
    ),
    "anthropic-messages": (
        b'event: message_start\r\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 2, "cache_read_input_tokens": 5, '
        b'"cache_creation_input_tokens": 4, "output_tokens": 1}}}\r\n\r\ndata: {"type": "message_delta", "usage": {"output_tokens": 3}}\r\n'
        b'\r\ndata: {"type": "message_stop"}\r\n\r\n',
        Usage(11, 3, 5, 4),
    ),
    "gemini": (
        b'data: {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, '
        b'"cachedContentTokenCount": 5}}\n\n',
        Usage(7, 3, 5),
    ),
}


@pytest.mark.parametrize("form", STREAMS)
@settings(deadline=None)
@given(size=st.integers(1, 400))
def test_usage_is_found_at_any_split(form: str, size: int) -> None:
    data, usage = STREAMS[form]
    watcher = watched(form, data, size)
    assert (watcher.usage, watcher.terminal) == (usage, True)


@pytest.mark.parametrize("form", STREAMS)
def test_stream_that_broke_off_is_not_over(form: str) -> None:
    assert not watched(form, STREAMS[form][0][:20], 7).terminal


@pytest.mark.parametrize("coding", PACK)
def test_compressed_answers_are_read(coding: str) -> None:
    data, usage = STREAMS["openai-chat"]
    watcher = watched("openai-chat", PACK[coding](data), 11, coding=coding)
    assert (watcher.usage, watcher.terminal) == (usage, True)


@pytest.mark.parametrize("coding", ["snappy", "gzip, br", "br"])
def test_answer_in_a_coding_that_can_not_be_read_is_not_watched(coding: str) -> None:
    assert watched("openai-chat", STREAMS["openai-chat"][0], 11, coding=coding).usage is None


def test_plain_json_answer() -> None:
    whole = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}}, indent=1).encode()
    assert watched("openai-chat", whole, 5, "application/json").usage == Usage(7, 3)


def test_gemini_streams_json_arrays_too() -> None:
    whole = b'[{"candidates": []},\n{"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3}}]'
    assert watched("gemini", whole, 9, "application/json").usage == Usage(7, 3)


def test_huge_json_answer_is_not_kept() -> None:
    piece = b" " * MB
    tracemalloc.start()
    watcher = Watcher(FORMATS["openai-chat"], "application/json", "")
    for _ in range(16):
        watcher.feed(bytes(piece))
    watcher.end()
    assert tracemalloc.get_traced_memory()[0] < MB
    tracemalloc.stop()
    assert watcher.usage is None


def test_tail_is_short() -> None:
    watcher = watched("openai-chat", b"data: [DONE]\n\n" + b": bye" * TAIL, 999)
    assert not watcher.terminal


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=60), max_size=8),
    st.sampled_from(list(FORMATS)),
    st.sampled_from(["", "gzip", "br", "zstd", "deflate"]),
)
def test_watching_never_raises(chunks: list[bytes], form: str, coding: str) -> None:
    for kind in ("text/event-stream", "application/json"):
        watcher = Watcher(FORMATS[form], kind, coding)
        for chunk in chunks:
            watcher.feed(b"data: " + chunk + b'usage"}\n')
        watcher.end()
