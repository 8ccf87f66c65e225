"""Archives as objects of a bucket, `{prefix}/{id}.json`. Credentials, region and endpoint come from the usual `AWS_*` variables.

obstore is an optional dependency (`compactd[s3]`), so it is imported when the first archive comes.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from app.archive import Shelf
from app.edge.archives.base import External
from app.edge.stores.packing import Packing
from app.errors import StoreFailed

SECONDS = 10
"""For one call, retries included."""


class S3Archives(External):
    name = "s3"

    def __init__(self, place: str, store: Shelf, packing: Packing | None = None) -> None:
        """`place` is `bucket/prefix`."""
        super().__init__(store, packing)
        self._bucket, _, prefix = place.partition("/")
        self._prefix = prefix.strip("/")
        self._opened: Any = None

    @property
    def _objects(self) -> Any:
        if self._opened is None:
            from obstore.store import S3Store

            plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
            self._opened = S3Store(
                self._bucket,
                prefix=self._prefix or None,
                client_options={"timeout": f"{SECONDS}s", "connect_timeout": "5s", "allow_http": plain},
            )
        return self._opened

    async def _write(self, name: str, text: bytes) -> None:
        import obstore

        async with asyncio.timeout(SECONDS):
            await obstore.put_async(self._objects, name, text)

    async def _read(self, name: str) -> bytes | None:
        try:
            import obstore

            async with asyncio.timeout(SECONDS):
                found = await obstore.get_async(self._objects, name)
                return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except Exception as fault:
            raise StoreFailed(f"get_archive: {type(fault).__name__}") from None
