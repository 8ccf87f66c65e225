"""The edge runs on uvloop, as the server does, and without the proxies of the machine that the tests run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import structlog
import uvloop
from structlog.testing import LogCapture

from app.core import tokens
from app.edge import memory
from app.edge.upstream import transport, trust

HERE = Path(__file__).parent


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.parent == HERE:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


trusted = cache(trust.trusted)  # reading the system's certificates takes a tenth of a second, so once for all


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(transport, "trusted", trusted)
    # A full collection of garbage, of use to a long-lived process only.
    monkeypatch.setattr(memory, "settle", lambda: None)


@pytest.fixture
def log() -> Iterator[LogCapture]:
    """What is logged meanwhile."""
    before = structlog.get_config()
    capture = LogCapture()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    yield capture
    structlog.configure(**before)


@pytest.fixture(scope="session", autouse=True)
def _tokeniser() -> None:
    """Loaded before any test, so that none has to wait for it within its time limit."""
    tokens.preload()
