"""The hot path: raw ASGI in, provider out, bytes back as they come.

Everything that is not compactd's own goes through here, any path and method. A request that carries a conversation is taken in whole,
shown to the compactor and forwarded as that decides; all others are streamed through unseen. The answer is relayed chunk by chunk: nothing
buffered, nothing retried, nothing invented. When the client leaves, the provider's side is cancelled; when the provider breaks off, the
client's connection ends in an error too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import httpx

from app.compactor import Compactor
from app.edge.bodies import ClientGone, Receive, Watcher, open_coding, take_body
from app.edge.headers import Headers, credentials_hash, forwarded, returned, session_name
from app.edge.record import Record, RequestRecorder
from app.edge.routing import Route, Router
from app.edge.upstream import Upstream
from app.errors import NotCompactable, UpstreamFailed
from app.formats import FORMATS
from app.formats.reading import open_body
from app.registry import Registry
from app.request import Ask, Outcome
from app.settings import Policy, Settings

Send = Any
MAX_ERROR_BODY = 1 << 20
"""Bytes of a provider's refusal that are read before deciding; a longer one is passed on as it comes."""


class Refused(Exception):
    """compactd itself answers this request: status, stable code, message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(slots=True)
class Exchange:
    """One request on its way: what came in, what was decided, what the recorder will tell."""

    scope: dict[str, Any]
    receive: Receive
    send: Send
    headers: Headers
    record: Record
    route: Route | None = None
    started: bool = False
    outcome: Outcome | None = None
    body: bytes | AsyncIterator[bytes] = b""
    length: int | None = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a relay works with; replaced as a whole when the configuration is reloaded."""

    settings: Settings
    router: Router
    registry: Registry


