"""Spoiled bytes over real sockets: `python -m tests.fuzz.fuzz_sockets --seconds 120`.

Requests are cut, stretched, glued together, sent in pieces and left hanging, for conversations, other paths and compactd's own pages. What
must hold: every connection is answered or ended in time, no answer is a 5xx that the provider did not give, every answer is HTTP, the
provider is never asked for what no client sent, and at the end nothing is left behind. A number names a case for ever.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import structlog

from tests.edge.talks import KEYS, MODELS, Talk
from tests.edge.wire import PATHS, Client, Running, chunks, compactd, configured, request, until
from tests.strict.server import StrictProvider

PATIENCE = 8.0  # seconds; longer is a hang
SILENCE = 0.05  # seconds without a byte behind an answer: there is no more
LIMITS = {"request_seconds": 1, "max_header_bytes": 20_000, "max_body_bytes": 200_000}
POLICIES = [
    {"name": "low", "strategy": "combined", "summary_model": "extractive", "trigger_threshold": 800, "keep_recent_messages": 2}
]  # fmt: skip
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
OWN = [
    "/livez",
    "/readyz",
    "/metrics",
    "/compactd/",
    "/compactd/api/sessions",
    "/compactd/api/preview",
    "/compactd/archives/a/b",
]
ODD = [
    b"\x00", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b"\xff", b"%", b"%00", b"..", b"transfer-encoding: chunked\r\n",
    b"content-length: 5\r\n", b"content-length: 99999999999999999999\r\n", b"connection: close\r\n", b"connection: upgrade\r\n",
    b"upgrade: h2c\r\n", b"expect: 100-continue\r\n", b"host: y\r\n", b"content-encoding: gzip\r\n", b"x: " + b"y" * 21_000 + b"\r\n",
    b"HTTP/1.0", b"0\r\n\r\n", b"ffffffff\r\n", b"GET / HTTP/1.1\r\n\r\n",
]  # fmt: skip


def _sound(chance: Random) -> bytes:
    """A request that a client could send."""
    kind = chance.randrange(4)
    if kind == 0:
        form = chance.choice(list(MODELS))
        talk = Talk(form).ask("Read.").rounds(chance.randrange(8), "line of a file\n" * 40)
        return talk.request(stream=chance.random() < 0.5)
    if kind == 1:
        method, path = chance.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]), chance.choice(OWN)
        body = b'{"body": {"messages": []}}' * chance.randrange(2)
        sound = request(method, path, "content-type: application/json", body=body)
        return sound.replace(b"compactd.test", b"localhost")
    form = chance.choice(list(MODELS))
    body = chance.randbytes(chance.randrange(3_000))
    if kind == 2:
        return request("POST", PATHS[form], *KEYS[form], body=body)
    parts = [body[at : at + 500] for at in range(0, len(body), 500)]
    return request(
        "POST", chance.choice(["/v1/files", PATHS[form]]), "transfer-encoding: chunked", length=False
    ) + chunks(parts)


def spoiled(chance: Random) -> list[bytes]:
    """The pieces that are sent, one after the other."""
    data = b"".join(_sound(chance) for _ in range(chance.choice([1, 1, 1, 2, 3])))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        near = chance.randrange(min(len(data), 400) + 1)  # heads are small beside bodies
        way = chance.randrange(6)
        if way == 0:
            data = data[:near] + chance.choice(ODD) + data[near:]
        elif way == 1:
            data = data[:near] + bytes([chance.randrange(256)]) + data[near + 1 :]
        elif way == 2:
            data = data[:near] + data[near + chance.randrange(30) :]
        elif way == 3:
            data = data[:at]
        elif way == 4:
            data = data[:at] + data[:near] + data[at:]
        else:
            data = data.replace(b"\r\n", b"\n", chance.randrange(1, 4))
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 0, 1, 5])))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Failed(AssertionError):
    """A promise was broken."""


async def _heard(client: Client) -> bytes:
    """What comes until the connection ends, or until nothing more comes behind something."""
    received = b""
    with suppress(ConnectionError):
        while data := await client.reader.read(65_536):
            received += data
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE):
                    while data := await client.reader.read(65_536):
                        received += data
            break
    return received


async def case(proxy: Running, number: int, told: Counter[str]) -> None:
    chance = Random(number)
    client = await proxy.connect()
    received = b""
    try:
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                for piece in spoiled(chance):
                    client.writer.write(piece)
                    await asyncio.sleep(0)
                manner = chance.random()
                if manner < 0.1:  # leaves without a word
                    return
                if manner < 0.2:
                    with suppress(OSError):
                        client.writer.write_eof()
                received = await _heard(client)
    except TimeoutError:
        raise Failed("it hangs") from None
    finally:
        client.leave()
        proxy._clients.remove(client)
    if received and not received.startswith(b"HTTP/1.1 "):
        raise Failed(f"no HTTP: {received[:80]!r}")
    statuses = [int(status) for status in _STATUS.findall(received)]
    for status in statuses:
        told[str(status)] += 1
        if status >= 500:
            raise Failed(f"{status}: {received[:300]!r}")
    if not statuses:
        told["ended"] += 1


async def run(numbers: Any, seconds: float = 1e9, together: int = 64) -> tuple[dict[int, str], Counter[str]]:
    """What was broken, by case, and how often each status came."""
    broken: dict[int, str] = {}
    told: Counter[str] = Counter()
    provider = StrictProvider()
    ends = time.monotonic() + seconds
    waiting = iter(numbers)

    async with (
        provider.serve() as url,
        compactd(configured(url, limits=LIMITS, policies=POLICIES), patience=1e6) as proxy,
    ):

        async def work() -> None:
            for number in waiting:
                if time.monotonic() > ends:
                    return
                told["cases"] += 1
                try:
                    await case(proxy, number, told)
                except Failed as failure:
                    broken[number] = str(failure)

        await asyncio.gather(*(work() for _ in range(together)))
        asked = {seen.path for seen in provider.requests}
        await until(lambda: not proxy.app.relay.inflight, PATIENCE)
        await until(lambda: not proxy.server.server_state.connections, PATIENCE)
        told["provider was asked"] = len(provider.requests)
        faults = proxy.app.metrics.faults.collect()[0].samples
        for sample in faults:
            if sample.value:
                broken[-1] = f"a fault in {sample.labels['where']}"
        if any(path == "/compactd" or path.startswith("/compactd/") for path in asked):
            broken[-2] = "a page of ours was forwarded"
    return broken, told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="this case only")
    given = parser.parse_args()
    structlog.configure(processors=[_drop])
    numbers = range(given.first, 1 << 40) if given.only is None else [given.only]
    began = time.monotonic()
    broken, told = asyncio.run(run(numbers, given.seconds))
    print(f"{told.pop('cases'):,} cases in {time.monotonic() - began:.0f} s, {len(broken)} broken")
    for what, count in told.most_common():
        print(f"  {count:>9,}  {what}")
    for number, why in list(broken.items())[:20]:
        print(f"  --only {number}: {why[:300]}")
    return int(bool(broken))


def _drop(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


if __name__ == "__main__":
    raise SystemExit(main())
