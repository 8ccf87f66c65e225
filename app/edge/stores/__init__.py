"""The stores, chosen by the scheme of one URL. Each file here is one store; what they promise is `app.ports.Store`.

`open_store` opens nothing yet: a store connects at its first call, and one that is away is `Guarded`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from app.settings.broken import Broken
from app.settings.sections import Sections

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
    "unusable",
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
    options = StoreOptions(
        timeout=timeout or kept.timeout,
        session_ttl=kept.session_ttl,
        checkpoint_ttl=kept.checkpoint_ttl,
        archive_ttl=kept.archive_ttl,
        seal=Seal.of(kept.secret),
    )
    return open_store(kept.url, options)


def unusable(sections: Sections) -> Iterator[Broken]:
    """What is wrong with the configuration's store that its settings don't show: files of its URL, say. Connects to nothing."""
    try:
        store_of(sections.store)
    except ConfigInvalid as invalid:
        yield from (Broken(("store", "url"), fault.removeprefix("store.url ")) for fault in invalid.faults)


def open_store(url: str, options: StoreOptions) -> Store:
    """The store that `store.url` names. Raises ConfigInvalid for a scheme that is not known and a URL that can't be read. Its text never
    repeats it."""
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
        return kind.from_url(url, options)
    except ValueError as error:
        raise ConfigInvalid([f"store.url is not a usable {scheme}:// address: {error}."]) from None
