"""Sessions, archives and console lines as a Redis holds them. What can't be read counts as not there, and is said once."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from app.edge.stores.packing import Packing, about_archive, about_compaction
from app.edge.stores.sessions import opened, session_of
from app.records import Archive, Compaction, Session

T = TypeVar("T")


class Records:
    def __init__(self, packing: Packing) -> None:
        self._packing = packing

    def session(self, fields: dict[bytes, bytes]) -> Session | None:
        # A session that was not yet wholly written has no name: the next lookup finds it.
        if b"id" not in fields:
            return None
        try:
            named = {name.decode(): value for name, value in fields.items()}
            return session_of(opened(named, self._packing, named["tenant"].decode(), named["id"].decode()))
        except (ValueError, KeyError):
            self._packing.passed_over("of a session can't be read")
            return None

    def compaction(self, compaction_id: str, packed: bytes | None) -> Compaction | None:
        record = self._packing.read(packed, about_compaction(compaction_id)) if packed else None
        return self._decoded(record, Compaction)

    def head(self, archive_id: str, about: bytes | None) -> Archive | None:
        """An archive without its document."""
        head = self._packing.read(about, about_archive(archive_id)) if about else None
        return self._decoded(head, Archive)

    def _decoded(self, record: bytes | None, kind: type[T]) -> T | None:
        try:
            return msgspec.msgpack.decode(record, type=kind) if record is not None else None
        except (msgspec.DecodeError, msgspec.ValidationError):
            self._packing.passed_over(f"is no {kind.__name__.lower()} of this version")
            return None
