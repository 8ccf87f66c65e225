"""What the compactor needs from the world, as it would like to have it.

The compactor owns these interfaces and the edge implements them, so that the story of a request can be read, and
tested, without a network. Values are frozen; anything that can fail raises `StoreFailed` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from app.core.transcript import Seen

if TYPE_CHECKING:
    from app.request import Ask


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as a store sees it: found by content, never changed, only quarantined.

    `key` is the chain hash (16 bytes) of the covered prefix, `depth` the number of client items in that prefix, `anchor` the
    chain hash at the largest power of two <= depth: a conversation of n items asks for log2(n) anchors instead of n keys.
    `home` is the chain hash of its first two items (of its only one): a store that is spread over machines keeps what has the same
    home together.
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


class Store(Protocol):
    """Shared state. Every method may raise `StoreFailed`; none blocks the event loop."""

    async def lookup(self, tenant: str, chain: Sequence[bytes], session: str) -> Found:
        """`chain[i]` is the chain hash of the first i+1 items. One round trip."""
        ...

    async def put_checkpoint(self, tenant: str, checkpoint: StoredCheckpoint) -> bool:
        """Keep it unless the key is there already: the first one wins, on every replica. True if this one was kept."""
        ...

    async def quarantine(self, tenant: str, checkpoint: StoredCheckpoint) -> None:
        """Never hand out what is under this key, known here or not; `lookup` reports its depth. The value does not matter."""
        ...

    async def update_session(self, tenant: str, session: str, change: SessionChange) -> None: ...

    async def put_archive(self, archive: Archive) -> None: ...

    async def get_archive(self, archive_id: str) -> Archive | None: ...

    async def put_compaction(self, compaction: Compaction) -> None: ...

    async def get_compaction(self, compaction_id: str) -> Compaction | None: ...

    async def sessions(self, cursor: str = "", limit: int = 50) -> tuple[list[Session], str]:
        """Newest first; the second value is the next cursor, "" at the end."""
        ...

    async def get_session(self, session: str) -> Session | None: ...

    async def compactions(
        self, session: str = "", cursor: str = "", limit: int = 50
    ) -> tuple[list[Compaction], str]: ...

    async def archives(self, session: str = "", cursor: str = "", limit: int = 50) -> tuple[list[Archive], str]:
        """Without their documents (`document` is empty)."""
        ...

    async def acquire(self, name: str, seconds: float) -> str | None:
        """A lease for at most so many seconds: a token, or None while somebody else holds it."""
        ...

    async def renew(self, name: str, token: str, seconds: float) -> bool:
        """Hold a lease for so many seconds from now on. False: it had ended, and may be somebody else's by now."""
        ...

    async def release(self, name: str, token: str) -> None:
        """Give a lease back; only its holder's token does."""
        ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


class ArchiveSink(Protocol):
    """Where archives are written, and where they can be read again."""

    @property
    def name(self) -> str:
        """store, file, s3 or own: a metric's label."""
        ...

    @property
    def addresses(self) -> bool:
        """Does it give out addresses of its own? Then nobody knows where an archive is before it was put."""
        ...

    async def put(self, archive: Archive) -> str | None:
        """Write it. Where it can be read, None for the address that compactd derives. May raise anything."""
        ...

    async def get_archive(self, archive_id: str) -> Archive | None:
        """Raises StoreFailed."""
        ...


class SharedStore(Store, Protocol):
    """A store that answers in time whatever happens to the real one behind it."""

    @property
    def degraded(self) -> bool:
        """Did the call that ended last do without the real store? Read right after the await."""
        ...


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
    """Where a checkpoint over the first `depth` items is at home: few conversations of a tenant have their first two items in common."""
    return chain[min(depth, 2) - 1]


class Recorder(Protocol):
    """Where things are told that happened on the way. Nothing here ever carries content."""

    def fault(self, where: str, fault: BaseException | None) -> None:
        """A step failed that the request survived."""
        ...

    def archived(self, sink: str, result: str) -> None: ...

    def summary_failed(self, reason: str, fallback: str) -> None:
        """There is no summary by a model; the policy's fallback is taken. `reason` is a SummaryFailed's."""
        ...

    def note(self, event: str, **facts: str) -> None:
        """Something that an operator may want to know, at INFO."""
        ...

    def warn(self, event: str, **facts: str) -> None:
        """… and should, at WARNING."""
        ...


Fact = str | int | float | bool


class Span(Protocol):
    """A stretch of a request's time in a trace. Facts never carry content."""

    def tell(self, **facts: Fact) -> None: ...


class Tracer(Protocol):
    def span(self, name: str, **facts: Fact) -> AbstractContextManager[Span]:
        """The block is a stretch of its own. `name` is one of count, plan, summary, store."""
        ...


class Untold:
    """The span that nobody wants."""

    def tell(self, **facts: Fact) -> None: ...


NOTHING: AbstractContextManager[Span] = nullcontext(Untold())


class Untraced:
    """The tracer that makes none."""

    def span(self, name: str, **facts: Fact) -> AbstractContextManager[Span]:  # noqa: ARG002
        return NOTHING


UNTRACED = Untraced()


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and what it cost: tokens that the summariser's provider reported, US dollars (an estimate)."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def with_appended(self, text: str) -> Summary:
        return replace(self, text=f"{self.text}\n\n{text}") if text else self


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """What is to be summarised, and in whose name. `leaving` is how many local tokens it replaces: a longer summary is none. `ratio`: the
    request's provider counts so many tokens for each local one."""

    ask: Ask
    items: Sequence[Seen]
    leaving: int
    ratio: float = 1.0


class Summarizer(Protocol):
    async def summarize(self, job: SummaryJob) -> Summary:
        """Ask a model. Raises SummaryFailed."""
        ...


class Counter(Protocol):
    async def count(self, ask: Ask, body: bytes, beta: str = "") -> int | None:
        """Input tokens of `body` by the provider's own counting endpoint, None if it can't tell in time. `beta` as in `Outcome`. Never
        raises."""
        ...
