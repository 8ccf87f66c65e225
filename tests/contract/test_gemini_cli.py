"""What Gemini CLI does to its own history between requests: a resume and a masking, each in the middle of a compacted session.

A resumed session sends every answer twice and no signatures; past some 50,000 tokens old outputs are replaced by a note of the client's
own. A checkpoint holds where the history still says the same, and is passed over where it does not; the provider never finds fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.request import Outcome
from tests.story import House, Talk, policy, sent, words
from tests.strict import VIOLATIONS

Item = dict[str, Any]
STRATEGIES = {
    "tool_result_clearing": {"keep_recent_tool_results": 2},
    "sliding_window": {"keep_recent_messages": 4},
    "combined": {"summary_model": "extractive", "keep_recent_messages": 4},
}
every = pytest.mark.parametrize("strategy", STRATEGIES)


def rounds(first: int, count: int) -> list[Item]:
    items: list[Item] = []
    for number in range(first, first + count):
        called = {"name": "shell", "args": {"command": f"make step{number}"}, "id": f"shell_{number}"}
        told = {"name": "shell", "id": f"shell_{number}", "response": {"output": f"Step {number}. {words(200)}"}}
        items.append({"role": "model", "parts": [{"functionCall": called, "thoughtSignature": "c2lnbmVk"}]})
        items.append({"role": "user", "parts": [{"functionResponse": told}]})
    return items


def asks(text: str) -> Item:
    return {"role": "user", "parts": [{"text": text}]}


def answers(text: str) -> Item:
    return {"role": "model", "parts": [{"text": text}]}


def resumed(items: list[Item]) -> list[Item]:
    """Every answer twice, no signature."""
    again = []
    for item in items:
        parts = [{key: value for key, value in part.items() if key != "thoughtSignature"} for part in item["parts"]]
        copies = [part for part in parts if "functionResponse" in part]
        again.append({**item, "parts": [*parts, *copies]})
    return again


def masked(items: list[Item], keep: int = 4) -> list[Item]:
    """The outputs but for the last few give way to a note of where they can be read."""
    carriers = [item for item in items if "functionResponse" in item["parts"][0]]
    old = [id(item) for item in carriers[:-keep]]

    def shown(item: Item) -> Item:
        if id(item) not in old:
            return item
        told = item["parts"][0]["functionResponse"]
        output = f"<masked>Step … the whole output is in /tmp/{told['id']}.txt</masked>"
        return {**item, "parts": [{"functionResponse": {**told, "response": {"output": output}}}]}

    return [shown(item) for item in items]


class Session:
    """Gemini CLI behind one compactd; `change` is done to its history before every request."""

    def __init__(self, strategy: str) -> None:
        self.house = House()
        self.rules = policy(strategy=strategy, trigger_threshold=2_500, target_threshold=1_200, **STRATEGIES[strategy])
        self.items: list[Item] = [asks("<session_context>here</session_context>"), answers("Ready.")]
        self.change: Callable[[list[Item]], list[Item]] = list

    async def ask(self, *items: Item) -> Outcome:
        self.items += items
        history = self.change(self.items)
        outcome = await self.house.decide(Talk(*history, form="gemini"), self.rules, session="cli")
        own, forwarded = ({"contents": contents} for contents in (history, sent(outcome)))
        new = {(one.rule, one.where) for one in VIOLATIONS["gemini"](forwarded)}
        assert new <= {(one.rule, one.where) for one in VIOLATIONS["gemini"](own)}
        assert outcome.result != "failed"
        assert self.house.witness.faults == []
        return outcome

    async def compacted(self) -> Outcome:
        """Two questions, and so much read for the second that the history was made shorter."""
        await self.ask(asks("Build it."))
        outcome = await self.ask(*rounds(0, 6), answers("Built."), asks("Test it."))
        for number in range(6, 14):
            outcome = await self.ask(*rounds(number, 1))
        assert outcome.result in ("compacted", "replayed")
        return outcome


@every
async def test_a_resumed_session_finds_its_checkpoint(strategy: str) -> None:
    session = Session(strategy)
    before = await session.compacted()
    covered = before.context.view.covered if before.context else 0
    session.change = resumed
    after = await session.ask(answers("Tested."), asks("And now?"))
    assert after.result in ("replayed", "compacted")
    assert after.context is not None
    assert after.context.checkpoint is not None
    assert after.context.checkpoint.covered >= covered
    assert len(sent(after)[0]["parts"]) == len(sent(before)[0]["parts"])
    again = await session.ask(*rounds(14, 1))
    assert again.result == ("compacted" if strategy == "tool_result_clearing" else "replayed")  # twice as much to clear
    if again.result == "replayed":
        assert sent(again)[: len(sent(after))] == sent(after)
    # What was cleared is so in both copies.
    for item in sent(after):
        told = [part["functionResponse"]["response"] for part in item["parts"] if "functionResponse" in part]
        assert len({json.dumps(one) for one in told}) <= 1


@every
async def test_a_masked_history_is_another_one(strategy: str) -> None:
    """Its checkpoint is passed over where it covers what was masked; what is made of it from then on is stable again."""
    session = Session(strategy)
    await session.compacted()
    session.change = masked
    after = await session.ask(answers("Tested."), asks("And now?"))
    kept = [piece for piece in after.context.view.pieces if isinstance(piece, int)] if after.context else []
    assert [sent(after)[-1], sent(after)[-2]] == [session.items[-1], session.items[-2]]
    assert kept
    for number in range(14, 22):
        # The client masks one more output with each request: the past changes every time.
        outcome = await session.ask(*rounds(number, 1))
    assert outcome.after <= outcome.before
    frozen = masked(session.items)
    session.change = lambda items: [*frozen, *items[len(frozen) :]]
    session.items.append(answers("All done."))
    first = await session.ask(asks("Once more."))
    second = await session.ask(answers("Yes."), asks("Thanks."))
    assert sent(second)[: len(sent(first))] == sent(first)


@every
async def test_a_resume_and_a_masking_together(strategy: str) -> None:
    session = Session(strategy)
    await session.compacted()
    session.change = lambda items: resumed(masked(items))
    first = await session.ask(answers("Tested."), asks("And now?"))
    session.change = lambda items: resumed(masked(items[:-2])) + items[-2:]
    second = await session.ask(answers("Yes."), asks("Thanks."))
    assert sent(second)[: len(sent(first))] == sent(first)
