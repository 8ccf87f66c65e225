"""How things lie in a Redis: the names of the keys, and what the line of an index holds.

The part of a name in braces decides the cluster slot: what a conversation's checkpoints are made of has one home, its session another.
Names from outside are hashed: they have any length and any character, and must not run into each other. `LAYOUT` stands in every name;
when what lies under the names changes its form, it does too, and what is there in the old form ends by itself.
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
        """Of anything else a line that is on nobody's chain."""
        return cls(int.from_bytes(member[:4]), member[4:5] == b"\1", member[5:])


QUARANTINED = b""
"""What stands in the place of a checkpoint's value that must not be handed out; a packed value is never empty."""
LAYOUT = 1


def _digest(*parts: str | bytes) -> str:
    return blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


def _named(home: str, kind: str) -> str:
    return f"compactd:{LAYOUT}:{{{home}}}:{kind}"


def key_of(name: str, kind: str) -> str:
    return _named(_digest(name), kind)


SESSIONS = tuple(_named(_digest("", str(part)), "sessions") for part in range(16))
"""The list of all sessions, which everybody's requests touch, is in parts: each has a slot of its own."""


def list_keys(kind: str, of: str) -> tuple[str, ...]:
    """The keys of a list: of all (`of` is ""), or of one session."""
    return SESSIONS if kind == "sessions" and not of else (key_of(of, kind),)


def part_of(member: bytes, parts: int) -> int:
    """Which of them a line is in."""
    return blake2b(member, digest_size=1).digest()[0] % parts


def index_key(tenant: str, home: bytes, anchor: bytes) -> str:
    return _named(_digest(tenant, home), f"index:{anchor.hex()}")


def record_key(tenant: str, home: bytes, key: bytes) -> str:
    return _named(_digest(tenant, home), f"checkpoint:{key.hex()}")


def session_key(tenant: str, session: str) -> str:
    return _named(_digest(tenant, session), "session")


def milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def text(value: str | int | float | bytes) -> str | bytes:
    return value if isinstance(value, str | bytes) else repr(value)
