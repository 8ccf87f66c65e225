"""The tokeniser is loaded before any test, so that none has to wait for it within its time limit."""

from __future__ import annotations

import pytest

from app.core import tokens
from app.edge import memory


@pytest.fixture(scope="session", autouse=True)
def _tokeniser() -> None:
    tokens.preload()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(memory, "settle", lambda: None)
