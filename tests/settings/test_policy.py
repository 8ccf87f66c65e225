"""A policy's thresholds in tokens, its summariser, its instructions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.settings import Policy

WINDOW = 200_000


def test_defaults_in_tokens() -> None:
    policy = Policy()
    assert policy.trigger_tokens(WINDOW) == 160_000
    assert policy.target_tokens(WINDOW) == 100_000
    assert policy.clear_at_least_tokens(WINDOW) == 10_000
    assert policy.fold_tokens(WINDOW) == 190_000
    assert policy.prepare_tokens(WINDOW) is policy.idle_tokens(WINDOW) is None


def test_shares_are_rounded_down_and_decimals_do_no_harm() -> None:
    policy = Policy(trigger_threshold=0.29, target_threshold=0.07, idle_threshold=0.2)
    assert (policy.trigger_tokens(100), policy.target_tokens(100), policy.idle_tokens(99)) == (29, 7, 19)
    assert Policy(trigger_threshold=1.0).trigger_tokens(WINDOW) == WINDOW
    assert Policy(trigger_threshold=1, target_threshold=1).trigger_tokens(WINDOW) == 1


def test_tokens_are_taken_as_they_are() -> None:
    policy = Policy(
        trigger_threshold=3000,
        target_threshold=1000,
        clear_at_least=500,
        fold_rounds_above=None,
        prepare_threshold=2000,
    )
    assert policy.trigger_tokens(WINDOW) == 3000
    assert policy.target_tokens(WINDOW) == 1000
    assert policy.clear_at_least_tokens(WINDOW) == 500
    assert policy.fold_tokens(WINDOW) is None
    assert policy.prepare_tokens(WINDOW) == 2000


def test_default_shares_next_to_a_small_trigger_in_tokens_still_let_it_compact() -> None:
    policy = Policy(trigger_threshold=2000)
    assert policy.target_tokens(WINDOW) == 1000
    assert policy.clear_at_least_tokens(WINDOW) == 1000
    assert Policy(trigger_threshold=150_000).target_tokens(WINDOW) == 100_000
    assert Policy(trigger_threshold=0.1, target_threshold=50_000).target_tokens(WINDOW) == 20_000


@pytest.mark.parametrize("nothing", [0, 0.0, "0"])
def test_any_gain(nothing: float) -> None:
    assert Policy(clear_at_least=nothing).clear_at_least_tokens(WINDOW) == 1


thresholds = st.one_of(st.integers(1, 400_000), st.floats(0.001, 1.0))


@given(thresholds, thresholds, st.one_of(st.just(0), thresholds), st.integers(1, 2_000_000))
def test_the_target_never_lies_above_the_trigger(trigger: float, target: float, gain: float, window: int) -> None:
    try:
        policy = Policy(trigger_threshold=trigger, target_threshold=target, clear_at_least=gain)
    except ValidationError:
        assert type(trigger) is type(target)
        assert target > trigger
        return
    assert 1 <= policy.target_tokens(window) <= policy.trigger_tokens(window)
    assert policy.clear_at_least_tokens(window) >= 1


@pytest.mark.parametrize(
    ("summary_model", "target"),
    [
        (None, (None, None)),
        ("gpt-mini", (None, "gpt-mini")),
        ("openai:gpt-mini", ("openai", "gpt-mini")),
        ("openai:ft:gpt:x", ("openai", "ft:gpt:x")),
        ("llama3:8b", (None, "llama3:8b")),
        ("openai", (None, "openai")),
    ],
)
def test_summary_target(summary_model: str | None, target: tuple[str | None, str | None]) -> None:
    assert Policy(summary_model=summary_model).summary_target({"openai": object()}) == target


def test_summary_instructions_are_read_once_and_inline_ones_win(tmp_path: Path) -> None:
    file = tmp_path / "prompt.md"
    file.write_text("from the file", encoding="utf-8")
    policy = Policy(summary_prompt_file=file)
    both = Policy(summary_prompt_file=file, summary_prompt="inline")
    file.unlink()
    assert (policy.summary_instructions, both.summary_instructions) == ("from the file", "inline")
    assert Policy().summary_instructions is None


@pytest.mark.parametrize(("content", "fault"), [(b" \n", "the file is empty"), (b"\xff", "the file is not UTF-8")])
def test_summary_prompt_file_must_hold_text(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "prompt.md"
    file.write_bytes(content)
    with pytest.raises(ValidationError, match=fault):
        Policy(summary_prompt_file=file)


def test_policies_are_frozen_and_strict() -> None:
    with pytest.raises(ValidationError):
        Policy().mode = "off"
    with pytest.raises(ValidationError):
        Policy(trigger=1)  # type: ignore[call-arg]
