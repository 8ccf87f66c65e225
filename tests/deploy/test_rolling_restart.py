"""A rolling restart under load: one compactd is stopped while another takes over, and no client notices.

Two real processes on one store stand behind a balancer of the simplest kind: it knows TCP only, gives a new connection to a process whose
`/readyz` says 200, and leaves open connections where they are. Clients keep their connections and never try again; streams run on over the
restart.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

from tests.deploy.load import WORDS, Load, sections
from tests.edge.processes import Process, process
from tests.ports import free_port
from tests.strict.answers import Reply
from tests.strict.server import StrictProvider


class Balancer:
    """`backends` may change at any time."""

    def __init__(self) -> None:
        self.backends: list[Process] = []
        self.port = free_port()
        self._ready: list[Process] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        checking = asyncio.create_task(self._check())
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            checking.cancel()
            server.close()

    async def ready(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self._ready) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _check(self) -> None:
        while True:
            self._ready = [backend for backend in self.backends if await self._healthy(backend)]
            await asyncio.sleep(0.1)

    async def _healthy(self, backend: Process) -> bool:
        with suppress(httpx.TransportError):
            return (await backend.http.get("/readyz")).status_code == 200
        return False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ready.append(self._ready.pop(0))
        there = await asyncio.open_connection("127.0.0.1", self._ready[0].port)
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def test_no_request_is_lost_and_no_stream_breaks(tmp_path: Path) -> None:
    provider = StrictProvider(answer=lambda form, body: Reply(text=WORDS), event_gap=0.05)  # noqa: ARG005
    balancer = Balancer()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with provider.serve() as url, balancer.serve() as address:
        configuration = sections(url, f"sqlite:///{tmp_path}/compactd.db")
        async with process(tmp_path / "old", **configuration) as old:
            balancer.backends = [old]
            await balancer.ready(1)
            load = Load(address)
            load.begin()
            async with process(tmp_path / "new", **configuration) as new:
                balancer.backends = [old, new]
                await balancer.ready(2)
                before = len(load.streams_over)
                old.signal(signal.SIGTERM)
                assert await old.ended() == 0
                after = len(load.served_by)
                await asyncio.sleep(1.5)
                await load.end()
                assert load.faults == []
                assert len(load.streams_over) > before  # these ran while the old one was stopping
                assert len(set(load.served_by)) == 2
                assert len(set(load.served_by[after:])) == 1
                assert (
                    len({seen.raw for seen in provider.requests}) == 2
                )  # streamed and whole: one compaction for both processes
                assert await new.metric("compactions_total") == 0
                assert "Traceback" not in old.log.read_text() + new.log.read_text()
