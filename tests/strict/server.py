"""`StrictProvider`: a provider on a loopback port that refuses what a real one would refuse, and forgets nothing.

A plain ASGI app. Each request is recorded, checked by the rules of its format, counted against the window, looked up in
the simulated prompt cache, and answered in that format's grammar, whole or streamed. The same request always gets the same
answer. Faults (a rejection, a delay, a cut connection) are options that may be changed between requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from . import binding, errors
from .admission import Admission, credential
from .answers import Answer, Reply, chat, generate, messages, responses
from .anthropic_messages import thinks
from .prefix_cache import PrefixCache, Usage
from .routes import Route, form_of, route
from .tokens import Count, characters, items_of, measure
from .transport import Cut, Headers, Message, Outgoing, Pace, Receive, Seen, Send, decoded, read, send_answer
from .violation import NO_QUIRKS, claude_version, gemini_version

_GRAMMARS: dict[str, Any] = {
    "openai-chat": chat,
    "openai-responses": responses,
    "anthropic-messages": messages,
    "gemini": generate,
}
_MAX_ANTHROPIC_BODY = 32 * 1024 * 1024
_ONE_HOUR = re.compile(rb'"ttl"\s*:\s*"1h"')


@dataclass(frozen=True, slots=True)
class Rejection:
    """An answer of the provider's that is none: 429, 500, a 400 of its own. `body` replaces the format's usual shape."""

    status: int
    message: str = "rejected by the test"
    code: str | None = None
    headers: Headers = ()
    body: Any = None


def reply_in_kind(form: str, body: dict[str, Any]) -> Reply:
    """The default answer: a line of text; thinking before it where the request asks for thinking."""
    asks = (
        bool(thinks(body))
        if form == "anthropic-messages"
        else form == "openai-responses" and bool(body.get("reasoning"))
    )
    return Reply(text=f"Read {len(items_of(form, body))} items.", thinking="Reading them all." if asks else "")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class StrictProvider:
    """See the module. All options are public attributes.

    answer: `(format, body) -> Reply`. quirks: see the format modules. window: tokens; above it the provider's overflow
    error (`vendor` picks the wording of a chat-format server). reject: `Seen -> Rejection | None`, asked before any rule.
    delay, event_gap: seconds. drop_after_events: the connection breaks after so many events. gzip: answers are compressed.
    binds_thinking: thinking blocks are bound to their prefix (AB1). keys: if given, other credentials get a 401.
    count: `str -> int` tokens.
    """

    def __init__(
        self,
        *,
        answer: Callable[[str, dict[str, Any]], Reply] = reply_in_kind,
        quirks: frozenset[str] = NO_QUIRKS,
        window: int | None = None,
        vendor: str = "",
        overflow_in_stream: bool = False,
        reject: Callable[[Seen], Rejection | None] | None = None,
        delay: float = 0.0,
        event_gap: float = 0.0,
        drop_after_events: int | None = None,
        gzip: bool = False,
        binds_thinking: bool = False,
        keys: frozenset[str] = frozenset(),
        count: Count = characters,
        cache: PrefixCache | None = None,
        models: tuple[str, ...] = ("strict-1",),
    ) -> None:
        self.answer = answer
        self.quirks = quirks
        self.window = window
        self.vendor = vendor
        self.overflow_in_stream = overflow_in_stream
        self.reject = reject
        self.delay = delay
        self.event_gap = event_gap
        self.drop_after_events = drop_after_events
        self.gzip = gzip
        self.binds_thinking = binds_thinking
        self.keys = keys
        self.count = count
        self.cache = cache or PrefixCache()
        self.models = models
        self.requests: list[Seen] = []
        """Every request, in order of arrival."""
        self._admission = Admission()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        seen = await read(scope, receive)
        self.requests.append(seen)
        out = self._decide(seen)
        pace = Pace(self.delay, self.event_gap, self.drop_after_events, self.gzip)
        await send_answer(seen, out, pace, receive, send)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serves on a free loopback port, from a thread of its own; gives the base URL without a trailing slash."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            self, lifespan="off", ws="none", log_level="critical", access_log=False, timeout_keep_alive=60
        )
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        await asyncio.to_thread(server.ready.wait, 30)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.to_thread(thread.join)
            listener.close()

    def _decide(self, seen: Seen) -> Outgoing:
        names = frozenset(name for name, _ in seen.headers)
        path = route(seen.method, seen.path, names)
        if path is None:
            seen.form = form_of(seen.path, names)
            return _json(404, errors.error(seen.form, 404, f"Invalid URL ({seen.method} {seen.path})"))
        seen.form, seen.action, seen.model = path.form, path.action, path.model
        if self.keys and credential(seen) not in self.keys:
            return self._error(seen, path, 401, "invalid api key", code="invalid_api_key")
        if path.action == "models":
            return self._models(path, names)
        if seen.form == "anthropic-messages" and len(seen.raw) > _MAX_ANTHROPIC_BODY:
            return self._error(seen, path, 413, "Request exceeds the maximum allowed number of bytes.")
        try:
            body = json.loads(decoded(seen))
        except (ValueError, RecursionError) as problem:
            return self._error(seen, path, 400, f"We could not parse the JSON body of your request. {problem}")
        if not isinstance(body, dict):
            return self._error(seen, path, 400, "Input should be an object")
        seen.body = body
        seen.model = str(path.model or body.get("model") or "")
        rejection = self.reject(seen) if self.reject else None
        if rejection is not None:
            shape = errors.error(seen.form, rejection.status, rejection.message, code=rejection.code)
            return _json(rejection.status, rejection.body or shape, rejection.headers)
        return self._judge(seen, path, body)

    def _judge(self, seen: Seen, path: Route, body: dict[str, Any]) -> Outgoing:
        prompt = body
        if seen.form == "gemini" and path.action == "count" and "generateContentRequest" in body:
            prompt = body["generateContentRequest"]
            if "contents" in body:
                return self._error(seen, path, 400, "contents and generateContentRequest are mutually exclusive")
        try:
            seen.violations.extend(self._admission.violations(seen, path, prompt, self.quirks, self.binds_thinking))
            size = measure(seen.form, prompt, self.count)
        except (AttributeError, KeyError, TypeError, RecursionError) as problem:
            return self._error(seen, path, 400, f"Invalid request body: {problem}")
        if seen.violations:
            first = seen.violations[0]
            return self._error(seen, path, 400, first.message, param=first.where or None)
        seen.tokens = size.total
        if path.action == "count":
            return _json(200, _counted(seen.form, size.total))
        room = self.window or size.total
        if size.total > room:
            if self.overflow_in_stream and seen.form == "openai-responses" and body.get("stream"):
                failed = responses.failed(
                    Answer(Reply(), Usage(0), seen.model, _seed(seen)), errors.overflow(seen.form, 0, 0)
                )
                return Outgoing(200, failed, "text/event-stream", streamed=True)
            return _shaped(seen, path, 400, errors.overflow(seen.form, size.total, room, self.vendor))
        version = claude_version(seen.model)
        if seen.form == "anthropic-messages" and version is not None and version < (4, 5) and self.window:
            asked = int(body.get("max_tokens") or 0)
            if size.total + asked > room:
                message = f"input length and `max_tokens` exceed context limit: {size.total} + {asked} > {room}"
                return self._error(seen, path, 400, message)
        owner = credential(seen)
        return self._respond(seen, path, body, self.cache.use(owner, seen.form, seen.model, body, size))

    def _respond(self, seen: Seen, path: Route, body: dict[str, Any], use: Usage) -> Outgoing:
        reply = self.answer(seen.form, body)
        spoken, thought = self.count(reply.words()), self.count(reply.thinking) if reply.thinking else 0
        seen.usage = Usage(use.prompt, spoken, use.cached, use.written, thought)
        options = body.get("stream_options")
        answer = Answer(
            reply,
            seen.usage,
            seen.model,
            _seed(seen),
            seal=_seal(seen, body, reply),
            with_usage=isinstance(options, dict) and options.get("include_usage") is True,
            cache_ttl="1h" if _ONE_HOUR.search(seen.raw) else "5m",
        )
        if seen.form == "openai-responses":
            if path.action == "compact":
                asked = [
                    item for item in items_of(seen.form, body) if isinstance(item, dict) and item.get("role") == "user"
                ]
                return _json(200, responses.compacted(answer, asked))
            self._admission.reasoning.issued(responses.output(answer))
        grammar = _GRAMMARS[seen.form]
        if path.streams and "sse" not in parse_qs(seen.query).get("alt", []):
            return Outgoing(200, generate.array(answer), headers=_HEADERS, streamed=True)
        if path.streams or (seen.form != "gemini" and body.get("stream") is True):
            return Outgoing(200, grammar.events(answer), "text/event-stream", _HEADERS, streamed=True)
        return _json(200, grammar.whole(answer))

    def _models(self, path: Route, names: frozenset[str]) -> Outgoing:
        if path.model and path.model not in self.models:
            return _json(404, errors.error(path.form, 404, f"The model '{path.model}' does not exist"))
        if path.form == "gemini":
            listed = [{"name": f"models/{name}", "inputTokenLimit": self.window} for name in self.models]
            return _json(200, {"name": f"models/{path.model}"} if path.model else {"models": listed})
        kind = "type" if "anthropic-version" in names else "object"
        entries = [{"id": name, kind: "model"} for name in self.models]
        if path.model:
            return _json(200, {"id": path.model, kind: "model"})
        more: dict[str, Any] = {"object": "list"} if kind == "object" else {"has_more": False}
        return _json(200, {"data": entries, **more})

    def _error(
        self, seen: Seen, path: Route, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> Outgoing:
        return _shaped(seen, path, status, errors.error(seen.form, status, message, param=param, code=code))


_HEADERS: Headers = (
    ("x-request-id", "req_strict"),
    ("request-id", "req_strict"),
    ("x-ratelimit-remaining-requests", "99"),
)


def _seed(seen: Seen) -> str:
    return hashlib.blake2b(seen.path.encode() + b"\0" + seen.raw, digest_size=16).hexdigest()


def _seal(seen: Seen, body: dict[str, Any], reply: Reply) -> str:
    """What makes thinking checkable: a signature bound to the prefix, or an opaque text of this answer."""
    if seen.form == "anthropic-messages":
        return binding.sign(body, reply.thinking) if reply.thinking else ""
    if seen.form == "gemini":
        version = gemini_version(seen.model)
        return f"sig{_seed(seen)}" if version is not None and version >= (3, 0) else ""
    return f"enc{_seed(seen)}"


def _counted(form: str, tokens: int) -> dict[str, Any]:
    if form == "gemini":
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
    return {"input_tokens": tokens} | ({"object": "response.input_tokens"} if form == "openai-responses" else {})


def _shaped(seen: Seen, path: Route, status: int, body: dict[str, Any]) -> Outgoing:
    wrapped = path.streams and "sse" not in parse_qs(seen.query).get("alt", [])
    return _json(status, [body] if wrapped else body)


def _json(status: int, body: Any, headers: Headers = ()) -> Outgoing:
    return Outgoing(status, [json.dumps(body).encode()], headers=(*_HEADERS, *headers))


__all__ = ["Cut", "Rejection", "Seen", "StrictProvider", "reply_in_kind"]
