"""The metrics: names and labels that dashboards are written against."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from app.edge.metrics import Metrics

LABELS = {  # as the design has them
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
    "faults_total": {"where"},
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def exposed(metrics: Metrics) -> dict[str, set[str]]:
    """Name -> labels of every sample after each metric was used once."""
    for metric in vars(metrics).values():
        names = getattr(metric, "_labelnames", None)
        if names is not None:
            child = metric.labels(*["x"] * len(names)) if names else metric
            getattr(child, "inc", getattr(child, "observe", None))(1)
    families = text_string_to_metric_families(metrics.text().decode())
    found = {}
    for family in families:
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found[name.removeprefix("compactd_")] = set(sample.labels) - {"le"}
    return found


def test_every_metric_of_the_design_is_there_with_its_labels_and_none_besides(metrics: Metrics) -> None:
    assert {name: labels for name, labels in exposed(metrics).items() if not name.endswith("_created")} == LABELS


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
