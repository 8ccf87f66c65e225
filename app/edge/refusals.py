"""What a provider says when it refuses a request: read before anything of its answer goes to the client.

Most refuse by a status. Some servers of local models do so by a 500, and some have said 200 by then, so that their refusal is the first
event of a stream. In both cases only their words tell it from a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from app.core.sse import first_error
from app.edge.bodies import open_coding
from app.edge.forwarding import upstream_failure
from app.errors import NotCompactable
from app.formats import wording

LONGEST = 1 << 20
"""Bytes of an error answer that are read before deciding; a longer one is passed on as it comes."""
STATUSES = frozenset({400, 413, 422})
SOMETIMES = 500
"""The status that some servers refuse a request by, and that stands for a refusal in a stream."""
FIRST_EVENT, FIRST_EVENT_SECONDS = 16 << 10, 1.0
"""How much of a stream, and for how long, is waited for its first event: a template refuses before the model has begun to read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """`said`: its body, or the payload of its event, without any coding."""

    status: int
    said: bytes


async def refusal(response: httpx.Response, streams: bool) -> tuple[httpx.Response, Refusal | None]:
    """The answer, still to be handed on, and what it says if it refuses the request; None otherwise. Of `streams` the first event is waited
    for, which is worth it only if something better can be sent. Raises UpstreamFailed where the answer breaks off; it is closed then, and
    so it is where nobody waits any more."""
    sent, status = response, response.status_code
    try:
        if status in STATUSES or status == SOMETIMES:
            response, said = await _whole(response)
        elif streams and status == 200 and _is_plain_stream(response.headers):
            status = SOMETIMES
            response, said = await _first_event(response)
        else:
            return response, None
    except BaseException as fault:
        await sent.aclose()
        if isinstance(fault, httpx.TransportError):
            raise upstream_failure(fault, "the upstream") from None
        raise
    if said is None or (status == SOMETIMES and not wording.is_refusal(status, said)):
        return response, None
    return response, Refusal(status, said)


def _is_plain_stream(headers: httpx.Headers) -> bool:
    return "event-stream" in headers.get("content-type", "") and "content-encoding" not in headers


async def _whole(response: httpx.Response) -> tuple[httpx.Response, bytes | None]:
    """None where it says too much to be read."""
    chunks: list[bytes] = []
    size, stream = 0, aiter(response.stream)  # type: ignore[arg-type]
    async for chunk in stream:
        chunks.append(chunk)
        size += len(chunk)
        if size > LONGEST:
            return _again(response, chunks, stream), None
    await response.aclose()
    said = b"".join(chunks)
    with contextlib.suppress(NotCompactable):
        said = open_coding(said, response.headers.get("content-encoding", ""), LONGEST)
    return _again(response, chunks, None), said


async def _first_event(response: httpx.Response) -> tuple[httpx.Response, bytes | None]:
    """None where it is no error, or does not come soon."""
    chunks: list[bytes] = []
    start, said, stream = b"", None, aiter(response.stream)  # type: ignore[arg-type]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_EVENT_SECONDS):
            async for chunk in stream:
                chunks.append(chunk)
                start += chunk
                said = first_error(start)
                if said is not None or len(start) > FIRST_EVENT:
                    break
            else:
                said = first_error(start + b"\n")
    return _again(response, chunks, stream), said or None


class _Replayed(httpx.AsyncByteStream):
    def __init__(self, chunks: list[bytes], rest: AsyncIterator[bytes] | None, response: httpx.Response) -> None:
        self._chunks, self._rest, self._response = chunks, rest, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._rest is not None:
            async for chunk in self._rest:
                yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


def _again(response: httpx.Response, chunks: list[bytes], rest: AsyncIterator[bytes] | None) -> httpx.Response:
    return httpx.Response(response.status_code, headers=response.headers, stream=_Replayed(chunks, rest, response))
