"""Composition: settings -> store, upstream, compactor, relay -> one ASGI app.

Proxied paths go to the relay in raw ASGI, before any framework; compactd's own few go to FastAPI. The app is complete before the first
request and closed after the last one; a reload swaps the settings that new requests see and leaves running ones alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, disable_created_metrics

from app.compactor import Compactor
from app.core import tokens
from app.edge import memory
from app.edge.archives import open_archives
from app.edge.counters import ProviderCounter
from app.edge.exchange import Wiring
from app.edge.headers import digest
from app.edge.metrics import Metrics
from app.edge.operations import operations
from app.edge.record import RequestRecorder
from app.edge.relay import Relay
from app.edge.routing import Router, is_own
from app.edge.stores import store_of
from app.edge.stores.guarded import Guarded
from app.edge.summarizer import ModelSummarizer
from app.edge.traces import open_traces
from app.edge.upstream import Upstream
from app.registry import Registry
from app.settings import Client, Settings


class App:
    """The ASGI application. `reload` gives the settings to change to, or None to stay with the present ones."""

    def __init__(self, settings: Settings, reload: Callable[[], Settings | None] = lambda: None) -> None:
        self.settings = settings
        self._read_again = reload
        limits, kept = settings.limits, settings.store
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = Metrics(CollectorRegistry())
        self.metrics.expect(settings)
        self._recorder = recorder = RequestRecorder(self.metrics, settings.log)
        store = store_of(kept)
        self.traces = open_traces(settings.traces)
        self.store = Guarded(store, kept.timeout, recorder, tracer=self.traces)
        self.archives = open_archives(settings.archive.url, self.store, kept.secret)
        self._upstream = Upstream(max_connections=limits.max_connections)
        summarizer = ModelSummarizer(lambda: self.relay.wiring, self._upstream, self.metrics, self.traces)
        counter = ProviderCounter(lambda: self.relay.wiring, self._upstream, recorder, traces=self.traces)
        compactor = Compactor(
            self.store, summarizer, recorder, settings.public_base, counter, self.archives, self.traces
        )
        self.relay = Relay(_wiring(settings), self._upstream, compactor, recorder, self.traces)
        self._operations = operations(self)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if is_own(scope["path"]):
                await self._operations(scope, receive, send)
            else:
                await self.relay(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        asyncio.get_running_loop().set_exception_handler(self._unhandled_exception)
        tokens.preload()
        memory.settle()
        self.store.try_out()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.relay.finish_background()
        await self._upstream.aclose()
        await self.store.close()
        await self.traces.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _unhandled_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        """What went wrong with nobody there to hear it. asyncio's own line would repeat the exception's words, and so a user's."""
        self._recorder.fault("loop", context.get("exception"))

    def reload(self) -> None:
        """Take over changed settings for new requests."""
        settings = self._read_again()
        if settings is not None:
            wiring = _wiring(settings)
            wiring.registry.remember(self.relay.wiring.registry)
            self.settings, self.relay.wiring = settings, wiring
            self._recorder.follow(settings.log)
            self.metrics.expect(settings)

    def measure(self) -> None:
        """Bring the gauges up to date that no request does."""
        self.metrics.draining.set(self.relay.draining)
        self.metrics.store_degraded.set(not self.store.healthy)

    def count_tasks(self) -> None:
        """Also a gauge; finding out takes a look at every task."""
        self.metrics.tasks.set(len(asyncio.all_tasks()))


def _wiring(settings: Settings) -> Wiring:
    log = structlog.get_logger("compactd")
    registry = Registry(settings.models, lambda text: log.warning("unknown_model", hint=text))
    keys: list[tuple[bytes, Client | None]] = [(digest(key.get_secret_value()), None) for key in settings.auth.keys]
    keys += [(digest(client.key.get_secret_value()), client) for client in settings.auth.clients.values()]
    return Wiring(settings, Router(settings), registry, tuple(keys), lambda text: log.warning("left_out", hint=text))
