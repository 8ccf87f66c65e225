"""What is asked of every target, what a round of it yields, and the bars that compactd has to meet.

Bars are ratios taken within a round, where both sides met the same machine; the median over the rounds is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
COMPACTD = "compactd"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    shape: str
    size: str
    connections: int
    answer: str = "json 400"  # the upstream's x-bench-answer
    config: str = "raw"  # compactd's
    outcome: str = "passed"  # what compactd has to say of a request, once warm
    cpu_bar: float | None = None  # CPU per request, times nginx

    @property
    def stream(self) -> bool:
        return self.answer.startswith("sse")


SCENARIOS = (
    Scenario("2 KB", "chat", "2k", 16, cpu_bar=20),
    Scenario("100 KB", "chat", "100k", 4, cpu_bar=8),
    Scenario("1 MB raw", "chat", "1m", 4, cpu_bar=4),
    Scenario("1 MB counted", "chat", "1m", 4, config="counted", cpu_bar=6),
    Scenario("1 MB counted, Anthropic", "anthropic", "1m", 4, config="counted", cpu_bar=6),
    Scenario("1 MB compacting", "chat", "1m", 4, config="compacting", outcome="replayed"),
    Scenario("1 MB compacting, Anthropic", "anthropic", "1m", 4, config="compacting", outcome="replayed"),
    Scenario("4 MB raw", "chat", "4m", 4),
    Scenario("64 streams", "chat", "2k", 64, answer="sse 20 10000 24", cpu_bar=4),
    Scenario("128 streams", "chat", "2k", 128, answer="sse 50 10000 24"),
)
CROWD = "128 streams"  # 128 x 100 events a second
COLD = "cold"

LAG_BAR_US = 500.0  # p50 above direct
PACE_BAR = 0.95  # events a second, share of direct: less means that streams fall behind
IDLE_BAR_MB = 130.0
PAUSE_BAR_MS = 20.0  # longest pause of small requests beside cold large ones, above the same without them


@dataclass(frozen=True, slots=True)
class Sample:
    """One target in one round of one scenario: what `load` printed, and what the target used meanwhile."""

    load: dict[str, Any]
    cpu_us: float  # per finished request
    peak_mb: float


@dataclass(frozen=True, slots=True)
class ColdSample:
    """Milliseconds that the slowest small request took, without and with cold large ones beside it."""

    alone_ms: float
    beside_ms: float
    large_requests: int


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    limit: str
    measured: str  # empty: it could not be measured, which does not meet it
    met: bool
    nginx: str = ""  # the same of nginx, for bars that are not ratios to it: how quiet was the machine?


Results = dict[str, dict[str, list[Sample]]]  # scenario -> target -> rounds
Reading = Callable[[Sample], float]


def median(rounds: Sequence[Sample], reading: Reading) -> float:
    return statistics.median(reading(sample) for sample in rounds)


def paired(
    mine: Sequence[Sample], theirs: Sequence[Sample], compare: Callable[[Sample, Sample], float]
) -> float | None:
    """The median of a comparison within each round; None without a round that both have."""
    values = [compare(a, b) for a, b in zip(mine, theirs, strict=False)]
    return statistics.median(values) if values else None


def cpu_ratio(mine: Sequence[Sample], theirs: Sequence[Sample]) -> float | None:
    return paired(mine, theirs, lambda a, b: a.cpu_us / b.cpu_us if b.cpu_us else float("inf"))


def rate(sample: Sample) -> float:
    return float(sample.load["requests_per_second"])


def lag_us(sample: Sample) -> float:
    return float(sample.load["lag_us"]["p50"])


def pace(sample: Sample) -> float:
    return float(sample.load["events"]) / float(sample.load["seconds"])


def _bar(
    name: str,
    limit: float,
    measured: float | None,
    form: str = ".2f",
    *,
    least: bool = False,
    nginx: float | None = None,
) -> Bar:
    """A bar that wants at most `limit`, or at least that."""
    met = measured is not None and (measured >= limit if least else measured <= limit)
    shown, shown_nginx = ("" if value is None else format(value, form) for value in (measured, nginx))
    return Bar(name, f"{'>=' if least else '<='} {limit:g}", shown, met, shown_nginx)


def _failures(results: Results) -> float | None:
    """Errors and rounds without a single answer, over all that compactd was asked."""
    rounds = [sample for targets in results.values() for sample in targets.get(COMPACTD, [])]
    return sum(sample.load["errors"] + (sample.load["requests"] == 0) for sample in rounds) if rounds else None


def _crowd_bars(targets: dict[str, list[Sample]]) -> list[Bar]:
    direct = targets.get("direct", [])

    def lost(target: str) -> float | None:
        rounds = targets.get(target, [])
        return sum(sample.load["lost_events"] for sample in rounds) if rounds else None

    def share(target: str) -> float | None:
        return paired(targets.get(target, []), direct, lambda a, b: pace(a) / pace(b) if pace(b) else 0.0)

    def lag(target: str) -> float | None:
        return paired(targets.get(target, []), direct, lambda a, b: lag_us(a) - lag_us(b))

    return [
        _bar(f"{CROWD}: lost events", 0, lost(COMPACTD), ".0f", nginx=lost("nginx")),
        _bar(f"{CROWD}: events a second, share of direct", PACE_BAR, share(COMPACTD), least=True, nginx=share("nginx")),
        _bar(f"{CROWD}: lag p50 above direct, us", LAG_BAR_US, lag(COMPACTD), ".0f", nginx=lag("nginx")),
    ]


def _cold_bar(cold: dict[str, list[ColdSample]]) -> Bar:
    def pause(target: str) -> float | None:
        pauses = [sample.beside_ms - sample.alone_ms for sample in cold.get(target, []) if sample.large_requests]
        return statistics.median(pauses) if pauses else None

    name = "cold: longest pause above alone, ms"
    return _bar(name, PAUSE_BAR_MS, pause(COMPACTD), ".1f", nginx=pause("nginx"))


def judge(
    chosen: Sequence[Scenario],
    results: Results,
    cold: dict[str, list[ColdSample]] | None,
    outcomes: dict[str, str],
    idle_mb: float | None,
) -> list[Bar]:
    """All bars of the chosen scenarios. `cold` is None if that scenario was not chosen."""
    bars: list[Bar] = []
    for scenario in chosen:
        targets = results.get(scenario.name, {})
        if scenario.cpu_bar is not None:
            ratio = cpu_ratio(targets.get(COMPACTD, []), targets.get("nginx", []))
            bars.append(_bar(f"{scenario.name}: CPU per request, x nginx", scenario.cpu_bar, ratio))
        outcome = outcomes.get(scenario.name, "")
        bars.append(Bar(f"{scenario.name}: outcome", scenario.outcome, outcome, outcome == scenario.outcome))
        if scenario.name == CROWD:
            bars += _crowd_bars(targets)
    if cold is not None:
        bars.append(_cold_bar(cold))
    bars.append(_bar("idle memory, MB", IDLE_BAR_MB, idle_mb, ".0f"))
    bars.append(_bar("errors", 0, _failures(results), ".0f"))
    return bars
