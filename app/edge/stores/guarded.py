"""The store that requests see: it answers in time, whatever the real one does.

A dead or slow store must cost a request nothing but what the store would have told. So every call to it is `Asking`'s, and a `MemoryStore`
beside the real store knows what this process wrote or was told lately.
Checkpoints, quarantines, sessions and leases have such a local answer; for archives, records and lists there is only
the store. When the store comes back, what it missed is given to it again as conversations come by: a lookup compares both
sides, the deeper checkpoint wins, and a quarantine on either side holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from app.edge.stores.asking import Asking, StoreRecorder
from app.edge.stores.base import StoreOptions
from app.edge.stores.breaker import Breaker
from app.edge.stores.memory import MemoryStore
from app.edge.stores.sessions import checked
from app.errors import StoreFailed
from app.ports import NULL_TRACER, Store, Tracer
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint

LOCAL_BYTES = 40 << 20
"""Bytes of all that is kept beside the real store, 15 MB of it checkpoints."""

REPAIRS = 16
"""Background writes at a time that bring the store up to date; more are left for the next lookup."""


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
        tracer: Tracer = NULL_TRACER,
    ) -> None:
        self._store = store
        self._asking = Asking(store, timeout, recorder, breaker, tracer)
        # What lives as long here as there is not remembered here after it was forgotten there.
        options = getattr(store, "options", None) or StoreOptions()
        self._local = local or MemoryStore(replace(options, max_bytes=LOCAL_BYTES))

    @property
    def degraded(self) -> bool:
        return self._asking.degraded

    @property
    def healthy(self) -> bool:
        return self._asking.healthy

    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        here = await self._local.lookup(tenant, chain, session)
        try:
            there = await self._asking.ask("lookup", lambda: self._store.lookup(tenant, chain, session))
        except StoreFailed:
            return here
        return self._merged(tenant, chain, here, there)

    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        kept = await self._local.put_checkpoint(tenant, checkpoint)
        try:
            first = await self._asking.ask("put_checkpoint", lambda: self._store.put_checkpoint(tenant, checkpoint))
        except StoreFailed:
            return kept
        if not first:  # another replica's counts: the next lookup learns it
            self._local.forget_checkpoint(tenant, checkpoint.key)
        return first

    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        await self._local.quarantine(tenant, checkpoint)
        with suppress(StoreFailed):
            await self._asking.ask("quarantine", lambda: self._store.quarantine(tenant, checkpoint))

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None:
        """What changes while the store is away counts in this process until the store answers again, and is lost then."""
        checked(change)
        await self._local.update_session(tenant, session, change)
        with suppress(StoreFailed):
            await self._asking.ask("update_session", lambda: self._store.update_session(tenant, session, change))

    async def acquire(self, name: str, seconds: float) -> str | None:
        """Within this process the local lease decides; the store's is for the other replicas."""
        here = await self._local.acquire(name, seconds)
        if here is None:
            self._asking.degraded = False  # nobody needed the store for this answer
            return None
        try:
            there = await self._asking.ask("acquire", lambda: self._store.acquire(name, seconds))
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
            return not there or await self._asking.ask("renew", lambda: self._store.renew(name, there, seconds))
        except StoreFailed:
            return True

    async def release(self, name: str, token: str) -> None:
        here, _, there = token.partition(":")
        await self._local.release(name, here)
        if there:
            with suppress(StoreFailed):
                await self._asking.ask("release", lambda: self._store.release(name, there))

    async def put_archive(self, archive: Archive) -> None:
        await self._asking.ask("put_archive", lambda: self._store.put_archive(archive), archive)

    async def get_archive(self, archive_id: str) -> Archive | None:
        return await self._asking.ask("get_archive", lambda: self._store.get_archive(archive_id))

    async def put_compaction(self, compaction: Compaction) -> None:
        await self._asking.ask("put_compaction", lambda: self._store.put_compaction(compaction))

    async def get_compaction(self, compaction_id: str) -> Compaction | None:
        return await self._asking.ask("get_compaction", lambda: self._store.get_compaction(compaction_id))

    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        return await self._asking.ask("sessions", lambda: self._store.sessions(cursor, limit))

    async def get_session(self, session: str) -> Session | None:
        return await self._asking.ask("get_session", lambda: self._store.get_session(session))

    async def compactions(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Compaction], str]:
        return await self._asking.ask("compactions", lambda: self._store.compactions(session, cursor, limit))

    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        return await self._asking.ask("archives", lambda: self._store.archives(session, cursor, limit))

    async def ping(self) -> None:
        """Ask the store, also as the probe of an open breaker. Raises StoreFailed while it is away or takes no writes."""
        await self._asking.ping()

    def try_out(self) -> None:
        """Ask the store in the background, so that the log says at the start of a process what would keep it from its store."""
        self._asking.try_out()

    async def close(self) -> None:
        await self._asking.close()

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
                await self._asking.ask(op, call)

        if self._asking.busy < REPAIRS:
            self._asking.spawn(work())
