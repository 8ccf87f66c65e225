"""Asking the store: every call is bounded, counted, and given up while the store is away.

A breaker stops asking what does not answer. Writing has a breaker of its own: a store that is full, or has become read-only, can still be
read. The log says when a breaker opens, and why; a probe in the background finds out when to ask again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from app.edge.stores.base import TooLarge, patience
from app.edge.stores.breaker import Breaker
from app.errors import StoreFailed
from app.ports import Store, Tracer

WRITES = frozenset(
    {"put_checkpoint", "quarantine", "update_session", "acquire", "renew", "release", "put_archive", "put_compaction"}
)

GRACE = 1.2
"""A store bounds its calls itself, and should be the first to give up."""
PROBE_SECONDS = 1.0

T = TypeVar("T")


class StoreRecorder(Protocol):
    """Metrics and log of store calls. `op` is the name of the port's method."""

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...

    def note(self, event: str, **facts: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...


class Asking:
    """`timeout` bounds one call (seconds). `degraded` tells whether the call that ended last did without the store; `healthy` is False
    while a breaker is open."""

    def __init__(
        self, store: Store, timeout: float, recorder: StoreRecorder, breaker: Callable[[], Breaker], tracer: Tracer
    ) -> None:
        self._store = store
        self._timeout = timeout
        self._recorder = recorder
        self._tracer = tracer
        self._reading, self._writing = breaker(), breaker()
        self._background: set[asyncio.Task[None]] = set()
        self.degraded = False

    @property
    def healthy(self) -> bool:
        return self._reading.closed and self._writing.closed

    async def ask(self, op: str, call: Callable[[], Awaitable[T]], *values: object) -> T:
        """The only way to the store, the probes' aside. Sets `degraded` last, so that the caller's caller sees its own.

        Raises StoreFailed.
        """
        breaker = self._writing if op in WRITES else self._reading
        if not (breaker.closed and self._reading.closed):
            for due in self._due():
                self.spawn(self._probe(due))  # in the background: no request waits for it
            self.degraded = True
            raise StoreFailed(f"{op}: the store is away")
        try:
            result = await self._timed(op, call, *values)
        except TooLarge:
            self.degraded = False
            raise
        except StoreFailed as fault:
            was_closed = breaker.closed
            breaker.failed()
            if was_closed and not breaker.closed:
                self._recorder.warn("store_degraded", why=str(fault))
            self.degraded = True
            raise
        breaker.succeeded()
        self.degraded = False
        return result

    async def ping(self) -> None:
        """Ask the store, also as the probe of an open breaker. Raises StoreFailed while it is away or takes no writes."""
        due = self._due()
        for breaker in due:
            await self._probe(breaker)
        if not self._writing.closed:
            raise StoreFailed("ping: the store takes no writes")
        if not (self._reading in due and self._reading.closed):
            await self.ask("ping", self._store.ping)

    def try_out(self) -> None:
        """Ask the store in the background, so that the log says at the start of a process what would keep it from its store."""

        async def work() -> None:
            for more in (2, 1, 0):  # a process that has just begun is slow itself
                try:
                    await self.ping()
                    return
                except StoreFailed as fault:
                    if not more:
                        self._recorder.warn("store_degraded", why=str(fault))

        self.spawn(work())

    @property
    def busy(self) -> int:
        """Tasks in the background."""
        return len(self._background)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the background, until the store is closed."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        with suppress(Exception):
            async with asyncio.timeout(max(self._timeout, 1.0)):
                await self._store.close()

    async def _timed(self, op: str, call: Callable[[], Awaitable[T]], *values: object) -> T:
        begun = time.perf_counter()
        try:
            with self._tracer.span("store", op=op):
                return await _in_time(call(), patience(self._timeout, op, *values) * GRACE)
        except TooLarge:
            raise
        except Exception as error:
            self._recorder.store_error(op)
            # Only our own errors are known to carry no content.
            words = str(error) if isinstance(error, StoreFailed) else f"{op}: {type(error).__name__}"
            raise StoreFailed(words) from None
        finally:
            self._recorder.store_seconds(op, time.perf_counter() - begun)

    def _due(self) -> list[Breaker]:
        """The breakers whose probe is the caller's now."""
        return [breaker for breaker in (self._reading, self._writing) if breaker.begin_probe()]

    async def _probe(self, breaker: Breaker) -> None:
        success = False
        try:
            if breaker is self._reading:
                await self._timed("ping", self._store.ping)
            else:  # a lease that nobody else asks for, and that ends by itself
                await self._timed(
                    "acquire", lambda: self._store.acquire(f"probe {secrets.token_hex(8)}", PROBE_SECONDS)
                )
            success = True
        except StoreFailed:
            pass
        finally:
            breaker.end_probe(success)
            if success:
                self._recorder.note("store_recovered")


async def _in_time(call: Awaitable[T], seconds: float) -> T:
    """Its result within so many seconds, also when it will not be cancelled: a client library may swallow that. Raises TimeoutError."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait((task,), timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody asks any more
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()
