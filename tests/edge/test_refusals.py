"""What an answer says, and that it can still be handed on as it came, whatever was read of it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from app.edge import refusals
from app.edge.refusals import LONGEST, Refusal, refusal
from app.errors import UpstreamFailed

TEMPLATE = b'{"error": {"message": "jinja: roles must alternate"}}'
EVENT = b"event: error\ndata: " + TEMPLATE + b"\n\n"


class Chunks(httpx.AsyncByteStream):
    """Chunks as they come; between them it can wait for seconds or break. Like the upstream's own, waiting can be given up and taken up."""

    def __init__(self, *chunks: bytes | float | httpx.TransportError) -> None:
        self._chunks = list(chunks)
        self.closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while self._chunks:
            if isinstance(self._chunks[0], float):
                await asyncio.sleep(self._chunks[0])
            chunk = self._chunks.pop(0)
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, bytes):
                return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True


def answer(status: int, *chunks: bytes | float | httpx.TransportError, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, stream=Chunks(*chunks))


def events(*chunks: bytes | float | httpx.TransportError, **headers: str) -> httpx.Response:
    return answer(200, *chunks, content_type="text/event-stream; charset=utf-8", **headers)


async def body(response: httpx.Response) -> bytes:
    return b"".join([chunk async for chunk in response.stream])  # type: ignore[union-attr]


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_a_status_says_it(status: int, pack: type[bytes]) -> None:
    sent = pack(b'{"error": "no"}')
    coding = {} if pack is bytes else {"content_encoding": "gzip"}
    response, said = await refusal(answer(status, sent[:9], sent[9:], **coding), streams=False)
    assert said == Refusal(status, b'{"error": "no"}')
    assert (response.status_code, await body(response)) == (status, sent)


@pytest.mark.parametrize("status", [200, 401, 404, 429, 500, 502, 529])
async def test_others_say_nothing_of_it(status: int) -> None:
    response, said = await refusal(answer(status, b'{"error": ', b'"no"}'), streams=True)
    assert said is None
    assert (response.status_code, await body(response)) == (status, b'{"error": "no"}')


async def test_a_500_says_it_in_words() -> None:
    response, said = await refusal(answer(500, TEMPLATE), streams=False)
    assert said == Refusal(500, TEMPLATE)
    assert await body(response) == TEMPLATE


async def test_what_says_too_much_is_handed_on_as_it_comes() -> None:
    parts = [b"x" * (LONGEST // 2)] * 3
    response, said = await refusal(answer(400, *parts), streams=False)
    assert said is None
    assert await body(response) == b"".join(parts)


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_the_first_event_of_a_stream_says_it(size: int) -> None:
    pieces = [EVENT[at : at + size] for at in range(0, len(EVENT), size)]
    response, said = await refusal(events(*pieces, b"data: [DONE]\n\n"), streams=True)
    assert said == Refusal(500, TEMPLATE)
    assert await body(response) == EVENT + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "stream",
    [
        [b'data: {"choices": []}\n\n', EVENT],
        [b'data: {"error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'],
        [b"data: " + b"x" * (refusals.FIRST_EVENT + 1), b"\n\n", EVENT],
        [],
    ],
    ids=["not the first", "another error", "too long", "empty"],
)
async def test_any_other_stream_is_handed_on(stream: list[bytes]) -> None:
    response, said = await refusal(events(*stream), streams=True)
    assert said is None
    assert await body(response) == b"".join(stream)


async def test_a_stream_that_ends_without_a_line_feed() -> None:
    assert (await refusal(events(EVENT.strip()), streams=True))[1] == Refusal(500, TEMPLATE)


async def test_a_stream_that_is_packed_or_not_asked_about_is_not_looked_at() -> None:
    for response in (events(EVENT, content_encoding="gzip"), answer(200, EVENT, content_type="application/json")):
        assert await refusal(response, streams=True) == (response, None)
    response = events(EVENT)
    assert await refusal(response, streams=False) == (response, None)


async def test_a_stream_that_takes_its_time_is_not_waited_for_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.edge.refusals.FIRST_EVENT_SECONDS", 0.02)
    response, said = await refusal(events(b": at work\n\n", 0.1, EVENT), streams=True)
    assert said is None
    assert await body(response) == b": at work\n\n" + EVENT


@pytest.mark.parametrize("begun", [answer(400, b"{", httpx.ReadError("")), events(b":\n", httpx.ReadError(""))])
async def test_what_breaks_off_before_it_said_anything_is_the_upstreams_failure(begun: httpx.Response) -> None:
    with pytest.raises(UpstreamFailed):
        await refusal(begun, streams=True)


async def test_what_was_read_in_part_is_closed_with_its_copy() -> None:
    sent = Chunks(EVENT)
    response, _ = await refusal(
        httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=sent), streams=True
    )
    await response.aclose()
    assert sent.closed


@pytest.mark.parametrize("ends", [httpx.ReadError(""), 30.0], ids=["broken off", "given up"])
@pytest.mark.parametrize("status", [200, 400])
async def test_what_nobody_waits_for_any_more_is_closed(status: int, ends: float | httpx.TransportError) -> None:
    """Else its provider would go on answering, and its connection would be nobody's."""
    sent = Chunks(b": at work\n", ends)
    response = httpx.Response(status, headers={"content-type": "text/event-stream"}, stream=sent)
    waiting = asyncio.create_task(refusal(response, streams=True))
    await asyncio.sleep(0)
    waiting.cancel() if isinstance(ends, float) else None
    with pytest.raises(asyncio.CancelledError if isinstance(ends, float) else UpstreamFailed):
        await waiting
    assert sent.closed
