"""Bars: met by good figures, each of them can be missed, and what was not measured is not met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def sample(cpu_us: float = 100.0, **said: Any) -> Any:
    import scenarios

    told = {"requests": 10, "requests_per_second": 10.0, "errors": 0, "events": 100, "seconds": 1.0, "lost_events": 0}
    return scenarios.Sample({**told, "lag_us": {"p50": 30.0}, **said}, cpu_us, 50.0)


def paused(milliseconds: float, large_requests: int = 3) -> Any:
    import scenarios

    return scenarios.ColdSample(5.0, 5.0 + milliseconds, large_requests)


def judged(change: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """The bars of two scenarios and `cold` on figures that meet them all, but for a change."""
    import scenarios

    chosen = [s for s in scenarios.SCENARIOS if s.name in ("2 KB", "128 streams")]
    targets = {"direct": [sample(0.0)], "nginx": [sample(100.0)], "compactd": [sample(1900.0)]}
    given: dict[str, Any] = {
        "chosen": chosen,
        "results": {s.name: {name: list(rounds) for name, rounds in targets.items()} for s in chosen},
        "cold": {"compactd": [paused(19.0)]},
        "outcomes": {s.name: "passed" for s in chosen},
        "idle_mb": 129.0,
    }
    change(given)
    return {bar.name: bar for bar in scenarios.judge(**given)}


def test_bars_are_met_by_good_figures() -> None:
    assert all(bar.met and bar.measured for bar in judged().values())


@pytest.mark.parametrize(
    ("missed", "change"),
    [
        ("2 KB: CPU per request, x nginx", lambda g: g["results"]["2 KB"].update(compactd=[sample(2100.0)])),
        ("2 KB: CPU per request, x nginx", lambda g: g["results"]["2 KB"].pop("nginx")),
        ("2 KB: outcome", lambda g: g["outcomes"].update({"2 KB": "failed"})),
        ("128 streams: lost events", lambda g: g["results"]["128 streams"].update(compactd=[sample(lost_events=1)])),
        (
            "128 streams: events a second, share of direct",
            lambda g: g["results"]["128 streams"].update(compactd=[sample(events=90)]),
        ),
        (
            "128 streams: lag p50 above direct, us",
            lambda g: g["results"]["128 streams"].update(compactd=[sample(lag_us={"p50": 531.0})]),
        ),
        ("idle memory, MB", lambda g: g.update(idle_mb=131.0)),
        ("errors", lambda g: g["results"]["2 KB"].update(compactd=[sample(errors=1)])),
        ("errors", lambda g: g["results"]["2 KB"].update(compactd=[sample(requests=0)])),
        ("cold: longest pause above alone, ms", lambda g: g["cold"].update(compactd=[paused(20.1)])),
        ("cold: longest pause above alone, ms", lambda g: g["cold"].update(compactd=[paused(1.0, large_requests=0)])),
        ("cold: longest pause above alone, ms", lambda g: g["cold"].clear()),
    ],
)
def test_each_bar_can_be_missed(missed: str, change: Callable[[dict[str, Any]], None]) -> None:
    assert [name for name, bar in judged(change).items() if not bar.met] == [missed]


def test_a_ratio_is_taken_within_its_round() -> None:
    import scenarios

    quiet_then_busy = [sample(10.0), sample(1000.0), sample(20.0)]
    nginx = [sample(5.0), sample(500.0), sample(10.0)]
    assert scenarios.cpu_ratio(quiet_then_busy, nginx) == 2.0
