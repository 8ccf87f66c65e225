"""The writers write what a strict provider takes, and all formats the same story."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.formats import FORMATS
from tests.contract.scripts import FIELDS, QUIRKS, WRITERS, few, script
from tests.strict import VIOLATIONS


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=few(40), deadline=None)
@given(seed=st.integers(0, 2**32), plain=st.booleans())
def test_a_strict_provider_takes_what_is_written(form: str, seed: int, plain: bool) -> None:
    for asked in script(seed, plain=plain).requests():
        if any(one.lost for turn in asked.turns for one in turn.rounds):
            return
        body = {**FIELDS[form], FORMATS[form].history: [item for _, item in WRITERS[form](asked)]}
        found = {violation.rule for violation in VIOLATIONS[form](body, quirks=QUIRKS.get(form, frozenset()))}
        assert not found - {
            "A6",
            "Q6",
            *(() if asked.signs else ("G11",)),
        }  # ids that come again, thoughts that DeepSeek would want


@settings(max_examples=few(40))
@given(seed=st.integers(0, 2**32))
def test_all_formats_tell_the_same_steps(seed: int) -> None:
    for asked in script(seed).requests():
        told = {form: [step for steps, _ in write(asked) for step in sorted(steps)] for form, write in WRITERS.items()}
        steps = {form: {step for step in list_ if "#" not in step and step != "system"} for form, list_ in told.items()}
        assert len({frozenset(found) for found in steps.values()}) == 1


def test_a_script_has_something_of_everything() -> None:
    scripts = [script(seed) for seed in range(300)]
    turns = [turn for one in scripts for turn in one.turns]
    rounds = [one for turn in turns for one in turn.rounds]
    assert any(turn.instructs for turn in turns)
    assert any(one.lost for one in rounds)
    assert any(one.thinks for one in rounds)
    assert any(len(one.calls) > 1 for one in rounds)
    assert any(
        len({call.id for one in turn.rounds for call in one.calls}) < sum(len(one.calls) for one in turn.rounds)
        for turn in turns
    )
    assert {one.ids for one in scripts} == {True, False}
