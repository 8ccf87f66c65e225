"""How things lie in a Redis: the names of the keys, and what a checkpoint's two keys hold.

The part of a name in braces decides the cluster slot. Names from outside are hashed: they have any length and any
character, and must not run into each other.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec


class Line(NamedTuple):
    """A member of an anchor's index: 4 bytes depth, 1 byte quarantined, the key. Its score is when it expires."""

    depth: int
    quarantined: bool
    key: bytes

    def encode(self) -> bytes:
        return self.depth.to_bytes(4) + bytes((self.quarantined,)) + self.key

    @classmethod
    def decode(cls, member: bytes) -> Line:
        return cls(int.from_bytes(member[:4]), bool(member[4]), member[5:])


class Record(msgspec.Struct, array_like=True):
    """A checkpoint's record. One that is quarantined has no value, and no place if it was quarantined unseen."""

    anchor: bytes = b""
    depth: int = 0
    value: bytes | None = None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Record:
        """Raises msgspec.DecodeError."""
        return _records.decode(raw)


_records = msgspec.msgpack.Decoder(Record)


def _digest(*parts: str) -> str:
    return blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


def key_of(name: str, kind: str) -> str:
    return f"compactd:{{{_digest(name)}}}:{kind}"


def index_key(tenant: str, anchor: bytes) -> str:
    return f"compactd:{{{_digest(tenant)}-{anchor.hex()}}}:index"


def record_key(tenant: str, key: bytes) -> str:
    return f"compactd:{{{_digest(tenant)}-{key.hex()}}}:checkpoint"


def session_key(tenant: str, session: str) -> str:
    return f"compactd:{{{_digest(tenant, session)}}}:session"


def milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def text(value: str | int | float) -> str:
    return value if isinstance(value, str) else repr(value)
