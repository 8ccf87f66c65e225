"""Where archives go, by `archive.url`: the store, a directory, an object store, or code of the operator's own."""

from __future__ import annotations

from app.archive import InStore, Shelf
from app.edge.archives.directory import DirectoryArchives
from app.edge.archives.own import OwnArchives
from app.edge.archives.s3 import S3Archives
from app.edge.stores.packing import Packing
from app.edge.stores.sealing import Seal
from app.ports import ArchiveSink


def open_archives(url: str | None, store: Shelf, encryption_key: str = "") -> ArchiveSink:
    """The sink for `archive.url`; opens nothing yet. Lists of archives come from the store whatever the sink. The key is the store's."""
    scheme, found, rest = (url or "").partition("://")
    if not url:
        return InStore(store)
    if not found:
        return OwnArchives(url, store)
    kind: type[DirectoryArchives | S3Archives] = DirectoryArchives if scheme == "file" else S3Archives
    return kind(rest, store, Packing(Seal.of(encryption_key)))
