"""deploy/systemd/compactd.service: systemd understands it, what it says holds in compactd, and a signal reaches the first process alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import load

FILE = Path(__file__).parents[2] / "deploy/systemd/compactd.service"
UNIT = dict(re.findall(r"^(\w+)=(.*)$", FILE.read_text(), re.MULTILINE))
ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd")
def test_systemd_understands_it(tmp_path: Path) -> None:
    unit = tmp_path / FILE.name
    unit.write_text(FILE.read_text().replace("/opt/compactd/.venv/bin/compactd", sys.executable))
    assert ANALYZE
    said = subprocess.run([ANALYZE, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (said.returncode, [line for line in said.stderr.splitlines() if FILE.name in line]) == (0, [])


def test_what_it_says_holds() -> None:
    environment = dict(entry.split("=", 1) for entry in UNIT["Environment"].split())
    del environment["COMPACTD_CONFIG"]
    settings = load(None, environment)
    assert settings.store.url == f"sqlite:///{UNIT['WorkingDirectory']}/compactd.db"
    assert UNIT["WorkingDirectory"] == f"/var/lib/{UNIT['StateDirectory']}"
    assert int(UNIT["TimeoutStopSec"]) == settings.limits.drain_seconds + 10
    assert int(UNIT["LimitNOFILE"]) > 2 * settings.limits.max_inflight
    assert UNIT["KillMode"] == "mixed"
