"""A few hundred cases of the fuzzer for every run; the many are for `python -m tests.fuzz.fuzz_bodies`."""

from __future__ import annotations

import pytest

from tests.edge.wire import PATHS
from tests.fuzz.fuzz_bodies import run
from tests.fuzz.seeds import seeds
from tests.strict import VIOLATIONS

COUNT = 300


@pytest.mark.parametrize("form", PATHS)
def test_seeds_are_what_the_provider_takes(form: str) -> None:
    """A fuzzer that spoils what was never good finds nothing."""
    for body in seeds(form):
        assert VIOLATIONS[form](body, model=body.get("model", "gemini-2.5-flash")) == []


@pytest.mark.parametrize("form", PATHS)
async def test_spoiled_bodies_break_no_promise(form: str) -> None:
    broken, outcomes = await run(form, range(COUNT))
    assert broken == {}
    assert outcomes["(changed and judged)"] > COUNT / 3
    assert {"compacted threshold", "replayed checkpoint", "passed not_json", "passed bad_coding"} <= outcomes.keys()
    assert not [outcome for outcome in outcomes if outcome.startswith("fault")]
