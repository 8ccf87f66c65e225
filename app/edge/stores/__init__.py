"""The stores, chosen by the scheme of one URL. Each file here is one store; what they promise is `app.ports.Store`.

`open_store` opens nothing yet: a store connects at its first call, and one that is away is `Guarded`'s matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from app.edge.stores.asking import StoreRecorder
from app.edge.stores.base import StoreOptions
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.edge.stores.redis import RedisStore
from app.edge.stores.sealing import Seal
from app.edge.stores.sqlite import SqliteStore
from app.errors import ConfigInvalid
from app.ports import Store
from app.settings import Store as Kept

__all__ = [
    "STORES",
    "Guarded",
    "MemoryStore",
    "RedisStore",
    "SqliteStore",
    "StoreOptions",
    "StoreRecorder",
    "open_store",
    "store_of",
]

STORES: dict[str, type[MemoryStore] | type[SqliteStore] | type[RedisStore]] = {
    "memory": MemoryStore,
    "sqlite": SqliteStore,
    "redis": RedisStore,
    "rediss": RedisStore,
    "redis+sentinel": RedisStore,
    "rediss+sentinel": RedisStore,
    "redis+cluster": RedisStore,
    "rediss+cluster": RedisStore,
}
"""URL scheme -> class. A new store is a new file and a line here."""


def store_of(kept: Kept, timeout: float | None = None) -> Store:
    """The store of a configuration; `timeout` instead of its own. Raises ConfigInvalid."""
    return open_store(
        kept.url,
        timeout=timeout or kept.timeout,
        session_ttl=kept.session_ttl,
        checkpoint_ttl=kept.checkpoint_ttl,
        archive_ttl=kept.archive_ttl,
        encryption_key=kept.secret,
    )


def open_store(
    url: str,
    *,
    timeout: float,
    session_ttl: int,
    checkpoint_ttl: int,
    archive_ttl: int,
    encryption_key: str = "",
    max_bytes: int = 2 << 30,
    clock: Callable[[], float] = time.time,
) -> Store:
    """The store that `store.url` names; times in seconds, `max_bytes` for the embedded stores. `encryption_key` as in the settings.

    Raises ConfigInvalid for a scheme that is not known and a URL or key that can't be read. Its text never repeats them.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    kind = STORES.get(scheme)
    if kind is None:
        known = ", ".join(f"{name}://" for name in STORES)
        named = (
            f"starts with {scheme}://, which is no known store"
            if scheme.replace("+", "").isalnum()
            else "has no scheme"
        )
        raise ConfigInvalid([f"store.url {named}. Use one of {known}."])
    try:
        seal = Seal.of(encryption_key)
    except ValueError as error:
        raise ConfigInvalid([f"store.encryption_key {error}."]) from None
    options = StoreOptions(
        seal=seal,
        timeout=timeout,
        session_ttl=session_ttl,
        checkpoint_ttl=checkpoint_ttl,
        archive_ttl=archive_ttl,
        max_bytes=max_bytes,
        clock=clock,
    )
    try:
        return kind.from_url(url, options)
    except ValueError as error:
        raise ConfigInvalid([f"store.url is not a usable {scheme}:// address: {error}."]) from None