class Relay:
    def __init__(self, wiring: Wiring, upstream: Upstream, compactor: Compactor, recorder: RequestRecorder) -> None:
        self.wiring = wiring
        self.draining = False
        self.inflight = 0
        self._upstream = upstream
        self._compactor = compactor
        self._recorder = recorder
        self._background: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        wiring = self.wiring
        headers = Headers(scope["headers"])
        record = self._recorder.begin()
        exchange = Exchange(scope, receive, send, headers, record)
        self.inflight += 1
        try:
            await self._serve(exchange, wiring)
        except ClientGone:
            record.disconnected = True
        except Refused as refused:
            await self._answer(exchange, refused.status, refused.code, str(refused))
        except UpstreamFailed as failed:
            if exchange.started:
                # The client must see a broken answer, never a clean end: leaving without the last part closes its connection.
                record.broken = failed.code
            else:
                await self._answer(exchange, failed.status, failed.code, str(failed))
        finally:
            self.inflight -= 1
            self._recorder.end(record, exchange.outcome)

    # In

    async def _serve(self, exchange: Exchange, wiring: Wiring) -> None:
        scope, headers = exchange.scope, exchange.headers
        self._admit(exchange, wiring)
        route = wiring.router.route(scope["raw_path"], "anthropic-version" in headers)
        if route is None:
            raise Refused(
                404,
                "no_upstream",
                "No upstream is configured for this path. Add one under `upstreams` in the configuration.",
            )
        exchange.route = route
        exchange.record.upstream = route.upstream
        if not route.target or scope["method"] != "POST":
            exchange.record.reason = "not_a_conversation"
            await self._stream_through(exchange, wiring, [])
            return
        exchange.record.format = route.target.format
        chunks, whole = await take_body(exchange.receive, wiring.settings.limits.max_body_bytes)
        if whole:
            raw = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            exchange.body, exchange.length = raw, len(raw)
            await self._while_client_stays(exchange, self._conversation(exchange, wiring, route, raw))
        else:
            exchange.record.reason = "too_large"
            await self._stream_through(exchange, wiring, chunks)

    def _admit(self, exchange: Exchange, wiring: Wiring) -> None:
        """Refuse what compactd does not serve at all, and what it can't take on now."""
        headers = exchange.headers
        if "websocket" in headers.get("upgrade", "").lower():
            raise Refused(
                426, "websocket_unsupported", "compactd does not tunnel WebSockets; send the request as HTTP POST."
            )
        if self.draining:
            raise Refused(503, "draining", "This compactd is shutting down; try again, another one will answer.")
        if self.inflight > wiring.settings.limits.max_inflight:
            raise Refused(503, "too_many_requests_inflight", "compactd is at `limits.max_inflight`; try again later.")

    async def _conversation(self, exchange: Exchange, wiring: Wiring, route: Route, raw: bytes) -> None:
        """Let the compactor decide, forward, and hand the answer back."""
        began = time.perf_counter()
        try:
            await self._decide(exchange, wiring, route, raw)
        except NotCompactable as refusal:
            exchange.record.reason = refusal.reason
        exchange.record.deciding = time.perf_counter() - began
        response = await self._ask_upstream(exchange, wiring)
        if exchange.changed and response.status_code == 400:
            response = await self._refused_by_provider(exchange, wiring, response)
        await self._relay(exchange, response)

    async def _decide(self, exchange: Exchange, wiring: Wiring, route: Route, raw: bytes) -> None:
        assert route.target is not None
        form, limit = FORMATS[route.target.format], wiring.settings.limits.max_body_bytes
        coding = exchange.headers.get("content-encoding", "")
        opened = open_body(form, open_coding(raw, coding, limit) if coding else raw)
        named = opened.fields.get("model")
        name = route.target.model or (named if isinstance(named, str) else "")
        upstream = wiring.router.by_model(route, name)
        exchange.record.upstream = upstream
        exchange.route = Route(upstream, route.path, route.target, route.named)
        policy = self._policy(exchange, wiring, name, form.name, upstream)
        if policy is None:
            raise NotCompactable("no_policy")
        if len(opened.raws) > wiring.settings.limits.max_items:
            raise NotCompactable("too_many_items")
        model = wiring.registry.lookup(name, upstream)
        quirks = wiring.settings.upstreams[upstream].quirks
        if quirks:
            model = replace(model, quirks=model.quirks | frozenset(quirks))
        exchange.record.model = wiring.registry.label(name)
        tenant = credentials_hash(exchange.headers, exchange.scope["query_string"])
        session = session_name(exchange.headers, form.session_hint(opened.fields))
        scope = exchange.scope
        ask = Ask(
            opened, form.name, upstream, model, policy, tenant, session, scope["headers"], scope["query_string"]
        )
        outcome = await self._compactor.decide(ask)
        exchange.outcome = outcome
        if outcome.changed:
            exchange.body, exchange.length, exchange.changed = outcome.body, len(outcome.body), True

    def _policy(self, exchange: Exchange, wiring: Wiring, model: str, form: str, upstream: str) -> Policy | None:
        settings = wiring.settings
        wanted = exchange.headers.get("x-compactd-policy")
        if wanted is not None:
            policy = settings.policy_named(wanted)
            if policy is None:
                raise Refused(
                    400, "unknown_policy", f"There is no policy named {wanted[:100]!r} in compactd's configuration."
                )
        else:
            policy = settings.policy_for(model, form, upstream, exchange.headers)
        mode = exchange.headers.get("x-compactd-mode")
        if mode is None or policy is None:
            return policy
        if mode not in ("on", "observe", "off"):
            raise Refused(400, "unknown_mode", f"x-compactd-mode is {mode[:100]!r}; it must be on, observe or off.")
        return policy.model_copy(update={"mode": mode})

    # Out and back

    async def _stream_through(self, exchange: Exchange, wiring: Wiring, taken: list[bytes]) -> None:
        """Forward a request unseen, its body as it comes; `taken` is what was read of it already."""
        headers = exchange.headers
        length = headers.get("content-length", "")
        exchange.length = int(length) if length.isdigit() else None
        if taken or exchange.length or "transfer-encoding" in headers:
            # The body comes through `receive`, so that a client that leaves shows there, until the body is complete.
            exchange.body = _rest_of_body(exchange, taken)
            await self._relay(exchange, await self._ask_upstream(exchange, wiring))
        else:
            await self._while_client_stays(exchange, self._plain(exchange, wiring))

    async def _plain(self, exchange: Exchange, wiring: Wiring) -> None:
        await self._relay(exchange, await self._ask_upstream(exchange, wiring))

    async def _refused_by_provider(
        self, exchange: Exchange, wiring: Wiring, response: httpx.Response
    ) -> httpx.Response:
        """The provider refuses what we made of the request: the client gets the answer to its own."""
        outcome = exchange.outcome
        assert outcome is not None
        assert outcome.context is not None
        await response.aclose()
        self._recorder.rejected(outcome.context.ask.format)
        await self._compactor.reject(outcome)
        exchange.outcome = outcome.undone("rejected")
        body = exchange.outcome.body
        exchange.body, exchange.length, exchange.changed = body, len(body), False
        return await self._ask_upstream(exchange, wiring, decoded=True)

    async def _ask_upstream(self, exchange: Exchange, wiring: Wiring, decoded: bool = False) -> httpx.Response:
        route, settings = exchange.route, wiring.settings
        assert route is not None
        upstream = settings.upstreams[route.upstream]
        url, base_path, host = self._address(upstream.base_url)
        query = exchange.scope["query_string"]
        target = base_path + route.path + (b"?" + query if query else b"")
        plain = exchange.changed or decoded
        headers = forwarded(
            exchange.scope["headers"], host, exchange.length, drop_coding=plain, upstream=upstream, target=route.target
        )
        connect, read = settings.timeouts(route.upstream)
        request = httpx.Request(
            exchange.scope["method"], url, headers=headers, content=exchange.body if exchange.body else None,
            extensions={"target": target, "timeout": {"connect": connect, "read": read, "write": read, "pool": 30.0}},
        )  # fmt: skip
        exchange.record.asked = time.perf_counter()
        try:
            response = await self._upstream.handle_async_request(request)
        except httpx.TransportError as fault:
            raise _failure(fault, host.decode()) from None
        exchange.record.answered = time.perf_counter()
        exchange.record.status = response.status_code
        return response

    async def _relay(self, exchange: Exchange, response: httpx.Response) -> None:
        """The provider's answer to the client, as it arrives."""
        record, raw = exchange.record, response.headers.raw
        watcher = self._watcher(exchange, response)
        send = exchange.send
        try:
            exchange.started = True
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status_code,
                    "headers": returned(raw, record.told(exchange.outcome)),
                }
            )
            body = {"type": "http.response.body", "body": b"", "more_body": True}
            async for chunk in response.stream:  # type: ignore[union-attr]
                if watcher is not None:
                    watcher.feed(chunk)
                await send({**body, "body": chunk})
            if watcher is not None:
                watcher.end()
                record.usage = watcher.usage
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            record.finished = True
        except httpx.TransportError as fault:
            raise _failure(fault, "the upstream") from None
        finally:
            if watcher is not None:
                record.usage = record.usage or watcher.usage
                record.finished = record.finished or watcher.terminal
            await response.aclose()
            self._settle(exchange)

    def _watcher(self, exchange: Exchange, response: httpx.Response) -> Watcher | None:
        target = exchange.route.target if exchange.route else None
        if target is None or response.status_code != 200:
            return None
        headers = response.headers
        return Watcher(FORMATS[target.format], headers.get("content-type", ""), headers.get("content-encoding", ""))

    def _settle(self, exchange: Exchange) -> None:
        """Remember the reported usage, after the client has its answer."""
        outcome = exchange.outcome
        if outcome is None or outcome.context is None:
            return
        usage = exchange.record.usage
        task = asyncio.create_task(self._compactor.settle(outcome, usage.input if usage else 0))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _while_client_stays(self, exchange: Exchange, work: Any) -> None:
        """Do the work, and drop it at once when the client leaves. Called when the request's body is complete."""
        me = asyncio.current_task()
        assert me is not None
        left = False

        async def wait_for_leaving() -> None:
            nonlocal left
            while (await exchange.receive())["type"] != "http.disconnect":
                pass
            left = True
            me.cancel()

        waiting = asyncio.create_task(wait_for_leaving())
        try:
            await work
        except asyncio.CancelledError:
            if not left:
                raise
            me.uncancel()
            raise ClientGone from None
        finally:
            waiting.cancel()

    async def _answer(self, exchange: Exchange, status: int, code: str, message: str) -> None:
        """An answer of compactd's own, in the shape of the format that the client speaks."""
        record = exchange.record
        record.status, record.own_error = status, code
        target = exchange.route.target if exchange.route else None
        body = FORMATS[target.format if target else "openai-chat"].error(status, code, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *record.told(exchange.outcome),
        ]
        if status == 426:
            headers += [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
        if status == 503:
            headers += [(b"retry-after", b"1"), (b"connection", b"close")]
        exchange.started = True
        await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": body})

    def _address(self, base_url: str) -> tuple[httpx.URL, bytes, bytes]:
        found = _ADDRESSES.get(base_url)
        if found is None:
            url = httpx.URL(base_url)
            found = _ADDRESSES[base_url] = (url, url.raw_path.rstrip(b"/"), url.netloc)
        return found


async def _rest_of_body(exchange: Exchange, taken: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in taken:
        yield chunk
    more = True
    while more:
        message = await exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]


_ADDRESSES: dict[str, tuple[httpx.URL, bytes, bytes]] = {}
"""Parsed once: as many as there are upstreams in the configuration."""


def _failure(fault: httpx.TransportError, host: str) -> UpstreamFailed:
    """The one place where httpx's exceptions become ours. The text names the host and never the request."""
    if isinstance(fault, httpx.PoolTimeout):
        return UpstreamFailed(
            "upstream_pool_exhausted", f"No free connection to {host}; see `limits.max_connections`.", 503
        )
    if isinstance(fault, httpx.ConnectTimeout):
        return UpstreamFailed("upstream_connect_timeout", f"Connecting to {host} took too long.", 504)
    if isinstance(fault, httpx.TimeoutException):
        return UpstreamFailed("upstream_timeout", f"{host} sent nothing for too long.", 504)
    if isinstance(fault, httpx.ConnectError | httpx.ProxyError):
        return UpstreamFailed("upstream_unreachable", f"Could not connect to {host}: {type(fault).__name__}.")
    return UpstreamFailed("upstream_broke_off", f"{host} broke off its answer or answered what is not HTTP.")
