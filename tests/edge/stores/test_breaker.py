from __future__ import annotations

import pytest

from app.edge.stores.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(failures=3, first=1.0, longest=15.0, clock=clock)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def test_only_failures_in_a_row_open_it(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.closed
    breaker.failed()
    assert not breaker.closed


def test_one_probe_at_a_time_after_pauses_that_grow_to_a_bound(breaker: Breaker, clock: Clock) -> None:
    assert not breaker.begin_probe()
    fail(breaker, 3)
    pauses = []
    for _ in range(7):
        begun = clock.now
        while not breaker.begin_probe():
            clock.now += 0.5
        assert not breaker.begin_probe()
        pauses.append(clock.now - begun)
        breaker.end_probe(success=False)
    assert pauses == [1, 2, 4, 8, 15, 15, 15]


def test_after_a_good_probe_one_failure_opens_it_for_longer(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 1
    assert breaker.begin_probe()
    breaker.end_probe(success=True)
    assert breaker.closed
    breaker.failed()
    assert not breaker.closed
    clock.now += 1.9
    assert not breaker.begin_probe()
    clock.now += 0.1
    assert breaker.begin_probe()


def test_a_real_success_forgets_everything(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 1
    breaker.begin_probe()
    breaker.end_probe(success=True)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.closed
    breaker.failed()
    clock.now += 1
    assert breaker.begin_probe()


def test_calls_that_began_earlier_change_nothing_once_it_is_open(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    breaker.succeeded()
    assert not breaker.closed
    clock.now += 0.9
    breaker.failed()
    clock.now += 0.1
    assert breaker.begin_probe()
