"""How values lie in a store: one byte that says how, then the value, zstd-compressed where that makes it smaller.

The first byte leaves room for other forms (encryption) without a migration. Reading is bounded: a frame must say how
large it will be, and more than `LARGEST` bytes is nonsense from a store that somebody else wrote to.
"""

from __future__ import annotations

import asyncio

import zstandard

RAW, ZSTD = b"\x00", b"\x01"
LARGEST = 256 << 20
LEVEL = 3
OFF_LOOP = 128 << 10
"""Bytes from which packing leaves the event loop's thread (about a millisecond of work)."""


def pack(value: bytes) -> bytes:
    # A compressor must not be shared by threads, and making one costs little next to its work.
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(value)
    return ZSTD + packed if len(packed) < len(value) else RAW + value


def unpack(stored: bytes) -> bytes:
    """Raises ValueError for what `pack` did not make."""
    form, body = stored[:1], stored[1:]
    if form == RAW:
        return body
    if form != ZSTD:
        raise ValueError("a stored value has an unknown form")
    try:
        if zstandard.frame_content_size(body) > LARGEST:
            raise ValueError("a stored value is too large")
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=LARGEST)
    except zstandard.ZstdError:
        raise ValueError("a stored value can't be decompressed") from None


async def pack_async(value: bytes) -> bytes:
    """`pack` for callers on the event loop."""
    return await asyncio.to_thread(pack, value) if len(value) > OFF_LOOP else pack(value)


async def unpack_async(stored: bytes) -> bytes:
    """`unpack` for callers on the event loop."""
    return await asyncio.to_thread(unpack, stored) if len(stored) > OFF_LOOP else unpack(stored)
