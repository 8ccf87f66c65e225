"""Every metric of compactd, in one class built on a registry that is handed in.

Names and labels are fixed (dashboards and alerts are written against them); docs/metrics.md lists them. Labels are bounded: formats,
upstream names, reasons and registry rows only; never content, never a session, never a name that a client made up, never just any number
that a provider answers with. What can be known beforehand stands at 0 from the start, or the first event of a kind would be no increase.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from itertools import product
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from app import __version__
from app.formats import FORMATS
from app.ports import Store
from app.settings import Settings
from app.strategies import STRATEGIES
from app.strategies.fold_rounds import FoldRounds

M = TypeVar("M", Counter, Histogram)
_TOKENS = (500, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 96e3, 128e3, 200e3, 400e3, 1e6, 2e6)
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_OVERHEAD = (*_FAST, 5, 10, 20, 40, 60, 120)
"""A compaction may wait for its summary, for `summary_timeout` at most."""
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)

OUTSIDE_HTTP = (499, 520, 521, 522, 523, 524, 525, 526, 529, 530)
"""Codes of nginx, Cloudflare and Anthropic (529: overloaded) that say something though no RFC has them."""
_STATUS = {code: str(code) for code in (*map(int, HTTPStatus), *OUTSIDE_HTTP)}
UPSTREAM_FAILURES = (
    "upstream_unreachable", "upstream_connect_timeout", "upstream_timeout", "upstream_broke_off", "upstream_pool_exhausted",
)  # fmt: skip
FAULTS = ("decide", "gate", "loop", "prepare", "quarantine", "reception", "relay", "settle", "spent")
SOURCES = ("usage", "provider", "tiktoken", "approximate")
EITHER_WAY = "original_too"
"""The class of rejections that say nothing about the compaction."""
REJECTIONS = ("invalid_request", "binds_thinking", "alternating_roles", EITHER_WAY)
"""Classes of refusal: the quirks that a format learns from one, and all others."""
LEVELS = ("1", "2")
SUMMARY_FAILURES = (
    "empty", "failed", "no_credentials", "no_upstream", "nothing_to_say", "reasoning_only", "refused", "timeout", "too_long",
    "too_many_links", "tool_call", "truncated", "unreachable", "unreadable", "window_too_small",
)  # fmt: skip
"""Besides those that name a status."""
SINKS, RESULTS = ("store", "file", "s3", "own"), ("ok", "failed")
STORE_OPS = tuple(name for name in vars(Store) if not name.startswith("_") and name != "close")


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
        self.summary_seconds = histogram("summary_seconds", "Duration of summaries, all calls of one together.", _SLOW)
        self.summary_failures = counter(
            "summary_failures", "Summaries that a model did not give; the policy's fallback was taken.", "reason"
        )
        self.cost = counter("estimated_cost_usd", "Estimated US dollars: list prices, not invoices.", "kind")
        self.overhead = histogram(
            "overhead_seconds",
            "From a conversation's last byte to its forwarding; where a summary was made, with the wait for it.",
            _OVERHEAD,
            "outcome",
        )
        self.first_byte = histogram(
            "upstream_first_byte_seconds", "From forwarding to the answer's head.", _SLOW, "upstream"
        )
        self.responses = counter("upstream_responses", "Answers of providers.", "upstream", "status")
        self.failures = counter(
            "upstream_failures", "Providers that gave no answer, or broke one off.", "upstream", "code"
        )
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

        def gauge(name: str, text: str, mode: Any, *labels: str) -> Gauge:
            return Gauge(f"compactd_{name}", text, labels, registry=registry, multiprocess_mode=mode)

        self.inflight = gauge("inflight_requests", "Requests being forwarded now.", "livesum")
        self.tasks = gauge("tasks", "Tasks of the event loop, once a second.", "livesum")
        self.draining = gauge("draining", "1 while compactd is stopping.", "livemax")
        self.store_degraded = gauge("store_degraded", "1 while the store is done without.", "livemax")
        self.build = gauge("build_info", "Always 1; the label says which compactd this is.", "max", "version")
        self.build.labels(__version__).set(1)
        self._begin()

    def _begin(self) -> None:
        """Put what can be known beforehand at 0."""
        for form in FORMATS:
            self.of(self.overflows, form)
        for form in (*FORMATS, "none"):
            self.of(self.disconnected, form)
        for form, strategy, level in product(FORMATS, (*STRATEGIES, FoldRounds.name), LEVELS):
            self.of(self.compactions, form, strategy, level)
        for form, kind in product(FORMATS, REJECTIONS):
            self.of(self.rejections, form, kind)
        for source in SOURCES:
            self.of(self.count_source, source)
        for where in FAULTS:
            self.of(self.faults, where)
        for op in STORE_OPS:
            self.of(self.store_errors, op)
        for direction in ("input", "output"):
            self.of(self.summary_tokens, direction)
        for reason in SUMMARY_FAILURES:
            self.of(self.summary_failures, reason)
        for sink, result in product(SINKS, RESULTS):
            self.of(self.archives, sink, result)
        for kind in ("spent_on_summaries", "saved"):
            self.of(self.cost, kind)

    def expect(self, settings: Settings) -> None:
        """Put what a configuration makes known at 0, too."""
        for upstream, code in product(settings.upstreams, UPSTREAM_FAILURES):
            self.of(self.failures, upstream, code)
        for form, policy, level in product(FORMATS, settings.policies, LEVELS):
            self.of(self.compactions, form, policy.strategy, level)

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


def status(code: int) -> str:
    """A provider's status code as a label: one that means something, else its class."""
    return _STATUS.get(code) or f"{code // 100}xx"
