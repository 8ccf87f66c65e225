"""Traces: which spans there are, what they say, how they travel on; and that they say nothing of what was said."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from app import main
from app.settings import Traces
from tests.edge.talks import MODELS, Talk
from tests.edge.upstream.peers import Peer, answers, response, serve
from tests.edge.wire import Taken, compactd, configured, request, taken, until
from tests.strict.server import Rejection, Seen, StrictProvider

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.edge.otel import NAMES, OpenTelemetry

FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
LOW = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"traceparent: 00-{TRACE}-{PARENT}-01"


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def of(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.all if span.kind is kind]

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    @property
    def names(self) -> set[str]:
        return {span.name for span in self.all}

    def says(self) -> str:
        return "\n".join(span.to_json() for span in self.all)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """compactd with traces that end here."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(main, "open_traces", lambda _: OpenTelemetry(provider))
    return Spans(exporter)


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and child.parent.span_id == parent.context.span_id


def on_the_way(headers: Any) -> list[tuple[str, str]]:
    """Trace and span id of each traceparent that a provider got."""
    values = [value for name, value in headers if name.lower() in (b"traceparent", "traceparent")]
    texts = (value.decode() if isinstance(value, bytes) else value for value in values)
    return [(text.split("-")[1], text.split("-")[2]) for text in texts]


# Which there are


async def test_spans_of_a_compaction_with_a_summary(spans: Spans, log: LogCapture) -> None:
    provider = StrictProvider()
    policy = {"name": "sum", "strategy": "summarize", "trigger_threshold": 1_500, "target_threshold": 600}
    talk = Talk("openai-chat")
    for number in range(5):
        talk.ask(f"{number}: " + "What is on this page? " * 60).say("A line of it. " * 60)
    talk.ask("And on the last one?")
    async with provider.serve() as url, compactd(configured(url, policies=[policy])) as proxy:
        answer = await proxy.ask(talk.request())
        assert answer.told[0] == "compacted"
        await until(lambda: "POST openai-chat" in spans.names)
    assert spans.names == {
        "POST openai-chat", "compactd.count", "compactd.plan", "compactd.summary", "compactd.store", "chat gpt-4o",
    }  # fmt: skip
    request_span, plan = spans.named("POST openai-chat"), spans.named("compactd.plan")
    summary = spans.named("compactd.summary")
    asked, main_call = sorted(spans.of(SpanKind.CLIENT), key=lambda span: span.start_time or 0)
    assert request_span.parent is None
    assert below(spans.named("compactd.count"), request_span)
    assert below(plan, request_span)
    assert below(summary, plan)
    assert below(asked, summary)
    assert below(main_call, request_span)
    assert {told(span)["compactd.op"] for span in spans.all if span.name == "compactd.store"} >= {
        "lookup",
        "put_checkpoint",
    }
    assert {span.context.trace_id for span in spans.all} == {request_span.context.trace_id}
    sent = [on_the_way(seen.headers) for seen in provider.requests]
    trace = f"{request_span.context.trace_id:032x}"
    assert sent == [[(trace, f"{span.context.span_id:016x}")] for span in (asked, main_call)]
    assert told(spans.named("compactd.count"))["compactd.count_source"] == "tiktoken"
    assert told(asked)["gen_ai.usage.output_tokens"] > 0
    facts = told(request_span)
    assert (facts["compactd.outcome"], facts["compactd.strategy"], facts["compactd.level"]) == (
        "compacted",
        "summarize",
        1,
    )
    assert facts["compactd.tokens_cleared"] == int(answer["x-compactd-tokens-before"]) - int(
        answer["x-compactd-tokens-after"]
    )
    assert facts["compactd.request_id"] == answer["x-compactd-request-id"]
    assert [line["trace_id"] for line in log.entries if line["event"] == "request"] == [trace]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_question_to_a_provider_by_the_conventions(form: str, stream: bool, spans: Spans) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        more = {"stream_options": {"include_usage": True}} if form == "openai-chat" and stream else {}
        talk = Talk(form).ask("Read.").rounds(8)
        assert (await proxy.ask(talk.request("x-compactd-session: sess-1", stream=stream, **more))).status == 200
        await until(lambda: spans.of(SpanKind.SERVER))
    seen = provider.requests[-1]
    span, operation = spans.of(SpanKind.CLIENT)[-1], "generate_content" if form == "gemini" else "chat"
    assert seen.usage is not None
    assert span.name == f"{operation} {MODELS[form]}"
    expected = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": {"anthropic-messages": "anthropic", "gemini": "gcp.gemini"}.get(form, "openai"),
        "gen_ai.request.model": MODELS[form], "gen_ai.conversation.id": "sess-1", "gen_ai.conversation.compacted": True,
        "gen_ai.usage.input_tokens": seen.usage.prompt, "gen_ai.usage.output_tokens": seen.usage.output,
        "http.request.method": "POST", "http.response.status_code": 200,
        "server.address": "127.0.0.1", "server.port": int(url.rsplit(":")[-1]),
    } | ({"gen_ai.request.stream": True} if stream else {})  # fmt: skip
    assert {name: value for name, value in told(span).items() if "cache" not in name} == expected
    assert span.status.status_code is StatusCode.UNSET


