"""Traces as the edge sees them, and what stands in their place where nobody wants any.

What knows OpenTelemetry is `app.edge.otel`, and nothing imports that before `traces.enabled` says so: off, a trace costs an attribute and
an empty `with`, and a client's own trace headers go through untouched.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from app.edge.headers import Pair
from app.ports import NULL_SPAN, NullTracer, Span, Tracer
from app.settings import Traces as Options

if TYPE_CHECKING:
    from app.edge.exchange import Exchange


class RequestTrace(Protocol):
    """One proxied request, from `Traces.begin` on."""

    def begin_upstream(self, headers: list[Pair]) -> None:
        """It goes to its provider now (once more): `headers`, which are changed in place, carry the trace on."""
        ...

    def end(self) -> None:
        """It is over; what became of it stands in its exchange."""
        ...


class Traces(Tracer, Protocol):
    def begin(self, exchange: Exchange) -> RequestTrace | None: ...

    def call(self, headers: list[Pair], form: str, model: str, base_url: str) -> AbstractContextManager[Span]:
        """A request of compactd's own to a model. `headers`, changed in place, carry the trace on."""
        ...

    async def close(self) -> None:
        """Send what is left."""
        ...


class NoTraces(NullTracer):
    def begin(self, exchange: Exchange) -> RequestTrace | None:  # noqa: ARG002
        return None

    def call(self, headers: list[Pair], form: str, model: str, base_url: str) -> AbstractContextManager[Span]:  # noqa: ARG002
        return NULL_SPAN

    async def close(self) -> None: ...


NO_TRACES = NoTraces()


def open_traces(options: Options) -> Traces:
    """The traces that the configuration wants. Raises ImportError without the extra `otel`, which `missing` has looked for."""
    if not options.enabled:
        return NO_TRACES
    from app.edge.otel import OpenTelemetry

    return OpenTelemetry.sending(options.endpoint)
