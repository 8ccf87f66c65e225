"""One at a time, across replicas: who makes a summary, and who writes the archive of a compaction.

A lease is short and renewed while its holder lives, so one that died with it delays nobody for longer than `LEASE_SECONDS`. A holder that
was only out of breath can't do harm afterwards: a checkpoint is written once, and the first writer wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from app.errors import StoreFailed
from app.ports import Store
from app.request import Context

LEASE_SECONDS = 5.0
"""How long others wait for a holder that has died."""
FIRST_POLL, POLL_SECONDS = 0.02, 0.1
"""How often those who wait look again, at first and later."""


class Leasing:
    """`has_moved_on` says whether somebody has done meanwhile what a request is after; like the store, it may raise StoreFailed."""

    def __init__(self, store: Store, has_moved_on: Callable[[Context], Awaitable[bool]]) -> None:
        self._store = store
        self._has_moved_on = has_moved_on
        self._held: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def hold(self, context: Context, name: str, longest: float) -> bool:
        """Wait for the lease and hold it until it is released, for `longest` seconds at most. False: whoever held it has done what this
        request was after. A store that can't say lets everybody go on."""
        with contextlib.suppress(StoreFailed):
            pause = FIRST_POLL
            while (token := await self._store.acquire(name, LEASE_SECONDS)) is None:
                if await self._has_moved_on(context):
                    return False
                await asyncio.sleep(pause)
                pause = min(pause * 2, POLL_SECONDS)
            self._held[name] = token, asyncio.create_task(self._keep(name, token, time.monotonic() + longest))
            # Its last holder may have finished between our look into the store and now.
            if await self._has_moved_on(context):
                await self.release(name)
                return False
        return True

    async def release(self, name: str) -> None:
        """Others may go on. Without effect for a lease that is not held."""
        token, keeping = self._held.pop(name, ("", None))
        if keeping is not None:
            keeping.cancel()
            with contextlib.suppress(StoreFailed):
                await self._store.release(name, token)

    async def _keep(self, name: str, token: str, until: float) -> None:
        held = True
        while held and time.monotonic() < until:
            await asyncio.sleep(LEASE_SECONDS / 3)
            with contextlib.suppress(StoreFailed):
                held = await self._store.renew(name, token, LEASE_SECONDS)
