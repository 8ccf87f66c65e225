"""What files and objects have in common: one JSON text an archive, named by its id, with all that reading it back needs. Where there is an
encryption key it is sealed, and `{id}.json.sealed` instead of `{id}.json`: what was written before stays readable.

The store keeps the archive's head (no document), so that lists need not open files; it is a convenience, and losing it loses no message.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from app.archive import HOLDER_BYTES, Shelf, holder_of
from app.core import jsonspan
from app.edge.stores.packing import Packing, about_file
from app.errors import NotCompactable, StoreFailed, Unreadable
from app.records import Archive
from app.threads import in_thread

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}\Z")
"""Ids that an archive can have: nothing that leads to another folder."""
PLAIN, SEALED = ".json", ".json.sealed"
HELD = b"\x03"
"""What a sealed archive begins with that says first who may read it (`holder_of`), for when its key is not here. Earlier ones don't."""


class External:
    """An archive outside the store. Subclasses write and read one text by its name."""

    name = ""
    addresses = False

    def __init__(self, store: Shelf, packing: Packing | None = None) -> None:
        self._store = store
        self._packing = packing or Packing()

    async def put(self, archive: Archive) -> str | None:
        """May raise anything that the place raises."""
        if not _NAME.match(archive.id):
            raise ValueError("this id is no file name")
        text = packed(archive)
        if self._packing.seals:
            sealed = await self._packing.pack_async(text, about_file(archive.id))
            await self._write(archive.id + SEALED, HELD + holder_of(archive.id, archive.capability) + sealed)
        else:
            await self._write(archive.id + PLAIN, text)
        with suppress(StoreFailed):
            await self._store.put_archive(replace(archive, document=b""))
        return None

    async def get_archive(self, archive_id: str) -> Archive | None:
        """From its place, else what the store has of earlier times. Raises StoreFailed, and Unreadable for one that is sealed with another
        key."""
        if not _NAME.match(archive_id):
            return None
        for kind in (SEALED, PLAIN) if self._packing.seals else (PLAIN, SEALED):
            text = await self._read(archive_id + kind)
            if text is not None:
                return unpacked(archive_id, text if kind == PLAIN else await self._unsealed(archive_id, text))
        found = await self._store.get_archive(archive_id)
        return found if found and found.document else None

    async def _unsealed(self, archive_id: str, text: bytes) -> bytes:
        start = 1 + HOLDER_BYTES if text.startswith(HELD) else 0
        try:
            return await in_thread(len(text), self._packing.unpack, text[start:], about_file(archive_id))
        except Unreadable as fault:
            self._packing.passed_over(fault.why)
            raise Unreadable(fault.why, text[1:start]) from None

    async def _write(self, name: str, text: bytes) -> None:
        raise NotImplementedError

    async def _read(self, name: str) -> bytes | None:
        """None: there is no such thing. Raises StoreFailed."""
        raise NotImplementedError


class _Whose(msgspec.Struct):
    """What `packed` adds to the document; `at` is when it was made, epoch seconds."""

    session: str
    previous: str
    tenant: str
    capability: str
    at: float


def packed(archive: Archive) -> bytes:
    """The document, with whose it is and what its address takes."""
    document: dict[str, Any] = jsonspan.value(archive.document)
    return jsonspan.dump(
        {**document, "tenant": archive.tenant, "capability": archive.capability, "at": archive.created}
    )


def unpacked(archive_id: str, text: bytes) -> Archive | None:
    """None for what `packed` did not write."""
    try:
        document = jsonspan.value(text)
        whose = msgspec.convert(document, _Whose)
    except (NotCompactable, msgspec.ValidationError):
        return None
    for key in ("tenant", "capability", "at"):
        del document[key]
    return Archive(
        archive_id,
        whose.capability,
        whose.tenant,
        whose.session,
        whose.at,
        whose.previous,
        jsonspan.dump(document),
    )
