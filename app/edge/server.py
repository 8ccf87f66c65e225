"""Serving: uvicorn with compactd's way of stopping and reloading.

SIGTERM begins a drain: `/readyz` says 503 at once, and every answer ends its connection, so that clients come back to another process. A
request that still comes is served, because whoever sent it could not know. After half of `limits.drain_seconds` nobody can connect any
more, which makes a balancer try another process. After three quarters, requests on connections that are still open are refused in their
own format, because they might be cut off. It is over when nothing runs any more, or when the time is. A second signal ends it at once.
SIGHUP reads the configuration again, in every worker.
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
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from pydantic import ValidationError

from app import __version__
from app.edge import log
from app.edge.files import fitted
from app.edge.protocol import Protocol, Serving
from app.edge.stores import unusable
from app.edge.upstream.trust import untrusted
from app.errors import ConfigInvalid
from app.own.loading import missing
from app.settings import Settings, load

NEEDS = (missing, unusable, untrusted)
"""What a start takes besides sound settings."""
SHORT_LIFE, LONGEST_WAIT, MOST_FAILURES = 10.0, 30.0, 5
"""A worker that dies sooner than this (seconds) has failed at its start; the longest wait (seconds) until it is tried again; so many
failures in a row, with no worker left, and compactd gives up."""
TICKS = 10
"""uvicorn's, a second."""
QUIET = 0.5
"""Seconds without a request after which the connections that are still open are idle ones, safe to close."""
SAME_SIGNAL = 0.5
"""Seconds within which a second signal is the first one again, passed on by the process that looks after the workers."""
_CLOSE = (b"connection", b"close")


