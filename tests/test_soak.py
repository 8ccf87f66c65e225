"""The soak itself, for some seconds: it runs, finds nothing wrong, and would find what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import soak
from tests.redis_server import needed_binary


async def test_some_seconds_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed_binary()
    monkeypatch.setattr(soak, "SAMPLE", 1.0)
    monkeypatch.setattr(soak, "KILL", 2.0)
    monkeypatch.setattr(soak, "RESTART", 3.0)
    monkeypatch.setattr(soak, "REST", 6.0)
    assert await soak.soak(0.1, 4, 50, 7, tmp_path) == []
    told = capsys.readouterr().out
    assert "compacted threshold" in told
    assert "1 kills" in told