async def test_what_carries_no_conversation_is_a_plain_call(spans: Spans) -> None:
    async with serve(answers(response(b"theirs"))) as server, compactd(configured(server.url)) as proxy:
        await proxy.ask(request("GET", "/v1/models?key=secret"))
        await until(lambda: spans.of(SpanKind.SERVER))
    assert [span.name for span in spans.all] == ["GET", "GET"]
    assert not any(name.startswith("gen_ai") for span in spans.all for name in told(span))
    assert "secret" not in spans.says()


async def test_compactds_own_paths_are_not_traced(spans: Spans) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        await proxy.ask(request("GET", "/livez"))
    assert [span.name for span in spans.all if span.kind is not SpanKind.INTERNAL] == []


# How they travel on


async def test_a_clients_trace_goes_on_through_compactd(spans: Spans) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url)) as proxy:
        await proxy.ask(Talk("openai-chat").ask("Hi.").request(TRACEPARENT, "tracestate: vendor=opaque", "x-other: 1"))
        await until(lambda: spans.of(SpanKind.SERVER))
    (outer,), (inner,) = spans.of(SpanKind.SERVER), spans.of(SpanKind.CLIENT)
    assert outer.parent is not None
    assert (f"{outer.context.trace_id:032x}", f"{outer.parent.span_id:016x}") == (TRACE, PARENT)
    headers = provider.requests[0].headers
    assert on_the_way(headers) == [(TRACE, f"{inner.context.span_id:016x}")]
    assert [value for name, value in headers if name == "tracestate"] == ["vendor=opaque"]
    assert [value for name, value in headers if name == "x-other"] == ["1"]


@pytest.mark.parametrize("line", ["traceparent: nonsense", f"traceparent: 00-{'0' * 32}-{PARENT}-01", "x-nothing: 1"])
async def test_without_a_trace_to_go_on_with_there_is_a_new_one(line: str, spans: Spans) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url)) as proxy:
        await proxy.ask(Talk("openai-chat").ask("Hi.").request(line))
        await until(lambda: spans.of(SpanKind.SERVER))
    (outer,), (inner,) = spans.of(SpanKind.SERVER), spans.of(SpanKind.CLIENT)
    assert outer.parent is None
    assert on_the_way(provider.requests[0].headers) == [
        (f"{outer.context.trace_id:032x}", f"{inner.context.span_id:016x}")
    ]


async def test_a_trace_that_its_client_does_not_sample_is_not_sampled_here(spans: Spans) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url)) as proxy:
        await proxy.ask(Talk("openai-chat").ask("Hi.").request(TRACEPARENT.removesuffix("01") + "00"))
    assert spans.all == []
    (parent,) = (value for name, value in provider.requests[0].headers if name == "traceparent")
    assert parent.startswith(f"00-{TRACE}-")
    assert parent.endswith("-00")


