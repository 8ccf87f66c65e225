"""One prefix, several continuations: a checkpoint is found by its prefix alone, so what comes behind it may be another story.

A tool call without an answer, long ago, leaves with its group. The same prefix with the answer right behind it must not be given that cut:
the answer would stand without its call (A4, C2, R2, G4).
"""

from __future__ import annotations

import json

import pytest

from tests import story
from tests.edge.talks import MODELS, Talk, compacted
from tests.edge.wire import compactd, configured
from tests.strict import VIOLATIONS
from tests.strict.server import StrictProvider

STRATEGIES = [
    {"strategy": "sliding_window", "keep_recent_messages": 1},
    {"strategy": "summarize", "summary_model": "extractive", "keep_recent_messages": 1},
    {"strategy": "combined", "summary_model": "extractive", "keep_recent_messages": 1, "keep_recent_tool_results": 0},
]
LOW = {"name": "low", "trigger_threshold": 2_000, "target_threshold": 500, "clear_at_least": 0}


def prefix(form: str) -> Talk:
    """Ends with a call that is yet to be answered."""
    return Talk(form).ask("Read all of it.").rounds(10).call("call_10")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("form", MODELS)
@pytest.mark.parametrize("policy", STRATEGIES, ids=lambda policy: policy["strategy"])
async def test_answer_that_one_branch_has_and_the_other_has_not(form: str, policy: dict[str, object]) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW | policy]), patience=20) as proxy:
        broken = prefix(form).ask("Never mind. What do you know?")
        for _ in range(2):
            await proxy.ask(broken.request())
        whole = prefix(form).result("call_10", "the end").say("Done.").ask("What do you know?")
        asked = len(provider.requests)
        for _ in range(3):
            assert (await proxy.ask(whole.request())).status == 200
        seen = provider.requests[asked:]
        assert [one.violations for one in seen] == [[]] * 3
        assert compacted(seen[-1].body)
        assert seen[1].raw == seen[2].raw


def thinking(items: int, last: bool) -> story.Talk:
    """A run of so many rounds in one turn, each begun with a thought, the `last` one perhaps not."""
    talk = story.Talk(
        form="anthropic-messages", model="claude-sonnet-4-5", max_tokens=4096, thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[{"name": "read", "input_schema": {"type": "object"}}],
    ).ask("Read all of it.")  # fmt: skip
    for number in range(items):
        thought = {"type": "thinking", "thinking": "Hm. " * 20, "signature": f"sig{number}" * 20}
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": story.words(150, f"line{number}")}
        thinks = number + 1 < items or last
        talk.items.append({"role": "assistant", "content": [thought, use] if thinks else [use]})
        talk.items.append({"role": "user", "content": [result]})
    return talk


async def test_fold_up_to_a_thought_does_not_fit_where_none_follows() -> None:
    """Under manual thinking a turn begins with its thought (A30)."""
    house, rules = (
        story.House(),
        story.policy(
            strategy="combined", summary_model="extractive", fold_rounds_above=700, keep_recent_tool_results=1
        ),
    )
    first = await house.decide(thinking(6, last=True), rules)
    assert first.result == "compacted"
    assert story.sent(first)[2]["content"][0]["type"] == "thinking"
    other = thinking(6, last=False)
    assert VIOLATIONS[other.form](json.loads(other.body), model="claude-sonnet-4-5") == []
    outcomes = [await house.decide(other, rules) for _ in range(3)]
    for outcome in outcomes:
        assert VIOLATIONS[other.form](json.loads(outcome.body), model="claude-sonnet-4-5") == []
    assert [outcome.result for outcome in outcomes] == ["compacted", "replayed", "replayed"]
    assert outcomes[0].body == outcomes[1].body == outcomes[2].body


async def test_no_fold_ends_where_a_thought_is_not_the_first_thing() -> None:
    """The turn would begin there then (A30)."""
    talk = thinking(6, last=True)
    for at in (5, 7):
        thought, use = talk.items[at]["content"]
        talk.items[at]["content"] = [{"type": "text", "text": "Well."}, thought, use]
    assert VIOLATIONS[talk.form](json.loads(talk.body), model="claude-sonnet-4-5") == []
    for target in (1_900, 1_700, 1_500, 1_300, 1_100):
        rules = story.policy(
            strategy="tool_result_clearing", keep_recent_tool_results=100, trigger_threshold=2_000, target_threshold=target,
            fold_rounds_above=2_000,
        )  # fmt: skip
        outcome = await story.House().decide(talk, rules)
        assert outcome.result == "compacted"
        assert VIOLATIONS[talk.form](json.loads(outcome.body), model="claude-sonnet-4-5") == []


async def test_cut_inside_what_is_covered_is_kept_as_well() -> None:
    """No second checkpoint can be kept for the very prefix that one is kept for: the new one reaches an item further."""
    house, talk = story.House(), story.Talk().ask("Read all of it.")
    for _ in range(10):
        talk.round()
    talk.answer().ask("And now?")
    clearing = story.policy(strategy="tool_result_clearing", keep_recent_tool_results=0)
    window = story.policy(trigger_threshold=200, target_threshold=100, keep_recent_messages=9)
    cleared = await house.decide(talk, clearing)
    assert (cleared.result, len(story.sent(cleared))) == ("compacted", len(talk.items))
    first, *later = [await house.decide(talk, window) for _ in range(3)]
    assert (first.result, len(story.sent(first))) == ("compacted", 9)
    assert [(outcome.result, outcome.body) for outcome in later] == [("replayed", first.body)] * 2


async def test_cut_behind_a_call_that_a_standing_rule_took_out_takes_its_late_result_too() -> None:
    house, talk = story.House(), story.Talk.of(4)
    talk.answer().round(ident="late")
    result = talk.items.pop()
    talk.ask("Go on then.").answer("I wait.")
    talk.items.append(result)
    talk.answer("Patched.").ask("Again.")
    rules = story.policy(
        history_mode="messages_only", trigger_threshold=400, target_threshold=200, keep_recent_messages=3
    )
    first, *later = [await house.decide(talk, rules) for _ in range(3)]
    assert first.result == "compacted"
    assert [(outcome.result, outcome.body) for outcome in later] == [("replayed", first.body)] * 2


async def test_result_that_does_for_two_calls_of_one_id_stays_with_both() -> None:
    """By position the first call is never answered; this provider goes by ids and takes the second one's result for both (R1)."""

    def call(ident: str) -> dict[str, str]:
        return {"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}"}

    def result(ident: str) -> dict[str, str]:
        return {"type": "function_call_output", "call_id": ident, "output": story.words(200)}

    talk = story.Talk(form="openai-responses", model="gpt-4.1").ask("Look.")
    talk.items += [
        call("a"),
        call("c"),
        result("a"),
        call("b"),
        result("b"),
        call("c"),
        result("c"),
        call("d"),
        result("d"),
    ]
    talk.answer("Found it.").ask("Now explain it.")
    assert VIOLATIONS[talk.form](json.loads(talk.body), model="gpt-4.1") == []
    for rules in (
        story.policy(history_mode="messages_only", trigger_threshold=5_000),
        story.policy(keep_recent_messages=4, trigger_threshold=300, target_threshold=100),
        story.policy(keep_recent_messages=8, trigger_threshold=300, target_threshold=100),
    ):
        outcome = await story.House().decide(talk, rules)
        assert VIOLATIONS[talk.form](json.loads(outcome.body), model="gpt-4.1") == []
