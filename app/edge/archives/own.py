"""Archives handed to code of the operator's own: a list of sanitised items, in the client's wire format.

A string that it returns is where the archive can be read from then on. compactd can't read there, so nothing but what lies in the store
(results that a standing rule cut) can be read by an address of ours.
"""

from __future__ import annotations

from app.archive import Shelf
from app.core import jsonspan
from app.own.calling import call
from app.own.loading import load
from app.records import Archive


class OwnArchives:
    name = "own"
    addresses = True

    def __init__(self, function: str, store: Shelf) -> None:
        """`function` is `package.module:callable`, found at its first use."""
        self._function = function
        self._store = store

    async def put(self, archive: Archive) -> str | None:
        """Raises whatever the code raises."""
        items = [entry["item"] for entry in jsonspan.value(archive.document)["items"]]
        told = await call(load(self._function), items)
        return told if isinstance(told, str) else None

    async def get_archive(self, archive_id: str) -> Archive | None:
        return await self._store.get_archive(archive_id)
