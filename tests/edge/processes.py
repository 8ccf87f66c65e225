"""`compactd serve` as a process of its own, for what only a process can show: signals, workers, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.edge.wire import Client
from tests.ports import free_port

PATIENCE = 40.0  # seconds; a process needs a few to start on a busy machine
COMMAND = [sys.executable, "-c", "from app.cli import main; main()"]


class Process:
    """`lines`: what it has logged so far, parsed."""

    def __init__(self, folder: Path, port: int) -> None:
        self.file = folder / "compactd.yaml"
        self.log = folder / "compactd.log"
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=PATIENCE)
        self._process: asyncio.subprocess.Process | None = None

    def configure(self, **sections: Any) -> None:
        """Write the configuration; JSON is YAML."""
        listen = {"port": self.port, **sections.pop("listen", {})}
        self.file.write_text(json.dumps({"listen": listen, "log": {"format": "json"}, **sections}))

    async def start(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("COMPACTD_", "PROMETHEUS_"))
        }
        with self.log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "serve",
                "--config",
                str(self.file),
                env=environment,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).parents[2],
            )

    async def ready(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                assert self.running.returncode is None, self.log.read_text()
                with suppress(httpx.TransportError):
                    if (await self.http.get("/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    @property
    def running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    def signal(self, number: signal.Signals) -> None:
        self.running.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.running.wait()

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    async def logged(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait for a log line."""
        async with asyncio.timeout(PATIENCE):
            while len(found := [line for line in self.lines if line["event"] == event]) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found[-1]

    async def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        starts = (f"compactd_{name} ", f"compactd_{name}{{")
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(starts))


@asynccontextmanager
async def process(folder: Path, **sections: Any) -> AsyncIterator[Process]:
    """A compactd that is ready; killed at the end, if it still runs."""
    made = Process(folder, free_port())
    made.configure(**sections)
    await made.start()
    try:
        await made.ready()
        yield made
    finally:
        await made.http.aclose()
        if made.running.returncode is None:
            made.running.kill()
            await made.running.wait()
