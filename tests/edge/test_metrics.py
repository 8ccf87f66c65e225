"""The metrics: names and labels that dashboards are written against, and the page that tells of them."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from app.edge.metrics import (
    FAULTS,
    REJECTIONS,
    RESULTS,
    SINKS,
    SOURCES,
    STORE_OPS,
    SUMMARY_FAILURES,
    UPSTREAM_FAILURES,
    Metrics,
    status,
)
from app.edge.preview import OFFLINE
from app.formats import FORMATS
from app.request import Result
from app.settings import Settings
from app.strategies import STRATEGIES
from app.strategies.fold_rounds import FoldRounds
from tests.docs.words import summaries
from tests.edge.talks import Talk
from tests.edge.wire import compactd, configured, request
from tests.strict.server import StrictProvider

APP = Path(__file__).parents[2] / "app"
PAGE = (APP.parent / "docs" / "metrics.md").read_text()
PROMTOOL = shutil.which("promtool")

DESIGNED = {  # as the design has them
    "requests_total": {"format", "upstream", "outcome", "reason"},
    "compactions_total": {"format", "strategy", "level"},
    "request_tokens": {"format", "stage"},
    "tokens_cleared_total": {"format", "strategy", "model"},
    "upstream_tokens_total": {"upstream", "model", "kind"},
    "summary_tokens_total": {"direction"},
    "summary_seconds": set(),
    "estimated_cost_usd_total": {"kind"},
    "overhead_seconds": {"outcome"},
    "upstream_first_byte_seconds": {"upstream"},
    "upstream_responses_total": {"upstream", "status"},
    "rejections_total": {"format", "class"},
    "overflows_total": {"format"},
    "count_source_total": {"source"},
    "store_seconds": {"op"},
    "store_errors_total": {"op"},
    "archives_total": {"sink", "result"},
    "clients_disconnected_total": {"format"},
    "inflight_requests": set(),
}
BESIDES = {
    "faults_total": {"where"},
    "summary_failures_total": {"reason"},
    "upstream_failures_total": {"upstream", "code"},
    "tasks": set(),
    "draining": set(),
    "store_degraded": set(),
    "build_info": {"version"},
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def used(metrics: Metrics) -> None:
    """Each metric once."""
    for metric in vars(metrics).values():
        names = getattr(metric, "_labelnames", None)
        if names is not None:
            child = metric.labels(*["x"] * len(names)) if names else metric
            getattr(child, "inc", getattr(child, "observe", None))(1)


def exposed(metrics: Metrics) -> dict[str, set[str]]:
    """Name -> labels of every sample after each metric was used once."""
    used(metrics)
    families = text_string_to_metric_families(metrics.text().decode())
    found = {}
    for family in families:
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found[name.removeprefix("compactd_")] = set(sample.labels) - {"le"}
    return found


def test_every_metric_of_the_design_is_there_with_its_labels_and_none_besides(metrics: Metrics) -> None:
    found = {name: labels for name, labels in exposed(metrics).items() if not name.endswith("_created")}
    assert found == DESIGNED | BESIDES


def rows(columns: int) -> list[list[str]]:
    """The rows of the page's table with so many columns, without its head."""
    lines = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.splitlines() if line[:2] == "| "]
    return [line for line in lines if len(line) == columns and line[0].startswith("`")]


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]*)`", cell))


def test_the_page_tells_every_metric_as_it_is_and_no_other(metrics: Metrics) -> None:
    used(metrics)
    told = {name.strip("`"): (kind, words(labels)) for name, kind, labels, _ in rows(4)}
    assert len(told) == len(rows(4))
    labels = exposed(metrics)
    found = {}
    for family in metrics.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = (family.type, labels[name.removeprefix("compactd_")])
    assert told == found


def test_the_page_tells_every_label_and_the_values_of_those_that_have_few(metrics: Metrics) -> None:
    told = {name.strip("`"): words(values) for name, values in rows(2)}
    assert told.keys() == set().union(*exposed(metrics).values())
    for label, values in {
        "format": {*FORMATS, "none"}, "outcome": set(get_args(Result)), "level": {"1", "2"}, "stage": {"before", "after"},
        "class": set(REJECTIONS), "source": set(SOURCES), "op": set(STORE_OPS), "result": set(RESULTS),
        "direction": {"input", "output"}, "code": set(UPSTREAM_FAILURES), "where": set(FAULTS), "sink": set(SINKS),
        "kind": {"input", "output", "cache_read", "cache_write", "spent_on_summaries", "saved"},
        "strategy": {*STRATEGIES, FoldRounds.name, "package.module:callable"},
    }.items():  # fmt: skip
        assert told[label] == values, label


