"""Encryption keys as they stand in one option: `id:base64,id:base64`, or one bare base64 key."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import blake2b

KEY_BYTES = (16, 24, 32)
_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}\Z")


def encryption_keys(text: str) -> dict[str, bytes]:
    """Key id -> key, in the order that they were given. A bare key is named by its hash. Raises ValueError, which repeats no key."""
    keys: dict[str, bytes] = {}
    for number, part in enumerate(text.split(","), start=1):
        name, found, encoded = part.strip().rpartition(":")
        try:
            key = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"has a key, number {number}, that is no base64 (openssl rand -base64 32)") from None
        if len(key) not in KEY_BYTES:
            raise ValueError(
                f"has a key, number {number}, of {len(key)} bytes; 32 are wanted (openssl rand -base64 32)"
            )
        name = name if found else f"key-{blake2b(key, digest_size=4).hexdigest()}"
        if not _ID.match(name):
            raise ValueError(f"has a key, number {number}, whose id is not made of 1 to 32 letters, digits and _.-")
        if name in keys:
            raise ValueError("names two keys alike; give each an id of its own")
        keys[name] = key
    return keys
