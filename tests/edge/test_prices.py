"""What tokens cost: list prices, cached tokens at their own rate, nothing for what has no known price."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry

from app.edge import prices
from app.edge.metrics import Metrics
from app.edge.prices import Rates, Savings
from app.edge.record import RequestRecorder
from app.formats import FORMATS
from app.formats.base import Usage
from app.request import Outcome


def test_whatever_has_a_price_is_priced_by_kind_of_token() -> None:
    # source: https://platform.claude.com/docs/en/about-claude/pricing: $3 input, $15 output, $0.30 read, $3.75 written, a million.
    sonnet = "claude-sonnet-4-5"
    assert prices.cost(sonnet, "anthropic-messages", Usage(100_000, 10_000)) == pytest.approx(0.3 + 0.15)
    assert prices.cost(sonnet, "anthropic-messages", Usage(100_000, 0, 100_000)) == pytest.approx(0.03)
    assert prices.cost(sonnet, "anthropic-messages", Usage(100_000, 0, 60_000, 40_000)) == pytest.approx(0.018 + 0.15)


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o", "gpt-4o-2024-08-06"])
def test_names_as_gateways_write_them(name: str) -> None:
    assert prices.cost(name, "openai-chat", Usage(1_000_000)) == pytest.approx(2.5)


@pytest.mark.parametrize("form", FORMATS)
def test_no_price_is_nothing(form: str) -> None:
    for name in ("my-own-model", "", "other", "a/b/c"):
        assert prices.cost(name, form, Usage(1_000_000, 1_000, 5)) == 0.0
        assert prices.rates(name, form) == Rates(0.0, 0.0)


@pytest.mark.parametrize(
    "usage", [Usage(), Usage(0, 5, 100, 100), Usage(10, 0, 100), Usage(10, 0, 5, 100), Usage(10**12, 10**12)]
)
def test_odd_reports_are_no_fault(usage: Usage) -> None:
    assert prices.cost("gpt-4o", "openai-chat", usage) >= 0


def test_each_format_knows_whose_prices_hold() -> None:
    assert set(prices.PROVIDERS) == set(FORMATS)


class Purse:
    """Money that comes in from another thread."""

    def __init__(self) -> None:
        self.sums: list[float] = []
        self._came = threading.Semaphore(0)

    def add(self, dollars: float) -> None:
        self.sums.append(dollars)
        self._came.release()

    def wait(self) -> float:
        assert self._came.acquire(timeout=30)
        return self.sums[-1]


def test_savings_are_looked_up_elsewhere_and_then_known() -> None:
    purse = Purse()
    savings = Savings(purse.add)
    savings.count("gpt-4o", "openai-chat", 1_000_000, None)
    assert purse.wait() == pytest.approx(2.5)
    savings.count("gpt-4o", "openai-chat", 2_000_000, None)
    assert purse.sums[1:] == [pytest.approx(5.0)]  # at once, in this thread


def test_savings_of_cached_tokens_are_cheaper() -> None:
    purse = Purse()
    savings = Savings(purse.add)
    half = 0.5 * 2.5 + 0.5 * 1.25
    for usage, dollars in (
        (Usage(1_000, 5, 500), half),
        (Usage(1_000), 2.5),
        (Usage(0, 5, 800), 2.5),
        (Usage(1, 0, 9), 1.25),
    ):
        savings.count("gpt-4o", "openai-chat", 1_000_000, usage)
        assert purse.wait() == pytest.approx(dollars)


def test_a_crowd_of_models_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "RATES_KEPT", 1)
    purse = Purse()
    savings = Savings(purse.add)
    for name, dollars in (("gpt-4o", 2.5), ("gpt-4o-mini", 0.15), ("gpt-4o-mini", 0.15), ("gpt-4o", 2.5)):
        savings.count(name, "openai-chat", 1_000_000, None)
        assert purse.wait() == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("status", "model", "counts"), [(200, "gpt-4o", True), (429, "gpt-4o", False), (200, "other", False)]
)
def test_recorder_counts_what_a_request_that_went_well_did_not_carry(status: int, model: str, counts: bool) -> None:
    metrics = Metrics(CollectorRegistry())
    recorder, purse = RequestRecorder(metrics), Purse()
    recorder._savings = Savings(purse.add)
    outcome = Changed(
        b"", "replayed", "checkpoint", strategy="summarize", before=3_000_000, after=1_000_000, source="usage"
    )
    record = recorder.begin()
    record.format, record.model, record.status = "openai-chat", model, status
    recorder.end(record, outcome)
    if counts:
        assert purse.wait() == pytest.approx(5.0)
    else:
        recorder._savings._looking.shutdown(wait=True)
        assert purse.sums == []


class Changed(Outcome):
    """An outcome that changed its request."""

    @property
    def changed(self) -> bool:
        return True


def test_metric_is_there_from_the_start() -> None:
    metrics = Metrics(CollectorRegistry())
    RequestRecorder(metrics)
    assert metrics.registry.get_sample_value("compactd_estimated_cost_usd_total", {"kind": "saved"}) == 0.0


def test_serving_does_not_import_the_prices() -> None:
    code = "import sys, app.main; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
