"""The providers' own counting endpoints, as a rung of the counting ladder.

Asked through the client's own upstream and credentials, and only where the local figure lies so near to the threshold that it can't decide.
An answer is kept for its prefix; an endpoint that does not answer in time, or at all, is left alone for a while: the local figure stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx

from app.core import jsonspan
from app.edge.exchange import Wiring
from app.edge.forwarding import address
from app.edge.headers import forwarded, without_key
from app.edge.upstream import Upstream
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.base import CountCall, Target
from app.request import Ask

PATIENCE = 2.0
"""Seconds that a request waits for a provider's count at most."""
PAUSE = 60.0
"""Seconds for which an endpoint that failed is not asked again."""
KEPT = 4_096
LONGEST_ANSWER = 64 << 10


class ProviderCounter:
    def __init__(self, wiring: Callable[[], Wiring], client: Upstream) -> None:
        self._wiring = wiring
        self._client = client
        self._known: dict[bytes, int] = {}
        self._resting: dict[tuple[str, str], float] = {}

    async def count(self, ask: Ask, body: bytes, key: bytes) -> int | None:
        """Input tokens of `body` by the provider, None if it can't tell. `key` names the prefix that the body stands for."""
        if key in self._known:
            return self._known[key]
        call = FORMATS[ask.format].counting(ask.client_model, ask.path)
        where = (ask.upstream, ask.format)
        if call is None or self._resting.get(where, 0.0) > time.monotonic():
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                counted = await self._ask(ask, call, body)
        except (TimeoutError, httpx.TransportError, NotCompactable):
            counted = None
        if counted is None:
            self._resting[where] = time.monotonic() + PAUSE
            return None
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[key] = counted
        return counted

    async def _ask(self, ask: Ask, call: CountCall, body: bytes) -> int | None:
        settings = self._wiring().settings
        upstream = settings.upstreams[ask.upstream]
        url, base_path, host = address(upstream.base_url)
        question = _question(call, body)
        headers = forwarded(list(ask.headers), host, len(question), True, upstream, Target(ask.format), fresh=True)
        query = without_key(ask.query) if upstream.brings_credentials else ask.query
        query = b"&".join(part for part in query.split(b"&") if part and not part.startswith(b"alt="))
        target = base_path + call.path + (b"?" + query if query else b"")
        timeout = {"connect": PATIENCE, "read": PATIENCE, "write": PATIENCE, "pool": PATIENCE}
        request = httpx.Request(
            "POST", url, headers=headers, stream=httpx.ByteStream(question), extensions={"target": target, "timeout": timeout}
        )
        response = await self._client.handle_async_request(request)
        answer = b""
        try:
            async for chunk in response.stream:  # type: ignore[union-attr]
                answer += chunk
                if len(answer) > LONGEST_ANSWER:
                    return None
        finally:
            await response.aclose()
        told = jsonspan.value(answer) if response.status_code == 200 else None
        counted = told.get(call.answer) if isinstance(told, dict) else None
        return counted if isinstance(counted, int) and counted > 0 else None


def _question(call: CountCall, body: bytes) -> bytes:
    """The counting request's body, made of the request's own slices. Raises NotCompactable for a body that can't be taken apart."""
    spans = jsonspan.members(body)
    keys = [key for key in spans if not call.keys or key in call.keys]
    parts = [jsonspan.dump(key) + b":" + body[slice(*spans[key])] for key in keys]
    if not call.under:
        return b"{" + b",".join(parts) + b"}"
    inner = b",".join([b'"model":' + jsonspan.dump(call.model), *parts])
    return b"{" + jsonspan.dump(call.under) + b":{" + inner + b"}}"
