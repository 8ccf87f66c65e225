"""Every file of the app has a test file of its own, in the same place under tests/; a short list says which are tested elsewhere, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
APP, TESTS = ROOT / "app", ROOT / "tests"

ELSEWHERE: dict[str, str] = {}
"""file of the app -> the test file that tests it, both as paths from their folder"""


def sources() -> list[str]:
    return sorted(str(path.relative_to(APP)) for path in APP.rglob("*.py") if path.name != "__init__.py")


def test_file(source: str) -> Path:
    path = Path(source)
    return TESTS / (ELSEWHERE.get(source) or path.with_name(f"test_{path.name}"))


@pytest.mark.parametrize("source", sources())
def test_a_source_has_its_test(source: str) -> None:
    found = test_file(source)
    assert found.is_file(), f"app/{source} is tested by no tests/{found.relative_to(TESTS)}"
    assert "def test_" in found.read_text(encoding="utf-8")


def test_the_list_is_short_and_true() -> None:
    assert set(ELSEWHERE) <= set(sources())
    assert len(ELSEWHERE) <= 20
    for source in ELSEWHERE:
        own = Path(source).with_name(f"test_{Path(source).name}")
        assert not (TESTS / own).exists(), f"{source} has a test file of its own"
