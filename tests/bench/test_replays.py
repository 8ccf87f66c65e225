"""Conversations in another format's words are sound ones, and what is played of them finds faults where there are some."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from app.core.view import Facts
from app.formats import FORMATS
from tests.contract.scripts import WRITERS, script
from tests.strict import VIOLATIONS


def requests(form: str, seed: int, rounds: int = 12) -> list[Any]:
    """A scripted conversation, request by request."""
    from estimates import PATHS, Request

    path, model = PATHS[form]
    head: dict[str, Any] = {"model": model} if model else {}
    history = FORMATS[form].history
    return [
        Request(path, {**head, history: [item for _, item in WRITERS[form](asked)]})
        for asked in script(seed, turns=4, rounds=rounds, plain=True).requests()
    ]


@pytest.mark.parametrize("own", FORMATS)
def test_all_formats_say_the_same(own: str) -> None:
    from replays import everywhere

    for seed in range(6):
        given = requests(own, seed)
        for name, what, found in everywhere([("x", given)]):
            assert name == "x"
            other = next(form for form in FORMATS.values() if form.target(found[-1].path))
            assert len(found) == len(given)
            for request, before in zip(found, given, strict=True):
                faults = {one.rule for one in VIOLATIONS[other.name](request.body)}
                assert not faults or "native" in what, faults
                facts = [other.facts(item) for item in request.body[other.history]]
                assert _shape(facts) == _shape([FORMATS[own].facts(item) for item in before.body[FORMATS[own].history]])
            for shorter, longer in itertools.pairwise(found):
                items = shorter.body[other.history]
                assert longer.body[other.history][: len(items)] == items


def _shape(facts: list[Facts]) -> tuple[int, list[str], int]:
    calls = [call.tool for fact in facts for call in fact.calls]
    return sum(fact.opens_turn for fact in facts), calls, sum(len(fact.results) for fact in facts)


def test_what_is_broken_is_mended() -> None:
    from wordings import rewritten

    lost = [
        {"role": "assistant", "content": "I begin."},
        {"role": "tool", "tool_call_id": "z", "content": "whose?"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "not json"}}]},
        {"role": "user", "content": "Never mind."},
    ]
    for other in FORMATS:
        items, bounds = rewritten("openai-chat", lost, other)
        assert bounds[-1] == len(items)
        facts = [FORMATS[other].facts(item) for item in items]
        assert _shape(facts) == (2, ["f"], 1)


async def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from replays import Player, Tally

    given = requests("openai-chat", 3, rounds=30)
    sound, tally = Tally(), Tally()
    await Player().play("x", given, "tool_result_clearing", sound)
    assert (sound.rejected, sound.unstable) == (0, 0)
    assert sound.compactions > 0
    asked = [len(request.body["messages"]) for request in given]

    def picky(body: dict[str, Any]) -> list[Any]:
        return [type("Fault", (), {"rule": "C0"})] if "compaction" in str(body) else []

    monkeypatch.setitem(VIOLATIONS, "openai-chat", picky)
    await Player().play("x", given, "tool_result_clearing", tally)
    assert 0 < tally.rejected <= len(asked)


def test_histories_are_chained_by_fingerprint() -> None:
    from replays import chained

    given = requests("anthropic-messages", 1)
    assert chained(given) == (len(given) - 1, len(given) - 1)
    given[-1].body["messages"][1] = {"role": "assistant", "content": "I never said that."}
    assert chained(given) == (len(given) - 2, len(given) - 1)
