"""Serving: uvicorn with compactd's way of stopping and reloading.

SIGTERM begins a drain: `/readyz` says 503 at once, and every answer ends its connection, so that clients come back to another process. For
the first half of `limits.drain_seconds` a request that still comes is served, because whoever sent it could not know. Later ones might be
cut off: nobody can connect any more, which makes a balancer try another process, and requests on connections that are still open are
refused in their own format. It is over when nothing runs any more, or when the time is. A second signal ends it at once. SIGHUP reads the
configuration again, in every worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from pydantic import ValidationError

from app.edge import log
from app.edge.protocol import Protocol, Serving
from app.errors import ConfigInvalid
from app.own.loading import loadable
from app.settings import Settings, load

QUIET = 0.5
"""Seconds without a request after which the connections that are still open are idle ones, safe to close."""
_CLOSE = (b"connection", b"close")


class Server(uvicorn.Server):
    """One process."""

    def __init__(self, config: uvicorn.Config, app: Any) -> None:
        super().__init__(config)
        self._app = app
        self._stopped = self._busy = 0.0  # when the drain began, and when a request was last seen in it

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._app.reload)

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002
        """The first signal drains, the second ends it."""
        relay = self._app.relay
        if relay.draining:
            self.should_exit = True
            return
        relay.draining = True
        self._stopped = self._busy = time.monotonic()
        self.config.encoded_headers.append(_CLOSE)  # uvicorn takes these over once a second
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; True ends the main loop."""
        over = await super().on_tick(counter)
        self._app.measure()
        relay, now = self._app.relay, time.monotonic()
        if over or not relay.draining:
            return over
        limit = self._app.settings.limits.drain_seconds
        if relay.inflight:
            self._busy = now
        if not relay.refusing and now - self._stopped >= limit / 2:
            relay.refusing = True
            for server in self.servers:
                server.close()
        quiet = not relay.inflight and (not self.server_state.connections or now - self._busy >= QUIET)
        self.should_exit = quiet or now - self._stopped >= limit
        return self.should_exit


def read_settings(file: str | None, overrides: dict[str, object]) -> Settings:
    """Raises ConfigInvalid with all faults."""
    return loadable(load(Path(file) if file else None, os.environ, overrides))


def config_for(settings: Settings, app: Any) -> Serving:
    """uvicorn's options for the hot path: no headers, logs or WebSockets of its own."""
    return Serving(
        settings.limits,
        app, host=settings.listen.host, port=settings.listen.port, workers=settings.listen.workers, loop="uvloop", http=Protocol,
        ws="none", lifespan="on", access_log=False, log_config=None, server_header=False, date_header=False, proxy_headers=False,
        timeout_keep_alive=75, timeout_graceful_shutdown=1, backlog=2048,
    )  # fmt: skip


def build(settings: Settings, file: str | None, overrides: dict[str, object]) -> Any:
    """The app of this process, with logging set up; `file` and `overrides` are for reading the configuration again."""
    from app.main import App

    log.configure(settings)

    def again() -> Settings | None:
        logger = structlog.get_logger("compactd")
        try:
            changed = read_settings(file, overrides).after(app.settings)
        except ConfigInvalid as invalid:
            logger.error("reload_refused", faults=invalid.faults, action="the old configuration stays in force")
            return None
        except ValidationError as invalid:
            faults = [fault["msg"] for fault in invalid.errors(include_input=False, include_url=False)]
            logger.error(
                "reload_refused", faults=faults, action="restart: what only a start can change does not fit the rest"
            )
            return None
        logger.info("reloaded")
        log.configure(changed)
        return changed

    app = App(settings, again)
    return app


def serve(file: str | None, overrides: dict[str, object]) -> None:
    """Run until stopped. Raises ConfigInvalid before anything is opened."""
    settings = read_settings(file, overrides)
    if settings.listen.workers == 1:
        app = build(settings, file, overrides)
        Server(config_for(settings, app), app).run()
        return
    _serve_workers(settings, file, overrides)


def _serve_workers(settings: Settings, file: str | None, overrides: dict[str, object]) -> None:
    """Several processes on one socket; one that dies is replaced, with the last sound configuration; signals reach all of them."""
    log.configure(settings)
    with tempfile.TemporaryDirectory(prefix="compactd-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        listener = config_for(settings, None).bind_socket()
        listener.set_inheritable(True)
        spawn = multiprocessing.get_context("spawn")

        def start() -> SpawnProcess:
            process = spawn.Process(target=_work, args=(settings, file, overrides, listener))
            process.start()
            return process

        processes = [start() for _ in range(settings.listen.workers)]
        stopping = False

        def pass_on(sig: int, frame: Any) -> None:  # noqa: ARG001
            nonlocal stopping, settings
            if sig != signal.SIGHUP:
                stopping = True
                listener.close()  # the workers have it, and close it when they refuse
            if sig == signal.SIGHUP:
                with contextlib.suppress(ConfigInvalid):  # the workers tell what is wrong
                    settings = read_settings(file, overrides)
                    log.configure(settings)
            for process in processes:
                if process.pid is not None and process.is_alive():
                    os.kill(process.pid, sig)

        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, pass_on)
        while any(process.is_alive() for process in processes):
            multiprocessing.connection.wait([process.sentinel for process in processes], timeout=1)
            for at, process in enumerate(processes):
                if process.is_alive() or stopping:
                    continue
                structlog.get_logger("compactd").error(
                    "worker_died", exit_code=process.exitcode, action="started another"
                )
                mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
                time.sleep(0.5)
                processes[at] = start()


def _work(settings: Settings, file: str | None, overrides: dict[str, object], listener: socket.socket) -> None:
    app = build(settings, file, overrides)
    Server(config_for(settings, app), app).run(sockets=[listener])
