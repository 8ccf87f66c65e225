"""The hot path: raw ASGI in, provider out, bytes back as they come.

Everything that is not compactd's own goes through here, any path and method. A request that carries a conversation is taken in whole,
shown to the compactor and forwarded as that decides; all others are streamed through unseen. The answer is relayed chunk by chunk: nothing
buffered, nothing invented. When the client leaves, the provider's side is cancelled; when the provider breaks off, the client's
connection ends in an error too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import httpx

from app.compactor import Compactor
from app.edge.bodies import ClientGone, Receive, take_body
from app.edge.exchange import Exchange, Refused, Send, Wiring
from app.edge.forwarding import ask_upstream, upstream_failure
from app.edge.headers import Headers, response_headers
from app.edge.keepalive import kept_alive
from app.edge.metrics import UPSTREAM_FAILURES
from app.edge.reception import admit, ask_of, authenticate, direct_beside, direct_unread, recognised
from app.edge.record import RequestRecorder
from app.edge.routing import Route
from app.edge.second_chance import SecondChance
from app.edge.traces import NO_TRACES, Traces
from app.edge.upstream import Upstream
from app.edge.watcher import Watcher
from app.errors import NotCompactable, UpstreamFailed
from app.formats import FORMATS
from app.formats.base import Target

SETTLING = 2.0
"""Seconds that the last requests' records get when compactd stops."""


