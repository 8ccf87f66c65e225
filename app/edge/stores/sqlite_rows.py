"""Sessions, archives and console lines as SQLite's rows hold them. What can't be read counts as not there, and is said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec

from app.edge.stores.packing import SEALED, Packing, about_archive, about_compaction
from app.edge.stores.sessions import opened, session_of
from app.records import Archive, Compaction, Session

SESSION_FIELDS = tuple(field.name for field in fields(Session))
SESSION_COLUMNS = ", ".join(f"s.{name}" for name in SESSION_FIELDS)
ARCHIVE_COLUMNS = "id, capability, tenant, session, created, previous"


class Rows:
    def __init__(self, packing: Packing) -> None:
        self._packing = packing

    def session(self, row: Sequence[Any] | None) -> Session | None:
        """A session from its columns."""
        if row is None:
            return None
        fields = dict(zip(SESSION_FIELDS, row, strict=True))
        try:
            return session_of(opened(fields, self._packing, fields["tenant"], fields["id"]))
        except ValueError:
            self._packing.passed_over("of a session can't be read")
            return None

    def head(self, row: Sequence[Any]) -> Archive | None:
        """An archive without its document from its columns."""
        ident, capability, tenant, session, created, previous = row
        if isinstance(capability, bytes):
            told = self._packing.read(capability, about_archive(ident))
            capability = told.decode() if told is not None else None
        return Archive(ident, capability, tenant, session, created, previous, b"") if capability is not None else None

    def compaction(self, row: Sequence[Any]) -> Compaction | None:
        ident, record = row
        if isinstance(record, bytes) and record[:1] == SEALED:
            record = self._packing.read(record, about_compaction(ident))
        try:
            return msgspec.json.decode(record, type=Compaction) if record is not None else None
        except (msgspec.DecodeError, msgspec.ValidationError):
            self._packing.passed_over("is no compaction of this version")
            return None
