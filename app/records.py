"""What a store keeps: checkpoints, sessions, archives, the record of compactions. Frozen values, and where a checkpoint is filed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as a store sees it: found by content, never changed, only quarantined.

    `key` is the chain hash (16 bytes) of the covered prefix, `depth` the number of client items in that prefix, `anchor` the
    chain hash at the largest power of two <= depth: a conversation of n items asks for log2(n) anchors instead of n keys.
    `home` is the anchor of its first four items: a store that is spread over machines keeps what has the same home together.
    """

    key: bytes
    anchor: bytes
    home: bytes
    depth: int
    value: bytes
    quarantined: bool = False

    @classmethod
    def of(cls, chain: Sequence[bytes], depth: int, value: bytes, quarantined: bool = False) -> StoredCheckpoint:
        """Over the first `depth` items of the conversation with this chain."""
        return cls(chain[depth - 1], anchor_of(chain, depth), home_of(chain, depth), depth, value, quarantined)


@dataclass(frozen=True, slots=True)
class UsageMark:
    """What a provider once reported: `reported` input tokens for the forwarded form of the prefix with chain hash `chain`,
    which had `local` tokens by our own count. `source`: usage, or provider where it was only asked to count."""

    chain: bytes
    local: int
    reported: int
    model: str = ""
    source: str = "usage"


@dataclass(frozen=True, slots=True)
class Session:
    """State of one client session (limits, accounting, console). Times are epoch seconds, money US dollars (estimates)."""

    id: str
    tenant: str
    created: float = 0.0
    updated: float = 0.0
    format: str = ""
    model: str = ""
    strategy: str = ""
    level: int = 0
    last_archive: str = ""
    requests: int = 0
    compactions: int = 0
    rejections: int = 0
    tokens_cleared: int = 0
    summary_input_tokens: int = 0
    summary_output_tokens: int = 0
    summary_cost: float = 0.0
    ratio: float = 0.0
    usages: tuple[UsageMark, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionChange:
    """`add` counts up (atomic in every store), `put` replaces; names are those of `Session`'s fields."""

    add: Mapping[str, int | float] = field(default_factory=dict)
    put: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Archive:
    """The items that one compaction removed or cleared, sanitised; `previous` is the id of the archive before it.

    `capability` (>= 128 random bits, hex) is all that reading by address needs. `document` is a JSON text.
    """

    id: str
    capability: str
    tenant: str
    session: str
    created: float
    previous: str
    document: bytes


@dataclass(frozen=True, slots=True)
class Compaction:
    """One line of the record of compactions, for the console and the admin API."""

    id: str
    tenant: str
    session: str
    created: float
    format: str
    model: str
    strategy: str
    level: int
    tokens_before: int
    tokens_after: int
    count_source: str
    archive: str = ""
    summary_input_tokens: int = 0
    summary_output_tokens: int = 0
    summary_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """One look into the store: the deepest usable checkpoint, the depth of the deepest quarantined one, the session."""

    checkpoint: StoredCheckpoint | None = None
    quarantined: int = 0
    session: Session | None = None


def anchors(chain: Sequence[bytes]) -> list[bytes]:
    """The chain hashes at depths 1, 2, 4, 8, …: under these every checkpoint of this conversation is filed."""
    found, depth = [], 1
    while depth <= len(chain):
        found.append(chain[depth - 1])
        depth *= 2
    return found


def anchor_of(chain: Sequence[bytes], depth: int) -> bytes:
    """The anchor under which a checkpoint over the first `depth` items is filed."""
    return chain[(1 << (depth.bit_length() - 1)) - 1]


def home_of(chain: Sequence[bytes], depth: int) -> bytes:
    """Where a checkpoint over the first `depth` items is at home. Agents begin with instructions and their surroundings: few conversations
    of a tenant have their first four items in common."""
    return anchor_of(chain, min(depth, 4))
