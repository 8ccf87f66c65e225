"""What is measured: the upstream itself (`direct`), nginx, compactd in three configurations, and commands of your own.

Each target is a server on a port of its own in front of the same upstream. All run for the whole bench; idle ones cost nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from processes import BENCH, BenchError, memory_mb, start, tree, wait_ready

SETTLE_SECONDS = 1.0  # from ready to the reading of idle memory

# `models` and `policies` of a compactd configuration. A 1 MB body of the corpus has about 335,000 tokens.
CONFIGS: dict[str, dict[str, float]] = {
    # The body's bytes are below the threshold: nothing needs to be looked at.
    "raw": {"context_window": 20_000_000, "trigger_threshold": 0.8, "target_threshold": 0.5},
    # The bytes of 1 MB exceed the threshold, its tokens do not: it has to be counted, and then passes.
    "counted": {"context_window": 1_000_000, "trigger_threshold": 600_000, "target_threshold": 400_000},
    # The tokens of 1 MB exceed it: compacted once, replayed from then on.
    "compacting": {
        "context_window": 400_000,
        "trigger_threshold": 100_000,
        "target_threshold": 50_000,
        "clear_at_least": 1_000,
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    port: int
    pid: int | None = None  # None: the upstream, whose own use is of no interest
    start_seconds: float = 0.0
    idle_mb: float = 0.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def nginx_config(directory: Path, port: int, upstream_port: int) -> str:
    """One worker, keep-alive on both sides, nothing buffered: the least that a proxy can do."""
    paths = " ".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root root;" if os.getuid() == 0 else ""  # a worker of another user could not enter the directory
    return f"""
        {user} worker_processes 1; daemon off; pid {directory}/nginx.pid; error_log {directory}/error.log;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; {paths} client_max_body_size 64m; client_body_buffer_size 8m; keepalive_requests 1000000000;
            upstream provider {{ server 127.0.0.1:{upstream_port}; keepalive 512; keepalive_requests 1000000000; }}
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
                    proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600;
                }}
            }}
        }}
    """


def compactd_config(kind: str, upstream: str, store: str) -> str:
    """JSON, which is YAML too."""
    policy: dict[str, object] = {"name": "default", "strategy": "tool_result_clearing", **CONFIGS[kind]}
    window = policy.pop("context_window")
    config = {
        "listen": {"host": "127.0.0.1"},
        "upstreams": {
            "openai": {"base_url": upstream, "formats": ["openai-chat", "openai-responses"]},
            "anthropic": {"base_url": upstream, "formats": ["anthropic-messages"]},
        },
        "store": {"url": store},
        "models": {"*": {"context_window": window}},
        "policies": [policy],
    }
    return json.dumps(config, indent=2)


def compactd_command(wanted: str | None) -> str:
    """The compactd to run: the one asked for, that of the repository's virtual environment, or the one beside Python."""
    candidates = [wanted] if wanted else [BENCH.parent / ".venv/bin/compactd", Path(sys.executable).parent / "compactd"]
    for candidate in candidates:
        if found := shutil.which(str(candidate)):
            return found
    raise BenchError(f"not found: {', '.join(map(str, candidates))}")


class Launcher:
    """Starts targets in front of one upstream; each has a directory for its files and its output."""

    def __init__(self, stack: ExitStack, directory: Path, upstream_port: int, cpu: int | None) -> None:
        self._stack, self._directory, self._upstream_port, self._cpu = stack, directory, upstream_port, cpu
        self.upstream = f"http://127.0.0.1:{upstream_port}"

    def direct(self) -> Target:
        return Target("direct", self._upstream_port)

    def nginx(self) -> Target:
        binary = shutil.which("nginx", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
        if not binary:
            raise BenchError(
                "not on PATH, so there are no ratios to it; on Debian and Ubuntu: apt-get install nginx-light"
            )
        directory, port = self._place("nginx")
        (directory / "nginx.conf").write_text(nginx_config(directory, port, self._upstream_port))
        return self._launch("nginx", [binary, "-e", f"{directory}/error.log", "-c", f"{directory}/nginx.conf"], port)

    def compactd(self, kind: str, command: str | None, store: str) -> Target:
        binary = compactd_command(command)
        name = f"compactd-{kind}"
        directory, port = self._place(name)
        config = directory / "compactd.yaml"
        config.write_text(compactd_config(kind, self.upstream, store))
        return self._launch(name, [binary, "serve", "--config", str(config), "--port", str(port)], port)

    def command(self, name: str, command: str) -> Target:
        """A command line in which {port}, {upstream} (a URL) and {dir} (a scratch directory) are filled in."""
        directory, port = self._place(name)
        for key, value in (("{port}", str(port)), ("{upstream}", self.upstream), ("{dir}", str(directory))):
            command = command.replace(key, value)
        return self._launch(name, shlex.split(command), port)

    def _place(self, name: str) -> tuple[Path, int]:
        directory = self._directory / name
        directory.mkdir()
        return directory, free_port()

    def _launch(self, name: str, command: list[str], port: int) -> Target:
        directory = self._directory / name
        log = self._stack.enter_context((directory / "output.log").open("wb"))
        began = time.monotonic()
        process = start(self._stack, command, self._cpu, log, directory)
        try:
            seconds = wait_ready(process, port, began)
        except BenchError as problem:
            tail = (directory / "output.log").read_text(errors="replace")[-1500:]
            raise BenchError(f"{problem}; its last output:\n{tail}") from None
        time.sleep(SETTLE_SECONDS)
        return Target(name, port, process.pid, seconds, memory_mb(tree(process.pid), "VmRSS"))
