"""The real compactd of the demonstration: a process with a configuration of its own, in a folder that stays for a look afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

_CONFIG = """# Written by the demonstration.
listen: {{port: {port}}}
upstreams:
  provider: {{base_url: "{provider}", formats: [openai-chat, anthropic-messages]}}
store: {{url: "sqlite:///{store}"}}
models:
  "demo-*": {{context_window: {window}}}
policies:
  - {{name: agent, match: {{models: ["*-agent"]}}, strategy: tool_result_clearing}}
  - {{name: review, match: {{models: ["*-review"]}}, strategy: sliding_window}}
log: {{format: json}}
"""
_PATIENCE = 30.0  # seconds


class NotStarted(Exception):
    """compactd did not come up; the message says what it said."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_config(folder: Path, provider: str, window: int) -> tuple[Path, str]:
    """An empty store and a configuration in this folder: its file, and compactd's address."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("compactd.*"):
        old.unlink()
    port, file = _free_port(), folder / "compactd.yaml"
    store = folder.resolve() / "compactd.db"
    file.write_text(_CONFIG.format(port=port, provider=provider, store=store, window=window))
    return file, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def compactd(file: Path, address: str) -> AsyncIterator[None]:
    """Runs until the block ends. Raises NotStarted."""
    log = file.with_name("compactd.log")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTD_")}
    command = [str(Path(sys.executable).with_name("compactd")), "serve", "--config", str(file)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        await _ready(process, address, log)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    async with httpx.AsyncClient(trust_env=False) as http:
        while asyncio.get_running_loop().time() < deadline:
            if process.poll() is not None:
                raise NotStarted(log.read_text().strip())
            try:
                if (await http.get(address + "/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
    raise NotStarted(f"no answer from {address} within {_PATIENCE:.0f} seconds")
