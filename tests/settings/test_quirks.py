"""Quirks of models and upstreams: names that mean something, facts with a number that can be reckoned with, all faults at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import registry
from app.registry import Registry
from app.settings import Upstream, quirks

from .conftest import Faults, Load

WRONG = [
    ("token_ratio=abc", "must be token_ratio= and a number above 0, for example token_ratio=1.5"),
    ("token_ratio", "must be token_ratio= and a number above 0"),
    ("token_ratio=", "must be token_ratio= and a number above 0"),
    ("token_ratio=0", "must be token_ratio= and a number above 0"),
    ("token_ratio=-1", "must be token_ratio= and a number above 0"),
    ("token_ratio=nan", "must be token_ratio= and a number above 0"),
    ("token_ratio=1e999", "must be token_ratio= and a number above 0"),
    ("token_ratio=1_0", "must be token_ratio= and a number above 0"),
    ("token_ratio= 1", "must be token_ratio= and a number above 0"),
    ("cache_min=x", "must be cache_min= and a number of 0 or more"),
    (
        "alternating_role",
        "is no quirk; did you mean alternating_roles?",
    ),
    ("token_ration=1.5", "is no quirk; did you mean token_ratio?"),
    ("-zzz", "is no quirk; there are"),
    ("thinks=1", "takes no value; write thinks"),
    ("-token_ratio=1", "takes no value; write -token_ratio"),
]


@pytest.mark.parametrize(("quirk", "fault"), WRONG)
@pytest.mark.parametrize("place", ["models", "upstreams"])
def test_a_wrong_quirk_is_refused_at_start(quirk: str, fault: str, place: str, faults: Faults) -> None:
    if place == "models":
        (told,) = faults(f"models:\n  x:\n    quirks:\n      - thinks\n      - {json.dumps(quirk)}")
        assert told.startswith(f"compactd.yaml:5: models.x.quirks[1]: {fault}")
    else:
        provider = f"{{base_url: https://x, formats: [gemini], quirks: [{json.dumps(quirk)}]}}"
        (told,) = faults(f"upstreams:\n  x: {provider}")
        assert told.startswith(f"compactd.yaml:2: upstreams.x.quirks[0]: {fault}")


def test_all_wrong_quirks_are_told_at_once(faults: Faults) -> None:
    told = faults("models:\n  x: {quirks: [nope, token_ratio=abc]}\n  y: {quirks: [thinks=1]}\nlog: {level: loud}")
    assert len(told) == 4


def test_right_quirks(loaded: Load) -> None:
    given = [*quirks.WORDS, *(f"{name}=1.5" for name in quirks.FACTS), "-thinks", "-cache_min", "image_tokens=0"]
    assert loaded(f"models:\n  x: {{quirks: {json.dumps(given)}}}").models["x"].quirks == tuple(given)


def test_every_quirk_of_the_shipped_table_may_be_configured() -> None:
    data = json.loads(Path(registry.__file__).with_name("models.json").read_bytes())
    explained = {part.partition("=") for key in data["quirks"] for part in key.split(", ")}
    assert {name for name, equals, _ in explained if equals} == set(quirks.FACTS)
    assert {name for name, equals, _ in explained if not equals} == set(quirks.WORDS) - {"stream_only"}


def test_an_upstreams_fact_takes_the_place_of_the_models() -> None:
    upstream = Upstream(base_url="https://x", formats=("gemini",), quirks=("token_ratio=2", "-no_sampling"))
    model = Registry({}, print).lookup("claude-opus-4-7")
    assert (model.fact("token_ratio", 1), "no_sampling" in model.quirks) == (1.5, True)
    there = model.with_quirks(upstream.quirks)
    assert (there.fact("token_ratio", 1), "no_sampling" in there.quirks) == (2.0, False)
