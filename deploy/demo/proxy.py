"""The real compactd of the demonstration: a process with a configuration of its own, in a folder that stays for a look afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

from deploy.demo.story import Story

_CONFIG = """# Written by the demonstration.
listen: {{port: {port}}}
upstreams:
  provider: {{base_url: "{provider}", formats: [openai-chat, anthropic-messages]}}
store: {{url: "sqlite:///{store}"}}
models:
  "demo-*": {{context_window: {window}}}
policies:
{policies}
log: {{format: json}}
"""
_POLICY = '  - {{name: {name}, match: {{models: ["*-{name}"]}}, strategy: {strategy}}}'
_PATIENCE = 30.0  # seconds


class NotStarted(Exception):
    """compactd did not come up; the message says what it said."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_config(folder: Path, provider: str, window: int, stories: Iterable[Story]) -> tuple[Path, str]:
    """An empty store and a configuration in this folder, with a policy for each story: its file, and compactd's address."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("compactd.*"):
        old.unlink()
    port, file = _free_port(), folder / "compactd.yaml"
    store = folder.resolve() / "compactd.db"
    policies = "\n".join(_POLICY.format(name=story.name, strategy=story.strategy) for story in stories)
    file.write_text(_CONFIG.format(port=port, provider=provider, store=store, window=window, policies=policies))
    return file, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def compactd(file: Path, address: str) -> AsyncIterator[None]:
    """Runs until the block ends. Raises NotStarted."""
    log = file.with_name("compactd.log")
    process = _start(file, log)
    try:
        if not await _ready(process, address):
            raise NotStarted(log.read_text().strip() or f"no answer within {_PATIENCE:.0f} seconds")
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def _start(file: Path, log: Path) -> subprocess.Popen[bytes]:
    """`compactd serve`, without what the environment may hold for another compactd."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTD_")}
    command = [str(Path(sys.executable).with_name("compactd")), "serve", "--config", str(file)]
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)


async def _ready(process: subprocess.Popen[bytes], address: str) -> bool:
    clock = asyncio.get_running_loop().time
    deadline = clock() + _PATIENCE
    async with httpx.AsyncClient(trust_env=False) as http:
        while process.poll() is None and clock() < deadline:
            with suppress(httpx.TransportError):
                if (await http.get(address + "/readyz")).status_code == 200:
                    return True
            await asyncio.sleep(0.05)
    return False
