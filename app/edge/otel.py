"""OpenTelemetry: the only file that knows it.

A proxied request is a SERVER span that continues the client's trace; below it lie `compactd.count`, `compactd.plan`, `compactd.summary` and
`compactd.store`, and one CLIENT span for each request to a provider, whose id goes on to it. Names of attributes are those of the
conventions for generative AI where they have one (semantic-conventions-genai 0.1.0, development), else `compactd.*`. No span holds content,
a credential, or the text of an exception.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
from opentelemetry import context as contexts
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context

from app import __version__
from app.edge.exchange import Exchange
from app.edge.headers import Pair
from app.errors import NotCompactable, SummaryFailed
from app.formats.base import Usage
from app.ports import Fact

PROVIDERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "gemini": "gcp.gemini",
}
"""`gen_ai.provider.name` tells which provider's flavour a request has: the format's, whoever serves it."""
NAMES = {
    "status": "http.response.status_code",
    "error": "error.type",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
}
"""Facts that the conventions have a name for; all others are `compactd.*`."""
LONGEST_NAME = 256
"""Characters of a model's name, which the client gives."""
PATIENCE = 3.0
"""Seconds that the last spans get when compactd stops."""


class OpenTelemetry:
    """`provider` makes and exports the spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self.tracer = provider.get_tracer("compactd", __version__)

    @classmethod
    def sending(cls, endpoint: str | None) -> OpenTelemetry:
        """Spans go to a collector by OTLP over HTTP. What is None here the OTEL_* variables of the environment say."""
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
        named = Resource({SERVICE_NAME: "compactd", "service.version": __version__})
        provider = TracerProvider(
            shutdown_on_exit=False, resource=Resource.create().merge(named).merge(OTELResourceDetector().detect())
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    @contextmanager
    def span(self, name: str, **facts: Fact) -> Iterator[FactSpan]:
        around = get_current_span()
        if not around.get_span_context().is_valid:  # no request's: the store is asked at the start, or by a probe
            yield FactSpan(around)
            return
        with _current(self.tracer.start_span(f"compactd.{name}")) as told:
            told.tell(**facts)
            yield told

    @contextmanager
    def call(self, headers: list[Pair], form: str, model: str, base_url: str) -> Iterator[FactSpan]:
        with _current(self.asking("POST", form, model, base_url)) as told:
            propagate.inject(headers, setter=_SETTER)
            yield told

    def asking(self, method: str, form: str, model: str, base_url: str) -> Span:
        """The span of a request to a provider; `form` "" for one without a conversation."""
        url = httpx.URL(base_url)
        facts: dict[str, Fact] = {
            "http.request.method": method,
            "server.address": url.host,
            "server.port": url.port or (443 if url.scheme == "https" else 80),
        }
        name = method
        if form:
            operation, model = "generate_content" if form == "gemini" else "chat", model[:LONGEST_NAME]
            name = f"{operation} {model}".rstrip()
            facts |= {"gen_ai.operation.name": operation, "gen_ai.provider.name": PROVIDERS[form]}
            if model:
                facts["gen_ai.request.model"] = model
        return self.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=facts)

    def begin(self, exchange: Exchange) -> RequestTrace:
        return RequestTrace(self, exchange)

    async def close(self) -> None:
        """Send what is left; a collector that is away is given up after PATIENCE, in a thread that keeps no process alive."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        until = time.monotonic() + PATIENCE
        while sending.is_alive() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class RequestTrace:
    """One proxied request: its span, and that of its latest question to a provider."""

    def __init__(self, traces: OpenTelemetry, exchange: Exchange) -> None:
        self._traces, self._exchange = traces, exchange
        method = exchange.scope["method"]
        before = propagate.extract(exchange.headers, getter=_GETTER)
        self._span = traces.tracer.start_span(
            method, context=before, kind=SpanKind.SERVER, attributes={"http.request.method": method}
        )
        self._asked: Span | None = None
        self._token = contexts.attach(set_span_in_context(self._span, before))
        told = self._span.get_span_context()
        exchange.record.trace = f"{told.trace_id:032x}" if told.is_valid else ""

    def begin_upstream(self, headers: list[Pair]) -> None:
        self._end_upstream_span()
        exchange = self._exchange
        route, ask = exchange.route, exchange.ask
        assert route is not None
        target = route.target
        model = ask.client_model if ask else target.model if target else ""
        base_url = exchange.wiring.settings.upstreams[route.upstream].base_url
        span = self._traces.asking(exchange.scope["method"], target.format if target else "", model, base_url)
        if target and (target.stream or (ask and ask.opened.fields.get("stream") is True)):
            span.set_attribute("gen_ai.request.stream", True)
        if ask and ask.session:
            span.set_attribute("gen_ai.conversation.id", ask.session)
        if exchange.outcome and exchange.outcome.changed and exchange.changed:
            span.set_attribute("gen_ai.conversation.compacted", True)
        propagate.inject(headers, context=set_span_in_context(span), setter=_SETTER)
        self._asked = span

    def _end_upstream_span(self, usage: Usage | None = None, error: str = "") -> None:
        """The question is answered, or never will be."""
        span, record, self._asked = self._asked, self._exchange.record, None
        if span is None:
            return
        told = FactSpan(span)
        if record.answered:
            told.tell(status=record.status)
            error = error or (str(record.status) if record.status >= 400 else "")
        if usage:
            told.tell(**reported(usage))
        if error:
            told.failed(error)
        span.end()

    def end(self) -> None:
        exchange, told = self._exchange, FactSpan(self._span)
        record, outcome = exchange.record, exchange.outcome
        error = record.error or ("client_left" if record.disconnected and not record.finished else "")
        result, reason = record.verdict(outcome)
        self._end_upstream_span(record.usage, error)
        if record.format != "none":
            self._span.update_name(f"{exchange.scope['method']} {record.format}")
        told.tell(
            request_id=record.id, outcome=result, reason=reason, format=record.format, upstream=record.upstream,
            status=record.status, overhead_ms=round(record.deciding * 1000, 2),
        )  # fmt: skip
        if outcome and outcome.source:
            told.tell(
                tokens_before=outcome.before, tokens_after=outcome.after, count_source=outcome.source,
                tokens_cleared=outcome.cleared,
            )  # fmt: skip
        if outcome and outcome.session:
            told.tell(session=outcome.session)
        if outcome and outcome.strategy:
            told.tell(strategy=outcome.strategy, level=outcome.level)
        if error or record.status >= 500:
            told.failed(error or str(record.status))
        self._span.end()
        contexts.detach(self._token)


