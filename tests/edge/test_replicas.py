"""Replicas and workers as processes of their own on one Redis: whoever is asked, the provider gets the same bytes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.edge.processes import Process, process
from tests.edge.talks import Talk, compacted
from tests.redis_server import RedisServer, redis_server
from tests.strict.server import StrictProvider

__all__ = ["redis_server"]

FORMATS = ["openai-chat", "anthropic-messages"]
KEY = "k:" + "A" * 43 + "="


def policy(strategy: str) -> dict[str, Any]:
    return {
        "name": strategy, "match": {"headers": {"x-of": strategy}}, "strategy": strategy,
        "trigger_threshold": 1_500, "target_threshold": 900, "clear_at_least": 0,
        "keep_recent_tool_results": 1, "summary_model": "extractive",
    }  # fmt: skip


STRATEGIES = ["summarize", "combined"]


async def ask(replica: Process, talk: Talk, strategy: str) -> str:
    """The outcome."""
    raw = talk.request(f"x-of: {strategy}", "connection: close")
    client = await replica.connect()
    async with asyncio.timeout(30):
        client.writer.write(raw)
        answer = await client.reader.read()
    client.writer.close()
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 200"), answer[:500]
    outcome = next(line for line in head.decode().splitlines() if line.lower().startswith("x-compactd-outcome"))
    return outcome.partition(": ")[2]


async def test_the_same_conversation_is_the_same_bytes_from_every_replica_and_worker(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    redis_server.flush()
    provider = StrictProvider()
    async with provider.serve() as url, AsyncExitStack() as stack:
        sections: dict[str, Any] = {
            "upstreams": {"provider": {"base_url": url, "formats": FORMATS}},
            "store": {"url": redis_server.url, "timeout": 5, "encryption_key": KEY},
            "policies": [policy(strategy) for strategy in STRATEGIES],
        }
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        # An archive's address stands in the recap, so replicas that share a store share a public address.
        public = {"public_url": "http://compactd.test"}
        replicas = await asyncio.gather(
            stack.enter_async_context(process(tmp_path / "one", **sections, listen={**public, "workers": 2})),
            stack.enter_async_context(process(tmp_path / "two", **sections, listen=public)),
        )
        for form in FORMATS:
            for strategy in STRATEGIES:
                await _hold(provider, replicas, form, strategy)


async def _hold(provider: StrictProvider, replicas: list[Process], form: str, strategy: str) -> None:
    """A conversation of a few steps, each sent to every replica several times at once, so that both workers are asked too."""
    talk, outcomes, last = Talk(form).ask(f"Go ({strategy})."), [], b""
    for step in range(4):
        talk.rounds(3, first=3 * step)
        if strategy == "summarize":
            talk.say(f"Done {step}.").ask(f"And then, {step}?")
        start = len(provider.requests)
        outcomes = [*outcomes, *await asyncio.gather(*(ask(replicas[n % 2], talk, strategy) for n in range(6)))]
        told = [seen for seen in provider.requests[start:] if seen.action != "count"]
        assert len(told) == 6
        assert not [seen.violations for seen in told if seen.violations]
        assert len({seen.raw for seen in told}) == 1, (form, strategy, step)
        assert outcomes[-6:].count("compacted") <= 1
        last = told[0].raw
    assert compacted(json.loads(last)), (form, strategy)
    assert "replayed" in outcomes
