"""The values of one request's story: what was asked, what was found on the way, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from app.core.plan import Checkpoint
from app.core.view import View
from app.formats.reading import Opened, Reader
from app.records import Found
from app.registry import Model
from app.settings import Policy
from app.steps.counting import Estimate

Result = Literal["passed", "replayed", "compacted", "observed", "declined", "failed"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that carries a conversation, as the edge hands it over.

    `session` is the client's own name for its session, or "". `path`, `headers` and `query` are the client's, raw, for a
    summary call in its name.
    """

    opened: Opened
    format: str
    upstream: str
    model: Model
    policy: Policy
    tenant: str
    session: str = ""
    client_model: str = ""
    """the model by the name that the client gave it"""
    path: str = ""
    headers: Sequence[tuple[bytes, bytes]] = ()
    query: bytes = b""


@dataclass(slots=True)
class Context:
    """What a request has gathered on its way. `client` is the view of its own body, `view` the one that would be forwarded."""

    ask: Ask
    reader: Reader
    client: View
    view: View
    chain: list[bytes]
    session: str
    unshaped: View | None = None
    """the view before the policy's standing rules took something out"""
    found: Found = field(default_factory=Found)
    checkpoint: Checkpoint | None = None
    misfit: int = 0
    """how many items a checkpoint covers that was found but does not fit this history"""
    passed_over: int = 0
    """how many items a prepared checkpoint covers that was looked at"""
    again: bool = False
    """it was told before that another request has done its work, and looked again"""
    store_failed: bool = False
    overflowed: bool = False
    """the provider has just said that it is too long"""
    estimate: Estimate | None = None
    flights: list[str] = field(default_factory=list)
    """summaries that it waits for, until what comes of them is stored"""

    @property
    def counted(self) -> Estimate:
        assert self.estimate is not None, "counted before this step"
        return self.estimate

    def quirk(self, name: str) -> bool:
        return name in self.ask.model.quirks


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: the body to forward, and why. Token figures are on the scale that `source` names."""

    body: bytes
    result: Result
    reason: str
    strategy: str = ""
    level: int = 0
    before: int = 0
    after: int = 0
    source: str = ""
    session: str = ""
    compactions: int = 0
    archive: str = ""
    beta: str = ""
    """what the provider's beta header has to say besides, for the body's sake"""
    context: Context | None = None

    @property
    def changed(self) -> bool:
        """Does the provider get something else than the client sent?"""
        return self.context is not None and self.body is not self.context.ask.opened.body

    @property
    def cleared(self) -> int:
        """Tokens that the client sent and the provider did not get."""
        return max(0, self.before - self.after) if self.changed else 0

    def undone(self, reason: str) -> Outcome:
        """The client's own request instead, after all."""
        body = self.context.ask.opened.body if self.context else self.body
        return replace(self, body=body, result="failed", reason=reason, after=self.before, archive="", beta="")
