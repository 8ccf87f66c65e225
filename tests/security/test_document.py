"""docs/security.md names a test behind each promise: all of them exist, and so do the options that it speaks of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.settings import Settings, schema

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))
PROMISES = 30


def test_it_names_its_tests() -> None:
    assert len(TESTS) > PROMISES


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_test_that_it_names_exists(file: str, name: str) -> None:
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\(", source), f"docs/security.md names {file}::{name}"


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`(app/[\w/]+\.py)`", PAGE))))
def test_a_place_that_it_names_exists(file: str) -> None:
    assert (ROOT / file).is_file()


def test_the_options_that_it_names_exist() -> None:
    sections = "|".join(Settings.model_fields)
    named = set(re.findall(rf"`((?:{sections})\.\w+)(?:: \w+)?`", PAGE))
    known = {".".join(path[:2]) for path, _ in schema.options()}
    assert named
    assert named - known == set()