def test_what_is_known_beforehand_stands_at_zero(metrics: Metrics) -> None:
    """A series that begins with 1 has no increase: an alert on it would miss the first event."""
    for name, labels in [
        ("rejections_total", {"format": "gemini", "class": "invalid_request"}), ("store_errors_total", {"op": "lookup"}),
        ("compactions_total", {"format": "gemini", "strategy": "combined", "level": "1"}),
        ("compactions_total", {"format": "gemini", "strategy": "fold_rounds", "level": "2"}),
        ("overflows_total", {"format": "openai-chat"}), ("estimated_cost_usd_total", {"kind": "spent_on_summaries"}),
        ("clients_disconnected_total", {"format": "none"}), ("summary_failures_total", {"reason": "timeout"}),
        *(("archives_total", {"sink": sink, "result": result}) for sink in SINKS for result in RESULTS),
    ]:  # fmt: skip
        assert metrics.registry.get_sample_value(f"compactd_{name}", labels) == 0, name


def test_what_a_configuration_makes_known_stands_at_zero(metrics: Metrics) -> None:
    upstream = {"base_url": "https://x", "formats": ["gemini"]}
    metrics.expect(Settings(upstreams={"mine": upstream}, policies=[{"strategy": "own.code:compact"}]))
    for name, labels in [
        ("upstream_failures_total", {"upstream": "mine", "code": "upstream_unreachable"}),
        ("compactions_total", {"format": "gemini", "strategy": "own.code:compact", "level": "1"}),
    ]:
        assert metrics.registry.get_sample_value(f"compactd_{name}", labels) == 0, name


def test_all_reasons_for_no_summary_are_known_beforehand() -> None:
    assert summaries() == {*SUMMARY_FAILURES, "status_…", OFFLINE}


def test_all_places_of_faults_are_known_beforehand() -> None:
    source = "\n".join(file.read_text() for file in APP.rglob("*.py"))
    assert set(re.findall(r"ecorder\.fault\(\s*\"(\w+)\"", source)) == set(FAULTS)


def test_status_codes_are_bounded() -> None:
    """A provider can answer with five hundred codes; those that mean something are told apart."""
    assert [status(code) for code in (200, 429, 503, 529)] == ["200", "429", "503", "529"]
    assert [status(code) for code in (299, 477, 599)] == ["2xx", "4xx", "5xx"]
    assert len({status(code) for code in range(100, 600)}) < 85


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")
async def test_prometheus_finds_nothing_wrong_with_the_real_exposition(tmp_path: Path) -> None:
    provider = StrictProvider()
    low = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
    async with provider.serve() as url, compactd(configured(url, policies=[low])) as proxy:
        for form in FORMATS:
            assert (await proxy.ask(Talk(form).ask("Read.").rounds(8).request())).told[0] == "compacted"
        used(proxy.app.metrics)
        text = (await proxy.ask(request("GET", "/metrics"))).body
    assert b"compactd_overhead_seconds_bucket" in text
    (tmp_path / "metrics").write_bytes(text)
    with (tmp_path / "metrics").open() as given:
        check = await asyncio.create_subprocess_exec(PROMTOOL, "check", "metrics", stdin=given, stderr=subprocess.PIPE)  # type: ignore[arg-type]
        _, said = await check.communicate()
    # A name with the word `summary` in it could be taken for Prometheus' type of that name; here it is a text.
    assert [line for line in said.decode().splitlines() if not line.endswith("should not include type 'summary'")] == []


def test_all_are_named_after_compactd(metrics: Metrics) -> None:
    assert all(family.name.startswith("compactd_") for family in metrics.registry.collect())


def test_children_are_remembered(metrics: Metrics) -> None:
    metrics.of(metrics.overflows, "gemini").inc()
    metrics.of(metrics.overflows, "gemini").inc()
    metrics.of(metrics.overflows, "openai-chat").inc()
    assert metrics.registry.get_sample_value("compactd_overflows_total", {"format": "gemini"}) == 2


def test_histograms_reach_as_far_as_they_must(metrics: Metrics) -> None:
    """The largest context windows, ten minutes of waiting, a tenth of a millisecond of overhead."""

    def bounds(metric: object) -> list[float]:
        return list(metric._upper_bounds)  # type: ignore[attr-defined]

    assert bounds(metrics.request_tokens)[-2] >= 2_000_000
    assert bounds(metrics.first_byte)[-2] >= 600
    assert bounds(metrics.overhead)[0] <= 0.0001
