"""The store that requests see: it answers in time, whatever the real one does.

A dead or slow store must cost a request nothing but what the store would have told. So every call is bounded, a breaker stops
asking what does not answer, and a `MemoryStore` beside the real store knows what this process wrote or was told lately. Writing has a
breaker of its own: a store that is full, or has become read-only, can still be read.
Checkpoints, quarantines, sessions and leases have such a local answer; for archives, records and lists there is only
the store. When the store comes back, what it missed is given to it again as conversations come by: a lookup compares both
sides, the deeper checkpoint wins, and a quarantine on either side holds.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from app.edge.stores.base import StoreOptions, TooLarge, patience
from app.edge.stores.breaker import Breaker
from app.edge.stores.memory import MemoryStore
from app.edge.stores.sessions import checked
from app.errors import StoreFailed
from app.ports import (
    UNTRACED,
    Archive,
    Compaction,
    Found,
    Session,
    SessionChange,
    Store,
    StoredCheckpoint,
    Tracer,
)

LOCAL_BYTES = 128 << 20
"""Bytes of checkpoints kept beside the real store: half of this."""

WRITES = frozenset(
    {"put_checkpoint", "quarantine", "update_session", "acquire", "renew", "release", "put_archive", "put_compaction"}
)

GRACE = 1.2
"""A store bounds its calls itself, and should be the first to give up."""
PROBE_SECONDS = 1.0
REPAIRS = 16
"""Background writes at a time that bring the store up to date; more are left for the next lookup."""

T = TypeVar("T")


class StoreRecorder(Protocol):
    """Metrics and log of store calls. `op` is the name of the port's method."""

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...

    def note(self, event: str, **facts: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...


class Guarded:
    """`timeout` bounds one call (seconds). Methods raise `StoreFailed` only, and only where there is no local answer.

    `degraded` tells whether the call that ended last did without the store: read it right after the `await`, before
    another one. `healthy` is False while a breaker is open; `ping` is for `/readyz`, and probes, once that is due.
    """

    def __init__(
        self,
        store: Store,
        timeout: float,
        recorder: StoreRecorder,
        *,
        local: MemoryStore | None = None,
        breaker: Callable[[], Breaker] = Breaker,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._tracer = tracer
        self._store = store
        self._timeout = timeout
        self._recorder = recorder
        # What lives as long here as there is not remembered here after it was forgotten there.
        options = getattr(store, "options", None) or StoreOptions()
        self._local = local or MemoryStore(replace(options, max_bytes=LOCAL_BYTES))
        self._reading, self._writing = breaker(), breaker()
        self._background: set[asyncio.Task[None]] = set()
        self.degraded = False

    @property
    def healthy(self) -> bool:
        return self._reading.closed and self._writing.closed

    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        here = await self._local.lookup(tenant, chain, session)
        try:
            there = await self._ask("lookup", lambda: self._store.lookup(tenant, chain, session))
        except StoreFailed:
            return here
        return self._merged(tenant, chain, here, there)

    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        kept = await self._local.put_checkpoint(tenant, checkpoint)
        try:
            first = await self._ask("put_checkpoint", lambda: self._store.put_checkpoint(tenant, checkpoint))
        except StoreFailed:
            return kept
        if not first:  # another replica's counts: the next lookup learns it
            self._local.forget_checkpoint(tenant, checkpoint.key)
        return first

    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        await self._local.quarantine(tenant, checkpoint)
        with suppress(StoreFailed):
            await self._ask("quarantine", lambda: self._store.quarantine(tenant, checkpoint))

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        """What changes while the store is away counts in this process until the store answers again, and is lost then."""
        checked(change)
        await self._local.update_session(tenant, session, change)
        with suppress(StoreFailed):
            await self._ask("update_session", lambda: self._store.update_session(tenant, session, change))

    async def acquire(self, name: str, seconds: float) -> str | None:
        """Within this process the local lease decides; the store's is for the other replicas."""
        here = await self._local.acquire(name, seconds)
        if here is None:
            self.degraded = False  # nobody needed the store for this answer
            return None
        try:
            there = await self._ask("acquire", lambda: self._store.acquire(name, seconds))
        except StoreFailed:
            return f"{here}:"
        except BaseException:
            await self._local.release(name, here)
            raise
        if there is None:
            await self._local.release(name, here)
            return None
        return f"{here}:{there}"

    async def renew(self, name: str, token: str, seconds: float) -> bool:
        """A store that can't tell whether the lease still holds counts as one that says so: it takes no other holder either."""
        here, _, there = token.partition(":")
        if not await self._local.renew(name, here, seconds):
            return False
        try:
            return not there or await self._ask("renew", lambda: self._store.renew(name, there, seconds))
        except StoreFailed:
            return True

    async def release(self, name: str, token: str) -> None:
        here, _, there = token.partition(":")
        await self._local.release(name, here)
        if there:
            with suppress(StoreFailed):
                await self._ask("release", lambda: self._store.release(name, there))

    async def put_archive(self, archive: Archive) -> None:
        await self._ask("put_archive", lambda: self._store.put_archive(archive), archive)

    async def get_archive(self, archive_id: str) -> Archive | None:
        return await self._ask("get_archive", lambda: self._store.get_archive(archive_id))

    async def put_compaction(self, compaction: Compaction) -> None:
        await self._ask("put_compaction", lambda: self._store.put_compaction(compaction))

    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        return await self._ask("get_compaction", lambda: self._store.get_compaction(compaction_id))

    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        return await self._ask("sessions", lambda: self._store.sessions(cursor, limit))

    async def get_session(self, session: str) -> Session | None:
        return await self._ask("get_session", lambda: self._store.get_session(session))

    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        return await self._ask("compactions", lambda: self._store.compactions(session, cursor, limit))

    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        return await self._ask("archives", lambda: self._store.archives(session, cursor, limit))

    async def ping(self) -> None:
        """Ask the store, also as the probe of an open breaker. Raises StoreFailed while it is away or takes no writes."""
        due = self._due()
        for breaker in due:
            await self._probe(breaker)
        if not self._writing.closed:
            raise StoreFailed("ping: the store takes no writes")
        if not (self._reading in due and self._reading.closed):
            await self._ask("ping", self._store.ping)

    def try_out(self) -> None:
        """Ask the store in the background, so that the log says at the start of a process what would keep it from its store."""

        async def work() -> None:
            try:
                await self.ping()
            except StoreFailed as fault:
                self._recorder.warn("store_degraded", why=str(fault))

        self._spawn(work())

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        with suppress(Exception):
            async with asyncio.timeout(max(self._timeout, 1.0)):
                await self._store.close()

    async def _ask(self, op: str, call: Callable[[], Awaitable[T]], *values: object) -> T:
        """The only way to the store, the probes' aside. Sets `degraded` last, so that the caller's caller sees its own."""
        breaker = self._writing if op in WRITES else self._reading
        if not (breaker.closed and self._reading.closed):
            for due in self._due():
                self._spawn(self._probe(due))  # in the background: no request waits for it
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

    def _merged(self, tenant: str, chain: Sequence[bytes], here: Found, there: Found) -> Found:
        """Both sides' knowledge of one conversation; either side learns what it missed."""
        theirs, mine = there.checkpoint, here.checkpoint
        if there.quarantined and not self._local.is_quarantined(tenant, chain[there.quarantined - 1]):
            self._learn_quarantine(tenant, chain, there.quarantined)
        if theirs is not None and self._local.is_quarantined(tenant, theirs.key):
            refused = theirs
            self._repair("quarantine", lambda: self._store.quarantine(tenant, refused))
            theirs = None
        if theirs is not None:
            self._local.replace_checkpoint(tenant, theirs)
        # Above the store's deepest quarantine nothing of ours can be quarantined there; below it, that can't be told.
        if mine is not None and mine.depth > max(there.quarantined, theirs.depth if theirs else 0):
            missed = mine
            self._repair("put_checkpoint", lambda: self._store.put_checkpoint(tenant, missed))
            theirs = mine
        if there.session is not None:
            self._local.replace_session(there.session)
        return Found(theirs, max(here.quarantined, there.quarantined), there.session or here.session)

    def _learn_quarantine(self, tenant: str, chain: Sequence[bytes], depth: int) -> None:
        """The local store must know it too, for the time when it is asked alone."""
        marked = StoredCheckpoint.of(chain, depth, b"", quarantined=True)
        self._local.replace_checkpoint(tenant, marked)

    def _repair(self, op: str, call: Callable[[], Awaitable[object]]) -> None:
        """Tell the store in the background what it does not know; at worst the next lookup tries again."""

        async def work() -> None:
            with suppress(StoreFailed):
                await self._ask(op, call)

        if len(self._background) < REPAIRS:
            self._spawn(work())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


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