class Relay:
    def __init__(
        self,
        wiring: Wiring,
        client: Upstream,
        compactor: Compactor,
        recorder: RequestRecorder,
        traces: Traces = NO_TRACES,
    ) -> None:
        self.wiring = wiring
        self._traces = traces
        self.draining = False  # told by /readyz
        self.refusing = False
        self.over = False  # the drain is; what still runs is cut off
        self.held = 0
        self._client = client
        self._compactor = compactor
        self._recorder = recorder
        self._second = SecondChance(client, compactor, recorder)
        self._running: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self.wiring, self._recorder.begin(), Headers(scope["headers"]))
        exchange.trace = self._traces.begin(exchange)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._serve(exchange)
        except ClientGone:
            exchange.record.disconnected = True
        except asyncio.CancelledError:
            if not self.over:
                raise
            task.uncancel()
            await self._fail(
                exchange, 503, "draining", "This compactd has shut down before the answer came; try again."
            )
        except Refused as refused:
            await self._answer(exchange, refused.status, refused.code, str(refused))
        except UpstreamFailed as failed:
            if failed.code in UPSTREAM_FAILURES:
                exchange.record.because = str(failed)
            await self._fail(exchange, failed.status, failed.code, str(failed))
        except Exception as fault:
            self._recorder.fault("relay", fault)
            await self._fail(exchange, 500, "internal_error", "compactd failed on this request; its log says where.")
        finally:
            self._running.discard(task)
            self._let_go(exchange)
            self._recorder.end(exchange.record, exchange.outcome)
            if exchange.trace is not None:
                exchange.trace.end()

    @property
    def inflight(self) -> int:
        return len(self._running)

    def end_drain(self) -> int:
        """Cut off what still runs; how many requests that is."""
        self.over = True
        for task in self._running:
            task.cancel()
        return len(self._running)

    async def _serve(self, exchange: Exchange) -> None:
        scope = exchange.scope
        route = exchange.wiring.router.route(scope["raw_path"], "anthropic-version" in exchange.headers)
        exchange.route = route
        admit(exchange, self.refusing, self.inflight)
        if not route.upstream:
            raise Refused(
                404,
                "no_upstream",
                f"No upstream lists the format {route.format} of this path. Add it to the `formats` of the one that speaks it, "
                "in `upstreams` of the configuration, or put that one's name first in the path.",
            )
        exchange.record.upstream = route.upstream
        if not route.target or scope["method"] != "POST":
            exchange.record.reason = "not_a_conversation"
            await self._beside(exchange, route)
            return
        exchange.record.format = route.target.format
        if await self._taken(exchange, route):
            await exchange.client.during(self._conversation(exchange, route, route.target))

    async def _beside(self, exchange: Exchange, route: Route) -> None:
        """A path without a conversation; its body is not looked at, but for a model that decides who is asked."""
        told = exchange.headers.get("content-type", "")
        if not (exchange.scope["method"] == "POST" and "json" in told and exchange.wiring.router.needs_model(route)):
            await self._stream_through(exchange, route, [])
        elif await self._taken(exchange, route):
            authenticate(exchange, direct_beside(exchange, route))
            await exchange.client.during(self._ask_and_relay(exchange))

    async def _taken(self, exchange: Exchange, route: Route) -> bool:
        """Take in the body. False where there was no room for it: then it was passed on as it came."""
        recognised(exchange, route)
        limit = exchange.wiring.settings.limits.max_body_bytes
        chunks, whole = await take_body(exchange.receive, limit, partial(self._hold, exchange))
        if whole:
            exchange.raw = exchange.body = b"".join(chunks)
            exchange.length = len(exchange.raw)
            exchange.client.body_complete()
            return True
        too_large = exchange.held > limit
        exchange.record.reason = exchange.record.reason or ("too_large" if too_large else "no_room")
        await self._stream_through(exchange, direct_unread(exchange, route, too_large), chunks)
        return False

    def _hold(self, exchange: Exchange, size: int) -> bool:
        """Count what is taken into memory; False where that is more than there is room for. A request that takes its time has half of it:
        the slowest are seen last."""
        exchange.held += size
        self.held += size
        limits = exchange.wiring.settings.limits
        slow = time.perf_counter() - exchange.record.began > limits.request_seconds
        return self.held <= limits.max_held_bytes // (2 if slow else 1)

    def _let_go(self, exchange: Exchange) -> None:
        """Its body is held for as long as something is made of it, though its client has left."""
        left = self._compactor.running(exchange.ask) if exchange.ask else None
        if left is None:
            self._hold(exchange, -exchange.held)
        else:
            left.add_done_callback(lambda _: self._hold(exchange, -exchange.held))

    async def _conversation(self, exchange: Exchange, route: Route, target: Target) -> None:
        """Let the compactor decide, forward, hand the answer back."""
        began = time.perf_counter()
        try:
            exchange.ask = ask_of(exchange, route, target, partial(self._hold, exchange))
            exchange.record.policy = exchange.ask.policy.name
            async with kept_alive(exchange, target):
                exchange.forward(await self._compactor.decide(exchange.ask))
                self._second.skip_known_refusals(exchange)
        except NotCompactable as refusal:
            self._pass_untouched(exchange, refusal.reason)
        except Refused:
            raise
        except Exception as fault:
            self._recorder.fault("reception", fault)
            self._pass_untouched(exchange, "internal_error")
        exchange.record.deciding = time.perf_counter() - began
        response = await ask_upstream(self._client, exchange)
        await self._relay_answer(exchange, await self._second.answer(exchange, response))

    def _pass_untouched(self, exchange: Exchange, reason: str) -> None:
        exchange.outcome, exchange.record.reason = None, reason
        exchange.restore()
        assert exchange.route is not None
        authenticate(exchange, exchange.route.upstream)

    async def _stream_through(self, exchange: Exchange, route: Route, taken: list[bytes]) -> None:
        """Forward a request without looking at it, its body as it comes; `taken` is what was read of it already."""
        authenticate(exchange, route.upstream)
        headers = exchange.headers
        told = headers.get("content-length", "")
        exchange.length = int(told) if told.isdigit() else None
        if taken or exchange.length or "transfer-encoding" in headers:
            exchange.body = _rest_of_body(exchange, taken, partial(self._hold, exchange))
        else:
            exchange.client.body_complete()
        await exchange.client.during(self._ask_and_relay(exchange))

    async def _ask_and_relay(self, exchange: Exchange) -> None:
        await self._relay_answer(exchange, await ask_upstream(self._client, exchange))

    async def _relay_answer(self, exchange: Exchange, response: httpx.Response) -> None:
        """The provider's answer to the client, as it arrives."""
        record, send = exchange.record, exchange.send
        watcher = _watcher(exchange, response)
        headers = response_headers(response.headers.raw, response.status_code, record.told(exchange.outcome))
        try:
            exchange.started = True
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for chunk in response.stream:  # type: ignore[union-attr]
                if watcher is not None:
                    watcher.feed(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            record.finished = True
        except httpx.TransportError as fault:
            raise upstream_failure(fault, "the upstream") from None
        finally:
            if watcher is not None:
                watcher.end()
                record.usage = watcher.usage
                record.finished = record.finished or watcher.terminal
                if watcher.error:
                    self._in_background(self._second.learn_from_stream(exchange, watcher.error))
            await response.aclose()
            self._settle(exchange)

    def _settle(self, exchange: Exchange) -> None:
        """Remember the reported usage, after the client has its answer."""
        outcome = exchange.outcome
        if outcome is not None and outcome.context is not None:
            usage = exchange.record.usage
            self._in_background(self._compactor.settle(outcome, usage.input if usage else 0))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._recorder.fault("settle", fault)

    async def finish_background(self) -> None:
        """What requests leave behind is stored; asked once, when no request comes any more."""
        if self._background:
            await asyncio.wait(self._background, timeout=SETTLING)

    async def _fail(self, exchange: Exchange, status: int, code: str, message: str) -> None:
        """An error of compactd's own. Where an answer has begun the client must see it broken, never a clean end: leaving without the last
        part closes its connection."""
        if exchange.started:
            exchange.record.broken = code
        else:
            await self._answer(exchange, status, code, message)

    async def _answer(self, exchange: Exchange, status: int, code: str, message: str) -> None:
        """An answer of compactd's own, in the shape of the format that the client speaks."""
        record = exchange.record
        record.status, record.own_error = status, code
        body = FORMATS[exchange.route.format if exchange.route else "openai-chat"].error(status, code, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *record.told(exchange.outcome),
            *_EXTRA_HEADERS.get(status, ()),
        ]
        exchange.started = True
        await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": body})


_EXTRA_HEADERS = {
    426: ((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")),
    503: ((b"retry-after", b"1"), (b"connection", b"close")),
}


def _watcher(exchange: Exchange, response: httpx.Response) -> Watcher | None:
    target = exchange.route.target if exchange.route else None
    if target is None or response.status_code != 200:
        return None
    kind = coding = ""
    for name, value in response.headers.raw:
        low = name.lower()
        if low == b"content-type":
            kind = value.decode("latin-1")
        elif low == b"content-encoding":
            coding = value.decode("latin-1")
    return Watcher(FORMATS[target.format], kind, coding)


async def _rest_of_body(exchange: Exchange, taken: list[bytes], hold: Callable[[int], object]) -> AsyncIterator[bytes]:
    """The body as the client sends it; what was `taken` of it is let go. Raises ClientGone when it leaves in the middle."""
    taken.reverse()
    while taken:
        yield taken[-1]
        hold(-len(taken.pop()))
    more = True
    try:
        while more:
            message = await exchange.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]
    finally:  # also where the provider wants no more of it: the rest is read and dropped
        exchange.client.body_complete()
