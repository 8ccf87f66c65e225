"""Every metric of compactd, in one class built on a registry that is handed in.

Names and labels are fixed (dashboards and alerts are written against them). Labels are bounded: formats, upstream names, reasons and
registry rows only; never content, never a session, never a name that a client made up.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

M = TypeVar("M", Counter, Histogram)
_TOKENS = (
    500,
    1_000,
    2_000,
    4_000,
    8_000,
    16_000,
    32_000,
    64_000,
    96_000,
    128_000,
    200_000,
    400_000,
    1_000_000,
    2_000_000,
)
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._children: dict[tuple[Any, ...], Any] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"compactd_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"compactd_{name}", text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Proxied requests.", "format", "upstream", "outcome", "reason")
        self.compactions = counter(
            "compactions", "New compactions (replays are not counted).", "format", "strategy", "level"
        )
        self.request_tokens = histogram(
            "request_tokens",
            "Input tokens of a request, as the client sent it and as it was forwarded.",
            _TOKENS,
            "format",
            "stage",
        )
        self.tokens_cleared = counter(
            "tokens_cleared", "Input tokens that were not sent, over all requests.", "format", "strategy", "model"
        )
        self.upstream_tokens = counter(
            "upstream_tokens", "Tokens that providers reported.", "upstream", "model", "kind"
        )
        self.summary_tokens = counter("summary_tokens", "Tokens of summary calls.", "direction")
        self.summary_seconds = histogram("summary_seconds", "Duration of summary calls.", _SLOW)
        self.cost = counter("estimated_cost_usd", "Estimated US dollars: list prices, not invoices.", "kind")
        self.overhead = histogram(
            "overhead_seconds", "Time that compactd itself took before forwarding.", _FAST, "outcome"
        )
        self.first_byte = histogram(
            "upstream_first_byte_seconds", "From forwarding to the answer's head.", _SLOW, "upstream"
        )
        self.responses = counter("upstream_responses", "Answers of providers.", "upstream", "status")
        self.rejections = counter(
            "rejections", "Compacted requests that a provider refused; the original was sent.", "format", "class"
        )
        self.overflows = counter("overflows", "Answers that say the context is too long.", "format")
        self.count_source = counter("count_source", "Which rung of the counting ladder answered.", "source")
        self.store_seconds = histogram("store_seconds", "Duration of store operations.", _FAST, "op")
        self.store_errors = counter("store_errors", "Failed store operations.", "op")
        self.archives = counter("archives", "Archives written.", "sink", "result")
        self.disconnected = counter(
            "clients_disconnected", "Clients that left before their answer was complete.", "format"
        )
        self.faults = counter("faults", "Steps that failed inside compactd and were survived.", "where")
        self.inflight = Gauge(
            "compactd_inflight_requests",
            "Requests being forwarded now.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def of(self, metric: M, *labels: str) -> M:
        """The metric's child for these labels; remembered, because finding it is most of what counting costs."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def text(self) -> bytes:
        """The exposition, over all worker processes where there are several."""
        if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            return generate_latest(self.registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