async def test_a_providers_count_is_a_question_below_the_count(spans: Spans) -> None:
    provider = StrictProvider()
    near = {**LOW, "trigger_threshold": 3_000}
    async with provider.serve() as url, compactd(configured(url, policies=[near])) as proxy:
        answer = await proxy.ask(Talk("anthropic-messages").ask("Read.").rounds(8).request(TRACEPARENT))
        assert answer["x-compactd-count-source"] == "provider"
        await until(lambda: spans.of(SpanKind.SERVER))
    count = spans.named("compactd.count")
    (asked,) = [span for span in spans.of(SpanKind.CLIENT) if below(span, count)]
    assert (asked.name, told(asked)["http.response.status_code"]) == ("POST", 200)
    assert told(count)["compactd.count_source"] == "provider"
    (counting,) = [seen for seen in provider.requests if seen.path.endswith("count_tokens")]
    assert on_the_way(counting.headers) == [(TRACE, f"{asked.context.span_id:016x}")]


# What went wrong


async def test_a_provider_that_is_away(spans: Spans) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        assert (await proxy.ask(Talk("openai-chat").ask("Hi.").request())).status == 502
        await until(lambda: spans.of(SpanKind.SERVER))
    for span in spans.of(SpanKind.SERVER) + spans.of(SpanKind.CLIENT):
        assert span.status.status_code is StatusCode.ERROR
        assert told(span)["error.type"] == "upstream_unreachable"


async def test_a_refusal_is_an_error_of_the_question_and_not_of_compactd(spans: Spans) -> None:
    provider = StrictProvider(keys=frozenset({"another"}))
    async with provider.serve() as url, compactd(configured(url)) as proxy:
        assert (await proxy.ask(Talk("openai-chat").ask("Hi.").request())).status == 401
        await until(lambda: spans.of(SpanKind.SERVER))
    (outer,), (inner,) = spans.of(SpanKind.SERVER), spans.of(SpanKind.CLIENT)
    assert (told(inner)["error.type"], inner.status.status_code) == ("401", StatusCode.ERROR)
    assert (told(outer).get("error.type"), outer.status.status_code) == (None, StatusCode.UNSET)


async def test_a_second_chance_is_a_second_question(spans: Spans) -> None:
    def reject(seen: Seen) -> Rejection | None:
        return Rejection(400, "No.") if b"compaction" in seen.raw else None

    provider = StrictProvider(reject=reject)
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Read.").rounds(8).request())
        assert (answer.status, answer.told) == (200, ("failed", "rejected"))
        await until(lambda: spans.of(SpanKind.SERVER))
    first, second = sorted(spans.of(SpanKind.CLIENT), key=lambda span: span.start_time or 0)
    assert (told(first)["http.response.status_code"], told(first)["gen_ai.conversation.compacted"]) == (400, True)
    assert told(second)["http.response.status_code"] == 200
    assert "gen_ai.conversation.compacted" not in told(second)
    assert (first.end_time or 0) <= (second.start_time or 0)


async def test_a_client_that_leaves(spans: Spans) -> None:
    async def silent(peer: Peer) -> None:
        await taken(peer)
        await asyncio.sleep(30)

    async with serve(silent, patience=60) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(Talk("openai-chat").ask("Hi.").request())
        await until(lambda: proxy.app.relay.inflight)
        await asyncio.sleep(0.05)
        client.leave()
        await until(lambda: spans.of(SpanKind.SERVER))
    assert {told(span)["error.type"] for span in spans.of(SpanKind.SERVER) + spans.of(SpanKind.CLIENT)} == {
        "client_left"
    }


