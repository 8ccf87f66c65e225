from __future__ import annotations

import math
from dataclasses import replace

from tests import leaks


def sampled(climb: float, unrest: float, requests: int = 20_000) -> list[leaks.Sample]:
    """Half an hour of samples that wave by `unrest` MiB; `climb` in MiB a minute, `requests` in each."""
    return [
        leaks.Sample(at / 12, 150 + climb * at / 12 + unrest * math.sin(at / 5) + (at * 7919 % 13) / 50, 20, at * requests // 12)
        for at in range(360)
    ]  # fmt: skip


def test_a_climb_is_told_from_noise() -> None:
    assert leaks.slope(sampled(0, 2)).fault == ""
    assert "climbs by 0.3" in leaks.slope(sampled(0.3, 1)).fault
    assert leaks.slope(sampled(0.03, 0)).fault == ""  # certain, but next to nothing
    assert "unsteady" in leaks.slope(sampled(0, 90)).fault


def test_memory_is_judged_with_full_caches_only() -> None:
    full = leaks.FULL / 20_000
    climbs_at_first = [
        replace(sample, size=sample.size - max(0, full - sample.minute) * 5) for sample in sampled(0, 0.1)
    ]
    assert leaks.slope(climbs_at_first).fault == ""
    assert leaks.slope(sampled(5, 0, requests=leaks.FULL // 24)).minutes < leaks.JUDGED


def test_what_stays_when_everybody_has_gone_is_named() -> None:
    first = leaks.Idle(tasks=3, files=20, clients=0, provider=0, store=1, ended=2, unheard=0)
    assert not [*leaks.leaks(first, replace(first, tasks=4, clients=1, provider=24, store=30, ended=7), 24)]
    worse = leaks.Idle(tasks=9, files=30, clients=3, provider=99, store=60, ended=60, unheard=1)
    assert [fault.split()[1] for fault in leaks.leaks(first, worse, 24)] == ["tasks", "files", *["connections"] * 4]
