"""As many connections as the system allows: more where it can be asked for, fewer where it can't."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from app.edge import files
from app.edge.files import SPARE, fitted
from app.settings import Settings

LIMITS = {"max_clients": 3_000, "max_connections": 500}
INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "given", "clients", "connections"),
    [
        (1_024, 1_000_000, 3_000 + 500 + SPARE, 3_000, 500),
        (1_024, INFINITE, 3_000 + 500 + SPARE, 3_000, 500),
        (9_000, 9_000, None, 3_000, 500),
        (INFINITE, INFINITE, None, 3_000, 500),
        (1_024, 1_024, None, 384, 384),
        (1_024, 2_048, 2_048, 1_292, 500),
        (100, 100, None, 1, 1),
    ],
)
def test_files_are_asked_for_and_made_do_with(
    soft: int, hard: int, given: int | None, clients: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    settings = Settings(limits=LIMITS)
    found = fitted(settings)
    assert asked == ([(given, hard)] if given else [])
    assert (found.limits.max_clients, found.limits.max_connections) == (clients, connections)
    assert (found is settings) == (clients == 3_000)
    assert found.limits.max_items == settings.limits.max_items


def test_a_system_that_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, INFINITE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert fitted(Settings(limits=LIMITS)).limits.max_connections == 384
    monkeypatch.setattr(files, "resource", None)
    assert fitted(Settings(limits=LIMITS)).limits.max_connections == 500
