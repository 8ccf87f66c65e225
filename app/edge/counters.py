"""The providers' own counting endpoints, as a rung of the counting ladder.

Asked through the client's own upstream and credentials, and only where the local figure lies so near to the threshold that it can't
decide. An answer is kept for its body. An endpoint that does not answer in time, or not with a figure, is not asked again for a while
for that client: the local figures stand.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import httpx
import xxhash

from app.core import jsonspan
from app.core.recent import Recent
from app.edge.bodies import open_coding
from app.edge.exchange import Wiring
from app.edge.forwarding import address, whole_answer
from app.edge.headers import own_query, request_headers
from app.edge.traces import NO_TRACES, Traces
from app.edge.upstream import Upstream
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.base import CountCall, Target
from app.ports import Recorder, Span
from app.request import Ask

PATIENCE = 2.0
"""Seconds that a request waits for a provider's count at most."""
PAUSE = 60.0
"""Seconds for which an endpoint that failed is not asked again."""
KEPT, FAILURES = 1_024, 4_096
"""Answers that are kept, for a client that asks the same again, and endpoints of tenants that failed."""
LONGEST_ANSWER = 64 << 10


class _Failed(Exception):
    """The endpoint has no figure; a short word says why."""


class ProviderCounter:
    """`patience` and `pause` in seconds."""

    def __init__(
        self,
        wiring: Callable[[], Wiring],
        client: Upstream,
        recorder: Recorder,
        patience: float = PATIENCE,
        pause: float = PAUSE,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._wiring = wiring
        self._client = client
        self._recorder = recorder
        self._patience = patience
        self._pause = pause
        self._seed = secrets.randbits(63)
        self._known: Recent[bytes, int] = Recent(KEPT)
        self._resting: Recent[tuple[str, str, str], float] = Recent(FAILURES)

    async def count(self, ask: Ask, body: bytes, beta: str = "") -> int | None:
        """Input tokens of `body` by the provider, None if it can't tell. `beta`: what its beta header has to say for the body's sake."""
        call = FORMATS[ask.format].counting(ask.client_model, ask.path)
        if call is None:
            return None
        hasher = xxhash.xxh3_128(f"{ask.tenant}\0{ask.upstream}\0{ask.path}\0{beta}\0".encode(), seed=self._seed)
        hasher.update(body)
        key, where = hasher.digest(), (ask.upstream, ask.format, ask.tenant)
        if (known := self._known.get(key)) is not None:
            return known
        if (self._resting.get(where) or 0.0) > time.monotonic():
            return None
        try:
            async with asyncio.timeout(self._patience):
                counted = await self._ask(ask, call, body, beta)
        except (TimeoutError, httpx.TransportError, NotCompactable, _Failed) as fault:
            self._rest(where, fault)
            return None
        self._known.put(key, counted)
        return counted

    def _rest(self, where: tuple[str, str, str], fault: Exception) -> None:
        self._resting.put(where, time.monotonic() + self._pause)
        why = str(fault) if isinstance(fault, _Failed) else type(fault).__name__
        self._recorder.note("provider_count_failed", upstream=where[0], format=where[1], reason=why)

    async def _ask(self, ask: Ask, call: CountCall, body: bytes, beta: str) -> int:
        """Raises _Failed, NotCompactable, httpx.TransportError."""
        upstream = self._wiring().settings.upstreams.get(ask.upstream)
        if upstream is None:
            raise _Failed("upstream_gone")  # the configuration has changed meanwhile
        url, base_path, host = address(upstream.base_url)
        question = _question(call, body)
        headers = request_headers(
            list(ask.headers), host, len(question), True, upstream, Target(ask.format), fresh=True, beta=beta
        )
        target = base_path + call.path + own_query(ask.query, upstream.brings_credentials)
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self._patience)
        with self._traces.call(headers, "", "", upstream.base_url) as span:
            request = httpx.Request(
                "POST", url, headers=headers, stream=httpx.ByteStream(question), extensions={"target": target, "timeout": timeout}
            )  # fmt: skip
            return await self._answer(call, request, span)

    async def _answer(self, call: CountCall, request: httpx.Request, span: Span) -> int:
        response = await self._client.handle_async_request(request)
        span.tell(status=response.status_code)
        answer = await whole_answer(response, LONGEST_ANSWER)
        if response.status_code != 200:
            raise _Failed(f"status_{response.status_code}")
        if answer is None:
            raise _Failed("too_long")
        told = jsonspan.value(open_coding(answer, response.headers.get("content-encoding", ""), LONGEST_ANSWER))
        counted = told.get(call.answer) if isinstance(told, dict) else None
        if not isinstance(counted, int) or counted is True or counted <= 0:
            raise _Failed("no_figure")
        return counted


def _question(call: CountCall, body: bytes) -> bytes:
    """The counting request's body, made of the request's own slices. Raises NotCompactable for a body that can't be taken apart."""
    spans = jsonspan.members(body)
    keys = [key for key in spans if (key in call.keys if call.keys else key != "model")]
    parts = [jsonspan.dump(key) + b":" + body[slice(*spans[key])] for key in keys]
    if not call.under:
        return b"{" + b",".join(parts) + b"}"
    inner = b",".join([b'"model":' + jsonspan.dump(call.model), *parts])
    return b"{" + jsonspan.dump(call.under) + b":{" + inner + b"}}"
