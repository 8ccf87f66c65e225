"""`make audit` fails for a known hole and for nothing else, and never claims to have asked where it could not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

FILE = Path(__file__).parents[2] / ".ci" / "audit.py"


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOUND = {"name": "a", "version": "1", "vulns": []}
HOLE = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "httpx", "skip_reason": "not found"}
LOCKED = httpx.__version__
GONE = {"id": "PYSEC-2", "fixed_in": ["1"], "withdrawn": "2026-01-01T00:00:00Z"}
OPEN = {"id": "PYSEC-3", "fixed_in": [], "withdrawn": None}


@pytest.fixture
def page(audit: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page of every project tells; a project has none while it is empty."""
    told: dict[str, Any] = {}
    answers = httpx.MockTransport(lambda _: httpx.Response(200 if told else 404, json=told))
    monkeypatch.setattr(audit.httpx, "Client", partial(httpx.Client, transport=answers))
    return told


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([SOUND, SOUND], 0, "2 packages asked about, 0 known holes\n"),
        ([SOUND, HOLE], 1, "b 2: PYSEC-1, mended in 3"),
        ([SOUND, UNKNOWN], 0, "1 packages asked about, 0 known holes; 1 could not be asked about"),
    ],
)
@pytest.mark.usefixtures("page")
def test_what_is_found_is_told(
    packages: list[dict[str, Any]], status: int, words: str, audit: ModuleType, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    said = subprocess.CompletedProcess([], 1, json.dumps({"dependencies": packages}), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    assert audit.main() == status
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "holes", "status", "words"),
    [
        (LOCKED, [GONE], 0, "1 packages asked about, 0 known holes\n"),
        (LOCKED, [OPEN], 1, f"httpx {LOCKED}: PYSEC-3, mended in no release yet"),
        ("99.0", [], 0, "0 packages asked about, 0 known holes; 1 could not be asked about"),
    ],
)
def test_the_page_of_a_project_tells_of_its_newest_release(
    version: str, holes: list[dict[str, Any]], status: int, words: str, audit: ModuleType, page: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    said = subprocess.CompletedProcess([], 0, json.dumps({"dependencies": [UNKNOWN]}), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    page.update(info={"version": version}, vulnerabilities=holes)
    assert audit.main() == status
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("said", ["", "Traceback", "{}", None])
def test_without_advisories_it_says_so(
    said: str | None, audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        if said is None:
            raise subprocess.TimeoutExpired("pip-audit", 1)
        return subprocess.CompletedProcess([], 1, said, "No route to host")

    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == 0
    assert capsys.readouterr().out.count("skipped, the advisories can't be reached") == 2
