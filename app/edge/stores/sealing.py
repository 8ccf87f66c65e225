"""Encryption at rest: AES-GCM with keys that have names, so that a key can be replaced while its records live on.

The first key writes, all of them read. What is sealed says which key it needs, and is bound to what it is about (whose it is, and
under which key it lies): a record that somebody moves to another place can't be opened there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from app.errors import Unreadable
from app.settings.keys import encryption_keys

NONCE_BYTES = 12
"""Drawn at random. One key seals 2^32 records safely (source: NIST SP 800-38D, 8.3)."""
_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}\Z")


class Seal:
    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Key id -> key of 16, 24 or 32 bytes; the first one writes."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 40 ms, for those who use it

        self._keys: dict[str, Any] = {name: AESGCM(key) for name, key in keys.items()}
        self._writes = next(iter(self._keys))

    @classmethod
    def of(cls, keys: str) -> Seal | None:
        """`store.encryption_key` as it is written; "" makes none. Raises ValueError."""
        return cls(encryption_keys(keys)) if keys else None

    def sealed(self, value: bytes, about: bytes) -> bytes:
        name, nonce = self._writes.encode(), os.urandom(NONCE_BYTES)
        head = bytes((len(name),)) + name
        body: bytes = self._keys[self._writes].encrypt(nonce, value, head + about)
        return head + nonce + body

    def opened(self, stored: bytes, about: bytes) -> bytes:
        """Raises Unreadable."""
        from cryptography.exceptions import InvalidTag

        name = key_id(stored)
        key = self._keys.get(name)
        if key is None:
            raise Unreadable(f"needs the encryption key {name}, which is not configured")
        start = 1 + len(name)
        nonce, body = stored[start : start + NONCE_BYTES], stored[start + NONCE_BYTES :]
        try:
            value: bytes = key.decrypt(nonce, body, stored[:start] + about)
        except (InvalidTag, ValueError):
            raise Unreadable(f"does not open with the encryption key {name}") from None
        return value


def key_id(stored: bytes) -> str:
    """The id of the key that a sealed value needs. Raises Unreadable."""
    name = stored[1 : 1 + stored[0]].decode("latin-1") if stored else ""
    if not _ID.match(name):
        raise Unreadable("is damaged")
    return name