class FactSpan:
    """A span that facts are told to."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def tell(self, **facts: Fact) -> None:
        for name, value in facts.items():
            self._span.set_attribute(NAMES.get(name) or f"compactd.{name}", value)

    def failed(self, error: str) -> None:
        self.tell(error=error)
        self._span.set_status(Status(StatusCode.ERROR))


def reported(usage: Usage) -> dict[str, Fact]:
    """The facts of what a provider reported."""
    found = {
        "input_tokens": usage.input, "output_tokens": usage.output, "cached_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
    }  # fmt: skip
    return {name: tokens for name, tokens in found.items() if tokens}


@contextmanager
def _current(span: Span) -> Iterator[FactSpan]:
    """What happens meanwhile lies below it. An exception is told by its short word or its type: its text may hold content."""
    told, token = FactSpan(span), contexts.attach(set_span_in_context(span))
    try:
        yield told
    except BaseException as fault:
        told.failed(fault.reason if isinstance(fault, NotCompactable | SummaryFailed) else type(fault).__name__)
        raise
    finally:
        span.end()
        contexts.detach(token)


class _Get(Getter[Mapping[str, str]]):
    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


class _Set(Setter[list[Pair]]):
    """In the place of what the client sent under that name."""

    def set(self, carrier: list[Pair], key: str, value: str) -> None:
        name = key.lower().encode()
        carrier[:] = [pair for pair in carrier if pair[0].lower() != name]
        carrier.append((name, value.encode("latin-1", "replace")))


_GETTER, _SETTER = _Get(), _Set()
