"""compactd in process between a spoiled body and the strict provider, and what must hold for every such exchange.

No socket and no thread, so that ten thousand bodies take a minute: the app is called as ASGI, and where its upstream client would connect
stands the provider itself.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx

from app import main
from app.edge import memory
from app.main import App
from tests.edge.talks import HISTORY
from tests.edge.wire import PATHS, configured
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import seeds
from tests.strict import VIOLATIONS
from tests.strict.server import StrictProvider
from tests.strict.transport import Seen, decoded

PATIENCE = 20.0  # seconds; longer is a hang
_LOW = {
    "trigger_threshold": 600,
    "target_threshold": 300,
    "clear_at_least": 0,
    "min_messages_before_compaction": 0,
    "keep_values": 200,
}
POLICIES: list[dict[str, Any]] = [
    {"name": "clear", "strategy": "tool_result_clearing", "keep_recent_tool_results": 1, "clear_tool_inputs": True},
    {"name": "window", "strategy": "sliding_window", "keep_recent_messages": 2},
    {"name": "summary", "strategy": "summarize", "keep_recent_messages": 1},
    {"name": "recap", "strategy": "summarize", "summary_model": "extractive", "keep_recent_turns": 1},
    {
        "name": "all",
        "strategy": "combined",
        "summary_model": "extractive",
        "keep_recent_tool_results": 1,
        "fold_rounds_above": 700,
    },
    {"name": "whole", "strategy": "summarize", "summary_model": "extractive", "protect_current_turn": False},
    {"name": "cap", "strategy": "combined", "summary_model": "extractive", "max_tool_result_tokens": 100},
    {"name": "talk", "strategy": "sliding_window", "keep_recent_messages": 3, "history_mode": "messages_only"},
]
CHANGED = ("compacted", "replayed")


class Straight(httpx.AsyncBaseTransport):
    """Where the app's upstream client would be: the provider, asked without a socket."""

    def __init__(self, provider: StrictProvider) -> None:
        self.provider = provider

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = urlsplit(request.extensions["target"].decode("latin-1"))
        raw = b"".join([piece async for piece in request.stream])  # type: ignore[union-attr]
        headers = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in request.headers.raw
        )
        seen = Seen(request.method, target.path, target.query, headers, raw)
        self.provider.requests.append(seen)
        out = self.provider._decide(seen)
        seen.status = out.status
        body = b"".join(out.chunks)
        answer = [(b"content-type", out.content_type.encode()), (b"content-length", str(len(body)).encode())]
        return httpx.Response(out.status, headers=answer, stream=httpx.ByteStream(body))

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes


class Failed(AssertionError):
    """One of the promises was broken."""


@asynccontextmanager
async def harness(**options: Any) -> AsyncIterator[Harness]:
    provider = StrictProvider(**options)
    upstream, main.Upstream = main.Upstream, lambda **_: Straight(provider)  # type: ignore[assignment, misc]
    settle, memory.settle = memory.settle, lambda: None
    try:
        settings = configured("http://strict.test", policies=[_LOW | policy for policy in POLICIES])
        app = App(settings)
    finally:
        main.Upstream = upstream  # type: ignore[misc]
        memory.settle = settle
    yield Harness(app, provider)
    await app.relay.finish_background()


class Harness:
    def __init__(self, app: App, provider: StrictProvider) -> None:
        self.app = app
        self.provider = provider
        self.outcomes: Counter[str] = Counter()

    async def case(self, form: str, number: int) -> None:
        """The case of this number: the same body three times, as a client that retries. Raises Failed."""
        chance = Random(f"{form} {number}")
        body, coding = mutated(chance.choice(seeds(form)), HISTORY[form], chance)
        policy = chance.choice(POLICIES)["name"]
        try:
            original = json.loads(decoded(Seen("POST", PATHS[form], "", (("content-encoding", coding),), body)))
        except (ValueError, RecursionError):
            original = None
        sent = [await self.exchange(form, body, coding, policy, original) for _ in range(3)]
        before = None
        for outcome, raw in sent:
            if outcome == "replayed" and before not in (None, raw):
                raise Failed("a replay is not byte for byte the one before")
            if outcome == "compacted" and before is not None:
                self.outcomes["(compacted once more)"] += 1
                if raw == before:
                    raise Failed("compacted to the same bytes once more")
            before = raw if outcome in CHANGED else before

    async def exchange(self, form: str, body: bytes, coding: str, policy: str, original: Any) -> tuple[str, bytes]:
        self.provider.requests.clear()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._ask(form, body, coding, policy)
        except TimeoutError:
            raise Failed("it hangs") from None
        outcome, reason = answer.headers["x-compactd-outcome"], answer.headers["x-compactd-reason"]
        self.outcomes[f"{outcome} {reason}"] += 1
        if answer.status >= 500:
            raise Failed(f"{answer.status}, and not from the provider: {answer.body[:300]!r}")
        asked = [seen for seen in self.provider.requests if seen.path == PATHS[form] and not _summary(seen)]
        if not asked:
            raise Failed("the provider was never asked")
        if answer.status != asked[-1].status and not (answer.status == 400 and asked[0].status == 400):
            raise Failed(f"the provider said {asked[-1].status}, the client got {answer.status}")
        last = asked[-1]
        if outcome not in CHANGED and last.raw != body and not reason.startswith("bound"):
            raise Failed(f"{outcome} ({reason}), and the body was changed")
        if last.raw != body:
            self._judge(form, original, last, outcome)
        for seen in asked[:-1]:  # refused before: that must not have been our fault
            if seen.raw != body:
                self._judge(form, original, seen, outcome)
        return outcome, last.raw

    def _judge(self, form: str, original: Any, seen: Seen, outcome: str) -> None:
        """A changed body breaks no rule, unless the client's own did."""
        if not isinstance(original, dict) or not isinstance(seen.body, dict):
            raise Failed("what can't be read was changed, or can't be read any more")
        if _refused(form, original, seen):
            self.outcomes["(changed, but refused anyway)"] += 1
            return
        self.outcomes["(changed and judged)"] += 1
        if wrong := _refused(form, seen.body, seen):
            raise Failed(f"{outcome}: a new violation: {wrong}")

    async def _ask(self, form: str, body: bytes, coding: str, policy: str) -> Answered:
        headers = [
            (b"host", b"x"), (b"content-length", str(len(body)).encode()), (b"authorization", b"Bearer k"), (b"x-api-key", b"k"),
            (b"anthropic-version", b"2023-06-01"), (b"x-compactd-policy", policy.encode()), (b"content-type", b"application/json"),
        ]  # fmt: skip
        if coding:
            headers.append((b"content-encoding", coding.encode()))
        path = PATHS[form]
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
            "http_version": "1.1",
        }  # fmt: skip
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if not sent or sent[-1]["type"] != "http.response.body" or sent[-1].get("more_body", False):
            raise Failed("the answer has no end")
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answered(sent[0]["status"], told, b"".join(message.get("body", b"") for message in sent[1:]))


def _summary(seen: Seen) -> bool:
    """Is this a call of compactd's own for a summary? No seed holds its fence."""
    return b"<transcript>" in seen.raw


def _refused(form: str, body: Any, seen: Seen) -> str:
    """What the provider has against a body, "" if nothing."""
    try:
        found = VIOLATIONS[form](body, model=seen.model)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as fault:
        return f"can't be read: {fault}"
    return str(found[0]) if found else ""
