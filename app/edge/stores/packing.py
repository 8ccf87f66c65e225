"""How values lie in a store: one byte that says how, then the value, zstd-compressed where that makes it smaller, sealed where there
is a key.

Reading is bounded: a frame must say how large it will be, and more than `LARGEST` bytes is nonsense from a store that somebody else
wrote to. What can't be read is no failure of the store: it counts as not there, is said once, and the next record takes its place.
"""

from __future__ import annotations

import logging

import zstandard

from app.edge.stores.sealing import Seal, key_id
from app.errors import Unreadable
from app.threads import in_thread

RAW, ZSTD, SEALED = b"\x00", b"\x01", b"\x02"
LARGEST = 256 << 20
LEVEL = 3
OFF_LOOP = 128 << 10
"""Bytes from which packing leaves the event loop's thread (about a millisecond of work)."""

log = logging.getLogger(__name__)


class Packing:
    """`about` says what a value is and whose; a sealed one opens for the same words only."""

    def __init__(self, seal: Seal | None = None) -> None:
        self._seal = seal
        self._told: set[str] = set()

    @property
    def seals(self) -> bool:
        return self._seal is not None

    def pack(self, value: bytes, about: str) -> bytes:
        # A compressor must not be shared by threads, and making one costs little next to its work.
        packed = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(value)
        packed = ZSTD + packed if len(packed) < len(value) else RAW + value
        return packed if self._seal is None else SEALED + self._seal.sealed(packed, about.encode())

    def unpack(self, stored: bytes, about: str) -> bytes:
        """Raises Unreadable for what `pack` did not make, and for what was sealed with a key that is not here."""
        form, body = stored[:1], stored[1:]
        if form == SEALED:
            if self._seal is None:
                raise Unreadable(f"needs the encryption key {key_id(body)}, but store.encryption_key is not set")
            inner = self._seal.opened(body, about.encode())
            form, body = inner[:1], inner[1:]
        if form == RAW:
            return body
        if form != ZSTD:
            raise Unreadable("has an unknown form")
        try:
            if not 0 <= zstandard.frame_content_size(body) <= LARGEST:
                raise Unreadable("is too large")
            return zstandard.ZstdDecompressor().decompress(body, max_output_size=LARGEST)
        except zstandard.ZstdError:
            raise Unreadable("is damaged") from None

    def read(self, stored: bytes, about: str) -> bytes | None:
        """`unpack` for callers to whom an unreadable value is as good as none."""
        try:
            return self.unpack(stored, about)
        except Unreadable as fault:
            self.passed_over(fault.why)
            return None

    def passed_over(self, why: str) -> None:
        """Tell of a record that counts as not there, each reason once."""
        if why not in self._told and len(self._told) < 100:
            self._told.add(why)
            log.warning("a stored record %s: it is passed over, and so will be others like it", why)

    async def pack_async(self, value: bytes, about: str) -> bytes:
        """`pack` for callers on the event loop."""
        return (
            await in_thread(len(value), self.pack, value, about) if len(value) > OFF_LOOP else self.pack(value, about)
        )

    async def read_async(self, stored: bytes, about: str) -> bytes | None:
        """`read` for callers on the event loop."""
        return (
            await in_thread(len(stored), self.read, stored, about)
            if len(stored) > OFF_LOOP
            else self.read(stored, about)
        )


def about_checkpoint(tenant: str, key: bytes) -> str:
    return f"checkpoint {tenant} {key.hex()}"


def about_archive(archive_id: str) -> str:
    """Of its head."""
    return f"archive {archive_id}"


def about_document(archive_id: str) -> str:
    return f"document {archive_id}"


def about_file(archive_id: str) -> str:
    """Of an archive outside the store."""
    return f"file {archive_id}"


def about_compaction(compaction_id: str) -> str:
    return f"compaction {compaction_id}"
