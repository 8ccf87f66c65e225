from __future__ import annotations

from typing import Any

import pytest

from app.edge.outline import outline
from app.settings import Settings


def told(**sections: Any) -> list[str]:
    return list(outline(Settings(**sections)))


def test_the_defaults() -> None:
    lines = told()
    assert lines[0] == "store: sqlite:///data/compactd.db"
    assert "upstream anthropic: https://api.anthropic.com (anthropic-messages)" in lines
    assert lines[-2:] == [
        "policy default: summarize, mode on, from 80% of the window down to 50% of the window",
        "  summaries: the request's own model",
    ]


def test_what_is_allowed_but_rarely_meant() -> None:
    lines = told(policies=[], listen={"workers": 2}, store={"url": "memory://"})
    assert lines[0] == "store: memory:// (each worker has one of its own)"
    assert lines[-1] == "no policy: every request passes untouched"


def test_a_password_is_masked() -> None:
    assert "secret" not in told(store={"url": "redis://:secret@h:1/0"})[0]


def test_which_thresholds_are_tokens() -> None:
    [line, _] = told(policies=[{"name": "own", "trigger_threshold": 80_000, "target_threshold": 0.25}])[-2:]
    assert line.endswith("from 80,000 tokens down to 25% of the window (or of the trigger, where that is less)")


@pytest.mark.parametrize(
    ("policy", "who"),
    [
        ({"summary_model": "extractive"}, "without a model"),
        ({"strategy": "combined"}, "the request's own model"),
        ({"summary_model": "claude-haiku-4-5"}, "claude-haiku-4-5 of the request's own upstream"),
        ({"summary_model": "opnai:small"}, "opnai:small of the request's own upstream"),
        ({"summary_model": "gemini:small"}, "small of upstream gemini, for requests that go there (it has no api_key)"),
        ({"strategy": "sliding_window"}, ""),
    ],
)
def test_who_writes_summaries(policy: dict[str, str], who: str) -> None:
    lines = told(policies=[policy])
    assert [line for line in lines if "summaries" in line] == ([f"  summaries: {who}"] if who else [])
