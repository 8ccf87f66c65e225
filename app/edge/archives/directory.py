"""Archives as files of a directory, `{id}.json`, readable by their owner only. A reader never meets half a file.

The directory may lie on another machine: a disk that hangs costs an archive, and no thread that requests need.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from urllib.parse import unquote

from app.archive import Shelf
from app.edge.archives.base import External
from app.edge.stores.packing import Packing
from app.errors import StoreFailed
from app.threads import Apart, Busy

SECONDS = 10
"""For reading one."""
_threads = Apart(32)


class DirectoryArchives(External):
    name = "file"

    def __init__(self, path: str, store: Shelf, packing: Packing | None = None) -> None:
        """`path` as it stands in a file URL. The directory is made when the first archive comes."""
        super().__init__(store, packing)
        self._directory = Path(unquote(path))

    async def _write(self, name: str, text: bytes) -> None:
        await _threads.begin(self._written, name, text)

    def _written(self, name: str, text: bytes) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._directory / f".{secrets.token_hex(8)}.part"
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._directory / name)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    async def _read(self, name: str) -> bytes | None:
        try:
            async with asyncio.timeout(SECONDS):
                told: bytes = await _threads.begin((self._directory / name).read_bytes)
                return told
        except FileNotFoundError:
            return None
        except (OSError, Busy) as fault:
            raise StoreFailed(f"get_archive: {type(fault).__name__}") from None