@pytest.mark.parametrize("form", FORMS)
async def test_no_span_holds_content_or_credentials(form: str, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a compaction, nor of a refusal, nor of a fault whose text holds what was said."""
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        talk = Talk(form, key="sk-CONFIDENTIAL").ask("CONFIDENTIAL.").rounds(8, "CONFIDENTIAL result " * 60)
        assert (await proxy.ask(talk.request())).told[0] == "compacted"

        def fails(*_: Any, **__: Any) -> Any:
            raise ValueError("CONFIDENTIAL")

        monkeypatch.setattr("app.steps.counting.estimate", fails)
        assert (await proxy.ask(talk.request())).told == ("failed", "internal_error")
        provider.keys = frozenset({"another"})
        assert (await proxy.ask(talk.request())).status == 401
        await until(lambda: len(spans.of(SpanKind.SERVER)) == 3)
    assert {told(span).get("error.type") for span in spans.all if span.name == "compactd.count"} == {None, "ValueError"}
    assert "CONFIDENTIAL" not in spans.says()


# Where they go


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.requests: list[Taken] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            self.requests.append(await taken(peer))
            await peer.send(response(b""))

    @property
    def spans(self) -> dict[str, dict[str, str]]:
        """Name -> its resource's attributes."""
        found = {}
        for one in self.requests:
            for group in ExportTraceServiceRequest.FromString(one.body).resource_spans:
                about = {pair.key: pair.value.string_value for pair in group.resource.attributes}
                found |= {span.name: about for scope in group.scope_spans for span in scope.spans}
        return found


@pytest.mark.parametrize("named", ["", "gateway"])
async def test_spans_are_sent_to_the_collector_when_compactd_stops_at_the_latest(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
    if named:
        monkeypatch.setenv("OTEL_SERVICE_NAME", named)
    collector, provider = Collector(), StrictProvider()
    async with serve(collector) as server, provider.serve() as url:
        sections = {"traces": {"enabled": True, "endpoint": server.url}}
        async with compactd(configured(url, **sections)) as proxy:
            assert (await proxy.ask(Talk("openai-chat").ask("Hi.").request())).status == 200
        assert {"POST openai-chat", "chat gpt-4o"} <= collector.spans.keys()
    assert collector.requests[0].line == "POST /v1/traces HTTP/1.1"
    assert collector.requests[0]["x-team"] == "blue"
    about = collector.spans["POST openai-chat"]
    assert (about["service.name"], bool(about["service.version"])) == (named or "compactd", True)


async def test_a_collector_that_is_away_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.otel.PATIENCE", 0.5)
    provider = StrictProvider()
    async with provider.serve() as url:
        sections = {"traces": {"enabled": True, "endpoint": "http://127.0.0.1:9"}}
        async with compactd(configured(url, **sections)) as proxy:
            assert (await proxy.ask(Talk("openai-chat").ask("Hi.").request())).status == 200
            began = time.monotonic()
        assert time.monotonic() - began < 5


def test_settings_say_where_to() -> None:
    assert json.loads(Traces().model_dump_json()) == {"enabled": False, "endpoint": None}


ROOT = Path(__file__).parents[2]


def attributes() -> set[str]:
    """All that spans can say, as the source has it."""
    found = set(NAMES.values())
    found |= set(re.findall(r'"((?:gen_ai|http|server)\.[a-z_.]+)"', (ROOT / "app" / "edge" / "otel.py").read_text()))
    for file in (ROOT / "app").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in ("tell", "span")
            ):
                names = {keyword.arg for keyword in call.keywords if keyword.arg}
                found |= {NAMES.get(name) or f"compactd.{name}" for name in names}
    return found


def test_the_page_tells_every_attribute_and_no_other() -> None:
    page = (ROOT / "docs" / "traces.md").read_text()
    told = re.findall(r"^\| `([a-z_.]+)` \| ", page.partition("| attribute |")[2], re.MULTILINE)
    assert sorted(told) == sorted(attributes())


def test_the_page_tells_every_span_of_compactds_own() -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "app").rglob("*.py"))
    named = {f"compactd.{name}" for name in re.findall(r'\.span\(\s*"(\w+)"', source)}
    assert (
        set(
            re.findall(r"^\| `(compactd\.\w+)` \| internal \|", (ROOT / "docs" / "traces.md").read_text(), re.MULTILINE)
        )
        == named
    )
