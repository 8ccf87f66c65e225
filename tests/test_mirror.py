"""Every file of the app has a test file of its own, in the same place under tests/; a short list says which are tested elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
APP, TESTS = ROOT / "app", ROOT / "tests"

ELSEWHERE = {
    "edge/archives/": "edge/archives/test_archives.py",
    "edge/exchange.py": "edge/test_relay_bodies.py",
    "edge/memory.py": "edge/test_server.py",
    "edge/relay.py": "edge/test_relay_streams.py",
    "edge/stores/asking.py": "edge/stores/test_guarded.py",
    "edge/stores/redis_lists.py": "edge/stores/test_redis.py",
    "edge/stores/redis_records.py": "edge/stores/test_redis.py",
    "edge/stores/sqlite_file.py": "edge/stores/test_sqlite.py",
    "edge/stores/sqlite_rows.py": "edge/stores/test_sqlite.py",
    "errors.py": "test_compactor.py",
    "own/": "test_own_strategy.py",
    "ports.py": "contract/test_stores.py",
    "records.py": "contract/test_stores.py",
    "request.py": "test_compactor.py",
    "settings/broken.py": "settings/test_faults.py",
    "settings/document.py": "settings/test_faults.py",
    "settings/environment.py": "settings/test_load.py",
    "settings/layers.py": "settings/test_load.py",
    "settings/match.py": "settings/test_settings.py",
    "settings/options.py": "settings/test_load.py",
    "settings/rules.py": "settings/test_faults.py",
    "settings/sections.py": "settings/test_load.py",
    "settings/schema.py": "settings/test_reference.py",
    "settings/values.py": "settings/test_faults.py",
    "steps/attempt.py": "steps/test_rewriting.py",
    "steps/coverage.py": "steps/test_rewriting.py",
    "steps/earlier_turns.py": "steps/test_shaping.py",
    "steps/eligibility.py": "test_compactor.py",
    "steps/outcomes.py": "test_compactor.py",
    "steps/standing.py": "steps/test_shaping.py",
    "steps/viewing.py": "test_compactor.py",
    "strategies/base.py": "contract/test_agreement.py",
    "strategies/llm_compactor.py": "test_own_strategy.py",
}
"""file of the app, or a folder of it -> the test file that tests it, both as paths from their top"""


def sources() -> list[str]:
    return sorted(str(path.relative_to(APP)) for path in APP.rglob("*.py") if path.name != "__init__.py")


def own(source: str) -> str:
    """Where a source's test belongs."""
    path = Path(source)
    return str(path.with_name(f"test_{path.name}"))


def listed(source: str) -> str | None:
    folder = f"{Path(source).parent}/"
    return ELSEWHERE.get(source) or ELSEWHERE.get(folder)


@pytest.mark.parametrize("source", sources())
def test_a_source_has_its_test(source: str) -> None:
    found = TESTS / (listed(source) or own(source))
    assert found.is_file(), f"app/{source} is tested by no tests/{found.relative_to(TESTS)}"
    assert "def test_" in found.read_text(encoding="utf-8")


@pytest.mark.parametrize("listed", ELSEWHERE)
def test_the_list_is_true(listed: str) -> None:
    """What has a test file of its own, or is gone, has no place in it."""
    assert (APP / listed).exists()
    assert listed.endswith("/") or not (TESTS / own(listed)).exists()
