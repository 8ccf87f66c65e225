"""What the compactor needs from the world, as it would like to have it.

The compactor owns these interfaces and the edge implements them, so that the story of a request can be read, and
tested, without a network. Whatever a store may fail at raises `StoreFailed` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from app.core.transcript import Seen
from app.records import Archive, Compaction, Found, Session, SessionChange, StoredCheckpoint
from app.request import Ask


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


class NullSpan:
    """The span that nobody wants."""

    def tell(self, **facts: Fact) -> None: ...


NULL_SPAN: AbstractContextManager[Span] = nullcontext(NullSpan())


class NullTracer:
    """The tracer that makes none."""

    def span(self, name: str, **facts: Fact) -> AbstractContextManager[Span]:  # noqa: ARG002
        return NULL_SPAN


NULL_TRACER = NullTracer()


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
