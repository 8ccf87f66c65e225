"""What is told about a request: headers, metrics, one log line; never content, never a credential."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from app.edge.metrics import UPSTREAM_FAILURES, Metrics
from app.edge.record import Record, RequestRecorder
from app.formats.base import Usage
from app.request import Outcome
from app.settings import Log
from tests.edge.talks import MODELS, Talk
from tests.edge.upstream.peers import Peer, answers, response, serve
from tests.edge.wire import compactd, configured, request, until
from tests.strict.server import StrictProvider

LOW = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]


def lines(log: LogCapture) -> list[dict[str, Any]]:
    return [dict(entry) for entry in log.entries if entry["event"] == "request"]


@pytest.fixture
def recorder() -> RequestRecorder:
    return RequestRecorder(Metrics(CollectorRegistry()))


def sample(recorder: RequestRecorder, name: str, **labels: str) -> float | None:
    return recorder.metrics.registry.get_sample_value(f"compactd_{name}", labels)


COMPACTED = Outcome(
    b"", "compacted", "threshold", strategy="summarize", level=2, before=900, after=400, source="usage", session="s", compactions=3,
    archive="http://x/compactd/archives/a/b",
)  # fmt: skip


def test_headers_of_an_outcome() -> None:
    record = Record(deciding=0.001234)
    told = {name.decode(): value.decode() for name, value in record.told(COMPACTED)}
    assert told == {
        "x-compactd-outcome": "compacted", "x-compactd-reason": "threshold", "x-compactd-strategy": "summarize", "x-compactd-level": "2",
        "x-compactd-tokens-before": "900", "x-compactd-tokens-after": "400", "x-compactd-count-source": "usage", "x-compactd-session": "s",
        "x-compactd-compactions": "3", "x-compactd-archive": "http://x/compactd/archives/a/b", "x-compactd-request-id": record.id,
        "x-compactd-overhead-ms": "1.23",
    }  # fmt: skip


def test_request_ids_are_unique() -> None:
    assert len({Record().id for _ in range(1_000)}) == 1_000


def test_a_compaction_in_the_metrics(recorder: RequestRecorder) -> None:
    record = recorder.begin()
    assert sample(recorder, "inflight_requests") == 1
    record.format, record.upstream, record.model, record.status = "gemini", "g", "gemini-2.5-pro", 200
    record.deciding, record.asked, record.answered = 0.003, 5.0, 7.5
    record.usage, record.finished = Usage(390, 20, 100, 50), True
    recorder.end(record, COMPACTED)
    assert sample(recorder, "inflight_requests") == 0
    assert (
        sample(recorder, "requests_total", format="gemini", upstream="g", outcome="compacted", reason="threshold") == 1
    )
    assert sample(recorder, "compactions_total", format="gemini", strategy="summarize", level="2") == 1
    assert sample(recorder, "request_tokens_sum", format="gemini", stage="before") == 900
    assert sample(recorder, "count_source_total", source="usage") == 1
    assert sample(recorder, "overhead_seconds_sum", outcome="compacted") == 0.003
    assert sample(recorder, "upstream_first_byte_seconds_sum", upstream="g") == 2.5
    assert sample(recorder, "upstream_responses_total", upstream="g", status="200") == 1
    kinds = {kind: sample(recorder, "upstream_tokens_total", upstream="g", model="gemini-2.5-pro", kind=kind) for kind in (
        "input", "output", "cache_read", "cache_write")}  # fmt: skip
    assert kinds == {"input": 390, "output": 20, "cache_read": 100, "cache_write": 50}


def test_request_without_an_outcome(recorder: RequestRecorder) -> None:
    record = recorder.begin()
    record.reason = "too_large"
    recorder.end(record, None)
    assert sample(recorder, "requests_total", format="none", upstream="none", outcome="passed", reason="too_large") == 1
    assert sample(recorder, "upstream_responses_total", upstream="none", status="0") is None


@pytest.mark.parametrize(("finished", "counted"), [(False, 1), (True, 0)])
def test_a_client_that_left(recorder: RequestRecorder, log: LogCapture, finished: bool, counted: int) -> None:
    record = recorder.begin()
    record.format, record.disconnected, record.finished = "gemini", True, finished
    recorder.end(record, None)
    assert sample(recorder, "clients_disconnected_total", format="gemini") == counted
    assert lines(log)[0].get("client_left") == (None if finished else True)


def test_the_line_of_a_compaction(recorder: RequestRecorder, log: LogCapture) -> None:
    record = recorder.begin()
    record.usage, record.broken = Usage(390, 20, 100), "upstream_broke_off"
    recorder.end(record, COMPACTED)
    line = lines(log)[0]
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "request", "log_level": "warning", "request_id": record.id, "outcome": "compacted", "reason": "threshold",
        "format": "none", "upstream": "none", "model": "other", "status": 0, "overhead_ms": 0.0, "session": "s", "tokens_before": 900,
        "tokens_after": 400, "tokens_cleared": 0, "count_source": "usage", "strategy": "summarize", "compaction_level": 2,
        "compactions": 3, "input_tokens": 390, "cached_tokens": 100, "output_tokens": 20, "error": "upstream_broke_off",
    }  # fmt: skip


PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()


def test_the_page_tells_every_field_of_the_line_and_no_other(log: LogCapture) -> None:
    """In both directions, and when they are there: always, or only where there is something to tell."""
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| ", PAGE.partition("## Other events")[0], re.MULTILINE))
    recorder = RequestRecorder(Metrics(CollectorRegistry()))
    full, bare = recorder.begin(), recorder.begin()
    full.asked, full.answered, full.usage, full.broken, full.disconnected = (
        1.0,
        2.0,
        Usage(1, 1, edits=tuple((f"cleared_{what}", 1) for what in ("input_tokens", "tool_uses", "thinking_turns"))),
        "upstream_broke_off",
        True,
    )
    full.trace, full.policy, full.because = "0" * 31 + "1", "default", "a:443 broke off its answer."
    recorder.end(full, COMPACTED)
    recorder.end(bare, None)
    most, least = ({*line} - {"event", "log_level"} for line in lines(log))
    assert told.keys() == most
    assert {field for field, when in told.items() if when == "always"} == least


def passing(recorder: RequestRecorder, **changed: Any) -> None:
    """A request that passes as a matter of course, but for what was changed."""
    record, outcome = recorder.begin(), Outcome(b"", "passed", "below_threshold", before=9, after=9, source="tiktoken")
    record.status = 200
    for name, value in changed.items():
        if name in ("result", "reason"):
            outcome = replace(outcome, **{name: value})
        else:
            setattr(record, name, value)
    recorder.end(record, outcome)


UNUSUAL: list[dict[str, Any]] = [
    {"result": "compacted"}, {"result": "replayed"}, {"result": "observed"}, {"result": "declined"}, {"result": "failed"}, {"status": 429},
    {"status": 500}, {"broken": "upstream_broke_off"}, {"own_error": "draining"}, {"disconnected": True},
]  # fmt: skip


def test_a_sample_leaves_out_nothing_but_what_passed_as_a_matter_of_course(log: LogCapture) -> None:
    recorder = RequestRecorder(Metrics(CollectorRegistry()), Log(sample=0))
    passing(recorder)
    assert lines(log) == []
    for changed in UNUSUAL:
        passing(recorder, **changed)
    assert len(lines(log)) == len(UNUSUAL)
    assert (
        sample(recorder, "requests_total", format="none", upstream="none", outcome="passed", reason="below_threshold")
        == 6
    )


@pytest.mark.parametrize(("share", "least", "most"), [(1, 2_000, 2_000), (0.25, 400, 600), (0, 0, 0)])
def test_a_sample_is_the_share_that_was_asked_for(log: LogCapture, share: float, least: int, most: int) -> None:
    recorder = RequestRecorder(Metrics(CollectorRegistry()))
    recorder.follow(Log(sample=share))
    for _ in range(2_000):
        passing(recorder)
    assert least <= len(lines(log)) <= most


@pytest.mark.parametrize(
    ("level", "changed", "told"),
    [
        ("info", {}, "info"), ("info", {"status": 429}, "info"), ("warning", {}, None), ("warning", {"status": 502}, "warning"),
        ("warning", {"result": "failed"}, "warning"), ("warning", {"broken": "upstream_broke_off"}, "warning"),
        ("error", {"result": "failed"}, None),
    ],
)  # fmt: skip
def test_severity_of_a_line(log: LogCapture, level: Any, changed: dict[str, Any], told: str | None) -> None:
    passing(RequestRecorder(Metrics(CollectorRegistry()), Log(level=level)), **changed)
    assert [line["log_level"] for line in lines(log)] == ([told] if told else [])


def test_why_there_is_no_summary_is_counted_within_bounds(recorder: RequestRecorder, log: LogCapture) -> None:
    for reason in ("timeout", "status_429", "status_477", "status_478"):
        recorder.summary_failed(reason, "sliding_window")
    assert sample(recorder, "summary_failures_total", reason="timeout") == 1
    assert sample(recorder, "summary_failures_total", reason="status_429") == 1
    assert sample(recorder, "summary_failures_total", reason="status_4xx") == 2
    assert log.entries[2] == {
        "event": "summary_failed", "log_level": "warning", "reason": "status_477", "fallback": "sliding_window",
    }  # fmt: skip


def test_a_fault_is_told_without_its_text(recorder: RequestRecorder, log: LogCapture) -> None:
    try:
        json.loads("what a user said")
    except ValueError as fault:
        recorder.fault("decide", fault)
    recorder.fault("gate", None)
    assert sample(recorder, "faults_total", where="decide") == 1
    first, second = log.entries
    assert (first["kind"], first["at"].partition(":")[0], second["kind"]) == (
        "JSONDecodeError",
        "decoder.py",
        "refused",
    )
    assert "what a user said" not in str(log.entries)


def test_other_things_that_are_told(recorder: RequestRecorder, log: LogCapture) -> None:
    recorder.rejected("gemini", "invalid_request")
    recorder.rejected("gemini", "original_too")
    recorder.overflowed("gemini")
    recorder.archived("store", "ok")
    recorder.archived("s3", "TimeoutError")
    recorder.store_seconds("lookup", 0.25)
    recorder.store_error("lookup")
    assert sample(recorder, "rejections_total", format="gemini", **{"class": "invalid_request"}) == 1
    assert sample(recorder, "rejections_total", format="gemini", **{"class": "original_too"}) == 1
    assert sample(recorder, "overflows_total", format="gemini") == 1
    assert sample(recorder, "archives_total", sink="store", result="ok") == 1
    assert sample(recorder, "archives_total", sink="s3", result="failed") == 1
    assert sample(recorder, "store_seconds_sum", op="lookup") == 0.25
    assert sample(recorder, "store_errors_total", op="lookup") == 1
    assert [entry["event"] for entry in log.entries] == [
        "provider_rejected_compacted_request",
        "refused_either_way",
        "archive_failed",
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_told_holds_content_or_credentials(form: str, stream: bool, log: LogCapture) -> None:
    """A compaction, a refusal and an error; logs and metrics know nothing of what was said, by whom, or with which key."""
    provider = StrictProvider()
    secret = "sk-CONFIDENTIAL"
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        talk = Talk(form, key=secret).ask("CONFIDENTIAL question.").rounds(8, "CONFIDENTIAL result of a tool " * 30)
        for _ in range(2):
            answer = await proxy.ask(talk.request("x-compactd-session: not a plain name: CONFIDENTIAL", stream=stream))
            assert answer.status == 200
        provider.keys = frozenset({"another"})
        assert (await proxy.ask(talk.request(stream=stream))).status == 401
        await proxy.ask(talk.request("x-compactd-policy: CONFIDENTIAL"))
        text = proxy.app.metrics.text().decode()
    assert [line["outcome"] for line in lines(log)] == ["compacted", "replayed", "replayed", "passed"]
    assert "CONFIDENTIAL" not in json.dumps(log.entries) + text


@pytest.mark.parametrize("form", FORMS)
async def test_names_that_clients_make_up_are_no_labels(form: str, log: LogCapture) -> None:
    async with serve(answers(*[response(b"{}")] * 3)) as server, compactd(configured(server.url)) as proxy:
        for name in ("made-up-1", "made-up-2", MODELS[form]):
            await proxy.ask(Talk(form, model=name).ask("Hi.").request())
        assert "made-up" not in proxy.app.metrics.text().decode()
    assert [line["model"] for line in lines(log)] == ["other", "other", MODELS[form]]


async def test_requests_to_compactd_itself_are_not_counted() -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        for path in ("/livez", "/readyz", "/metrics", "/compactd/api/sessions", "/compactd/nothing"):
            await proxy.ask(request("GET", path))
        assert "compactd_requests_total{" not in proxy.app.metrics.text().decode()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_figures_of_a_real_exchange_are_the_providers(form: str, stream: bool, log: LogCapture) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        more = {"stream_options": {"include_usage": True}} if form == "openai-chat" and stream else {}
        answer = await proxy.ask(Talk(form).ask("Read.").rounds(8).request(stream=stream, **more))
        usage = provider.requests[0].usage
        assert usage is not None
        labels = {"upstream": "provider", "model": MODELS[form]}
        assert proxy.metric("upstream_tokens_total", kind="input", **labels) == usage.prompt
        assert proxy.metric("upstream_tokens_total", kind="output", **labels) == usage.output
        assert proxy.metric(
            "tokens_cleared_total", format=form, strategy="tool_result_clearing", model=MODELS[form]
        ) == (int(answer["x-compactd-tokens-before"]) - int(answer["x-compactd-tokens-after"]))
        await until(lambda: proxy.metric("estimated_cost_usd_total", kind="saved") > 0)
    line = lines(log)[0]
    assert (line["input_tokens"], line["output_tokens"], line["status"]) == (usage.prompt, usage.output, 200)


async def test_second_attempt_that_fails_is_not_counted_as_the_providers_answer() -> None:
    """Its time to the first byte would be negative."""

    async def provider(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            await peer.send(b"HTTP/1.1 400 Bad\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")

    async with serve(provider) as server, compactd(configured(server.url, policies=[LOW])) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Read.").rounds(8).request())
        assert answer.status == 502
        assert proxy.metric("upstream_responses_total", upstream="provider", status="502") == 0
        assert proxy.metric("upstream_first_byte_seconds_count", upstream="provider") == 0
        assert proxy.metric("upstream_failures_total", upstream="provider", code="upstream_broke_off") == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_a_provider_that_is_away_is_counted_whatever_compactd_made_of_the_request(path: str) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        talk = Talk("openai-chat").ask("Hi.").request() if "chat" in path else request("GET", path)
        assert (await proxy.ask(talk)).status == 502
        assert proxy.metric("upstream_failures_total", upstream="provider", code="upstream_unreachable") == 1


async def test_what_compactd_refuses_itself_is_no_failure_of_the_providers() -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Hi.").request("x-compactd-policy: nosuch"))
        assert answer.status == 400
        assert all(
            proxy.metric("upstream_failures_total", upstream="provider", code=code) == 0 for code in UPSTREAM_FAILURES
        )