class Server(uvicorn.Server):
    """One process. `parent`: the process that looks after it, 0 for none; without that one it would hold the port for ever. `listening` is
    called once clients can connect."""

    def __init__(
        self, config: uvicorn.Config, app: Any, parent: int = 0, listening: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._parent = parent
        self._listening = listening
        self._stopped = self._busy = 0.0  # when the drain began, and when a request was last seen in it
        self._told = (
            False  # that it has begun: not from within a signal's handler, which may come in the middle of another line
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._app.reload)

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002
        """The first signal drains, the second ends it. One to the whole group comes to a worker twice, and is one."""
        relay = self._app.relay
        if relay.draining:
            if time.monotonic() - self._stopped >= SAME_SIGNAL:
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
        if counter % TICKS == 0:
            self._app.count_tasks()
        relay, now = self._app.relay, time.monotonic()
        if self._parent and os.getppid() != self._parent and not relay.draining:
            structlog.get_logger("compactd").error("parent_died", action="drains and ends")
            self.handle_exit(signal.SIGTERM, None)
        if over or not relay.draining:
            return over
        limit = self._app.settings.limits.drain_seconds
        if not self._told:
            self._told = True
            structlog.get_logger("compactd").info("draining", inflight=relay.inflight, drain_seconds=limit)
        if relay.inflight:
            self._busy = now
        if now - self._stopped >= limit / 2:
            for server in self.servers:
                server.close()
        # Later than that: whoever was let in last has a request on its way.
        relay.refusing = now - self._stopped >= limit * 3 / 4
        quiet = not relay.inflight and (not self.server_state.connections or now - self._busy >= QUIET)
        self.should_exit = quiet or now - self._stopped >= limit
        return self.should_exit

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cut = self._app.relay.end_drain()
        if cut:
            structlog.get_logger("compactd").warning("cut_off", requests=cut)
        await super().shutdown(sockets)
        structlog.get_logger("compactd").info("stopped")


def read_settings(file: str | None, overrides: dict[str, object]) -> Settings:
    """Raises ConfigInvalid with all faults."""
    return load(Path(file) if file else None, os.environ, overrides, NEEDS)


def config_for(settings: Settings, app: Any) -> Serving:
    """uvicorn's options for the hot path: no headers, logs or WebSockets of its own."""
    return Serving(
        settings.limits,
        app, host=settings.listen.host, port=settings.listen.port, workers=settings.listen.workers, loop="uvloop", http=Protocol,
        ws="none", lifespan="on", access_log=False, log_config=None, server_header=False, date_header=False, proxy_headers=False,
        timeout_keep_alive=75, timeout_graceful_shutdown=1, backlog=2048,
    )  # fmt: skip


def build_app(settings: Settings, file: str | None, overrides: dict[str, object]) -> Any:
    """The app of this process, with logging set up; `file` and `overrides` are for reading the configuration again."""
    from app.main import App

    log.configure(settings)

    def again() -> Settings | None:
        logger = structlog.get_logger("compactd")
        try:
            read = read_settings(file, overrides)
            changed = read.after(app.settings)
        except ConfigInvalid as invalid:
            logger.error("reload_refused", faults=invalid.faults, action="the old configuration stays in force")
            return None
        except ValidationError as invalid:
            faults = [fault["msg"] for fault in invalid.errors(include_input=False, include_url=False)]
            logger.error(
                "reload_refused", faults=faults, action="restart: what only a start can change does not fit the rest"
            )
            return None
        waiting = [name for name in ("listen", "store") if getattr(read, name) != getattr(changed, name)]
        logger.info("reloaded", **({"waits_for_restart": waiting} if waiting else {}))
        log.configure(changed)
        return changed

    app = App(settings, again)
    return app


def serve(file: str | None, overrides: dict[str, object], listening: Callable[[Settings], None]) -> None:
    """Run until stopped. `listening` is told the settings once the address is ours. Raises ConfigInvalid before anything is opened."""
    settings = read_settings(file, overrides)
    log.configure(settings)
    settings = fitted(settings)
    structlog.get_logger("compactd").info(
        "starting", version=__version__, address=f"{settings.listen.host}:{settings.listen.port}", workers=settings.listen.workers,
        file=file or "built-in defaults", store=settings.store.url.partition("://")[0],
    )  # fmt: skip
    if settings.listen.workers == 1:
        app = build_app(settings, file, overrides)
        Server(config_for(settings, app), app, listening=lambda: listening(settings)).run()
        return
    _serve_workers(settings, file, overrides, listening)


def _serve_workers(
    settings: Settings, file: str | None, overrides: dict[str, object], listening: Callable[[Settings], None]
) -> None:
    """Several processes on one socket; one that dies is replaced, with the last sound configuration; signals reach all of them.

    Raises SystemExit(1) where none ever comes up.
    """
    with tempfile.TemporaryDirectory(prefix="compactd-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        listener = config_for(settings, None).bind_socket()
        listening(settings)
        spawn = multiprocessing.get_context("spawn")

        workers: list[_Worker] = []
        stopping = False

        def start() -> SpawnProcess:
            process = spawn.Process(target=_worker_main, args=(settings, file, overrides, listener, os.getpid()))
            process.start()
            if stopping:  # it was told while this one was on its way
                process.terminate()
            return process

        def pass_on(sig: int, frame: Any) -> None:  # noqa: ARG001
            nonlocal stopping, settings
            stopping = stopping or sig != signal.SIGHUP
            if sig == signal.SIGHUP:
                with contextlib.suppress(ConfigInvalid):  # the workers tell what is wrong
                    settings = fitted(read_settings(file, overrides))
                    log.configure(settings)
            for worker in workers:
                if worker.process.pid is not None and worker.process.is_alive():
                    os.kill(worker.process.pid, sig)

        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, pass_on)
        for _ in range(settings.listen.workers):
            workers.append(_Worker(start))
        while True:
            alive = [worker.process for worker in workers if worker.process.is_alive()]
            if stopping and not alive:
                return
            if not alive and all(worker.failures >= MOST_FAILURES for worker in workers):
                structlog.get_logger("compactd").error(
                    "workers_do_not_start", tries=MOST_FAILURES, action="gave up; what each of them said is above"
                )
                raise SystemExit(1)
            multiprocessing.connection.wait([process.sentinel for process in alive], timeout=0.1 if not alive else 1)
            if stopping:
                listener.close()  # the workers have it, and close it when they refuse
            for worker in workers:
                if not stopping:
                    worker.replace_if_dead()


class _Worker:
    """One of the processes. One that dies soon after its start is tried again ever later, so that what can't start does no harm."""

    def __init__(self, start: Callable[[], SpawnProcess]) -> None:
        self._start = start
        self.process = start()
        self.failures = 0
        self._began = time.monotonic()
        self._due: float | None = None

    def replace_if_dead(self) -> None:
        """Start another in its place, if it is dead and the time has come."""
        now = time.monotonic()
        if self.process.is_alive():
            return
        if self._due is None:
            self.failures = self.failures + 1 if now - self._began < SHORT_LIFE else 0
            wait = min(0.5 * 2 ** max(0, self.failures - 1), LONGEST_WAIT)
            self._due = now + wait
            structlog.get_logger("compactd").error(
                "worker_died", exit_code=self.process.exitcode, action=f"starting another in {wait:g} s"
            )
            mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        if now >= self._due:
            self._began, self._due = now, None
            self.process = self._start()


def _worker_main(
    settings: Settings, file: str | None, overrides: dict[str, object], listener: socket.socket, parent: int
) -> None:
    app = build_app(settings, file, overrides)
    Server(config_for(settings, app), app, parent).run(sockets=[listener])
