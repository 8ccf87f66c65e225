"""What a compaction puts in the place of what leaves: notices, recaps, placeholders, and what is done where one of them can't be had."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from app.core.notes import CONTINUATION, is_note
from app.core.transcript import transcript
from app.errors import SummaryFailed
from app.request import Outcome
from tests.story import House, Talk, counted, policy, sent, texts, words

SUMMARIZE = policy(strategy="summarize")
FAILED = SummaryFailed("refused")


def read(house: House, job: int = -1) -> str:
    """What the summariser was shown."""
    return transcript(house.writer.jobs[job].items)


def more(talk: Talk, turns: int, tokens: int = 150) -> Talk:
    for n in range(turns):
        talk.answer().ask(f"More {n}. {words(tokens)}")
    return talk


# The recap


async def test_a_recap_has_its_frame_number_and_reference() -> None:
    outcome = await House("They met.").decide(Talk.of(10), SUMMARIZE)
    assert outcome.strategy == "summarize"
    assert texts(outcome)[0] == "\n".join(
        [
            "<compaction_summary>",
            "## Summary of the earlier conversation (compaction #1)",
            "They met.",
            "## Reference",
            f"The messages that this summary replaces can be read in full at: {outcome.archive}",
            "## Now",
            "The work goes on from here: the request that follows stands as it was asked; what it needs from before is above.",
            "</compaction_summary>",
        ]
    )
    assert texts(outcome)[1:] == ["And now?"]


@pytest.mark.parametrize("without", [{"archive_history": False}, {"include_archive_path_in_summary": False}])
async def test_a_recap_without_a_reference(without: dict[str, Any]) -> None:
    outcome = await House().decide(Talk.of(10), policy(strategy="summarize", **without))
    assert "Reference" not in texts(outcome)[0]
    assert bool(outcome.archive) == ("archive_history" not in without)


async def test_a_later_recap_builds_on_the_one_before() -> None:
    house = House("They met.", "They met and parted.")
    talk = Talk.of(10)
    await house.decide(talk, SUMMARIZE)
    outcome = await house.decide(more(talk, 10), SUMMARIZE)
    assert outcome.result == "compacted"
    assert "(compaction #2)" in texts(outcome)[0]
    first, *others = house.writer.jobs[1].items
    assert first.facts.note
    assert "They met." in first.parts[0].text
    assert [item.index for item in others] == list(range(20, len(talk.items) - 1))


async def test_the_pending_question_is_never_summarised() -> None:
    house = House()
    talk = Talk.of(10).ask("SECRET question?")
    outcome = await house.decide(talk, SUMMARIZE)
    assert "SECRET" not in read(house)
    assert "And now?" not in read(house)
    assert texts(outcome)[-2:] == ["And now?", "SECRET question?"]


async def test_neither_is_the_running_turn() -> None:
    house = House()
    talk = Talk.of(10).round(ident="running")
    outcome = await house.decide(talk, SUMMARIZE)
    assert "running" not in read(house)
    assert sent(outcome)[1:] == talk.items[20:]


async def test_the_summariser_reads_what_was_there_not_what_was_cleared() -> None:
    house = House()
    rules = policy(strategy="combined", keep_recent_tool_results=0)
    talk = Talk().ask("Go.").round(900, ident="one").answer().ask("More.").round(20).answer(words(900)).ask("And now?")
    outcome = await house.decide(talk, rules)
    assert outcome.strategy == "combined"
    assert words(900).strip() in read(house)
    assert "cleared by compaction" not in read(house)


async def test_a_recap_alone_is_never_summarised_again() -> None:
    """A long running turn behind a recap: old results are cleared instead, and the log says why."""
    house = House()
    talk = Talk.of(10)
    await house.decide(talk, SUMMARIZE)
    for n in range(6):
        talk.round(300, ident=f"r{n}")
    outcome = await house.decide(talk, SUMMARIZE)
    assert (outcome.result, outcome.strategy) == ("compacted", "tool_result_clearing")
    assert len(house.writer.jobs) == 1
    assert (
        "strategy_fell_back",
        {"strategy": "tool_result_clearing", "because": "nothing_to_summarize"},
    ) in house.witness.notes
    assert sent(outcome)[:2] == sent(await house.decide(Talk(*talk.items[:21]), SUMMARIZE))


async def test_a_turn_that_stays_too_long_pays_for_no_summary_per_request() -> None:
    house = House()
    talk = Talk.of(4).ask("Go.")
    for n in range(12):
        talk.round(300, ident=f"r{n}")
        await house.decide(talk, SUMMARIZE)
    assert len(house.writer.jobs) == 1


async def test_the_last_turns_are_kept_word_for_word() -> None:
    house = House()
    talk = Talk.of(10)
    outcome = await house.decide(talk, policy(strategy="summarize", keep_recent_turns=3))
    assert sent(outcome)[1:] == talk.items[-5:]


# protect_current_turn: false


async def test_a_recap_behind_the_providers_own_compaction_is_replayed() -> None:
    """An older request stays before that: its answer, which never had any thinking, is not the running turn's."""
    told = policy(strategy="summarize", summary_model="extractive", protect_current_turn=False)
    talk = Talk(
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
        {"role": "user", "content": "Second."},
        {"role": "assistant", "content": [{"type": "compaction", "content": "Two requests."}]},
        {"role": "user", "content": "Third."},
        form="anthropic-messages",
    )
    for number in range(6):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
        talk.items += [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, call]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": words(300)}],
            },
        ]
    house = House()
    outcome = await house.decide(talk, told)
    assert outcome.result == "compacted"
    assert sent(outcome)[:4] == talk.items[:4]
    again = await house.decide(talk, told)
    assert (again.result, again.body) == ("replayed", outcome.body)


async def test_a_running_turn_ends_on_the_continuation() -> None:
    house = House()
    talk = Talk.of(3).round(400).round(400)
    outcome = await house.decide(talk, policy(strategy="summarize", protect_current_turn=False))
    assert texts(outcome)[1:] == [CONTINUATION]
    assert "Result of" in read(house)
    talk.round(10, ident="next")
    after = await house.decide(talk, policy(strategy="summarize", protect_current_turn=False))
    assert (after.result, sent(after)) == ("replayed", [*sent(outcome), *talk.items[-2:]])


async def test_a_pending_question_is_repeated_word_for_word_and_once() -> None:
    outcome = await House().decide(Talk.of(10), policy(strategy="summarize", protect_current_turn=False))
    assert texts(outcome)[1:] == ["And now?"]


async def test_a_question_without_text_stays_as_it_is() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}
    talk = Talk(*Talk.of(10).items[:-1], picture)
    outcome = await House().decide(talk, policy(strategy="summarize", protect_current_turn=False))
    assert sent(outcome)[1:] == [picture]


# When there is no summary


@pytest.mark.parametrize(
    ("fallback", "strategy"),
    [("sliding_window", "sliding_window"), ("tool_result_clearing", "tool_result_clearing"), ("pass", "")],
)
async def test_a_failed_summary_has_a_fallback(fallback: str, strategy: str) -> None:
    house = House(FAILED)
    talk = Talk.of(6)
    talk.items[2:2] = Talk().ask("Go.").round(500).round(100).round(100).round(100).answer().items
    asked = talk.asked(policy(strategy="summarize", summary_fallback=fallback))
    outcome = await house.compactor.decide(asked)
    assert (outcome.result, outcome.strategy) == ("compacted" if strategy else "declined", strategy)
    assert outcome.reason == ("threshold" if strategy else "summary_failed")
    assert strategy or outcome.body is asked.opened.body
    assert ("summary_failed", {"reason": "refused", "fallback": fallback}) in house.witness.notes


async def test_a_failed_summary_can_be_made_without_a_model() -> None:
    house = House(FAILED)
    outcome = await house.decide(
        Talk.of(10), policy(strategy="summarize", summary_fallback="extractive", keep_user_messages=200)
    )
    assert (outcome.result, outcome.strategy) == ("compacted", "summarize")
    assert "Question 9." in texts(outcome)[0]
    assert is_note(texts(outcome)[0])
    assert len(house.writer.jobs) == 1


@pytest.mark.parametrize("strategy", ["summarize", "combined"])
async def test_where_no_model_is_wanted_none_is_asked(strategy: str) -> None:
    house = House()
    rules = policy(strategy=strategy, summary_model="extractive", keep_user_messages=200)
    one = await house.decide(talk := Talk.of(10), rules)
    assert (one.result, one.strategy) == ("compacted", strategy)
    assert "Question" in texts(one)[0]
    assert is_note(texts(one)[0])
    assert (await house.decide(more(talk, 10), rules)).result == "compacted"
    assert not house.writer.jobs


async def test_a_failed_stage_leaves_what_the_others_did() -> None:
    house = House(FAILED)
    talk = Talk.of(10)
    outcome = await house.decide(talk, policy(strategy="combined", target_threshold=1))
    assert (outcome.result, outcome.strategy) == ("compacted", "combined")
    assert sent(outcome)[1:] == talk.items[-5:]
    assert len(house.writer.jobs) == 1


async def test_after_a_failure_the_next_request_may_ask_again() -> None:
    house = House(FAILED, "They met.")
    rules = policy(strategy="summarize", summary_fallback="pass")
    talk = Talk.of(10)
    assert (await house.decide(talk, rules)).reason == "summary_failed"
    assert (await house.decide(talk, rules)).result == "compacted"


async def test_a_quarantined_prefix_is_not_summarised_again() -> None:
    house = House("They met.", "They met again.")
    other = House(store=house.store)
    talk = Talk.of(10)
    await house.compactor.reject(await house.decide(talk, SUMMARIZE))
    for replica in (house, other):
        assert (await replica.decide(talk, SUMMARIZE)).reason == "quarantined"
    assert (len(house.writer.jobs), len(other.writer.jobs)) == (1, 0)


# Long turns


def long_turn(rounds: int, tokens: int = 300) -> Talk:
    talk = Talk().ask("Do it.")
    for n in range(rounds):
        talk.round(tokens, ident=f"r{n}")
    return talk


FOLDS = policy(strategy="summarize", fold_rounds_above=1_200, keep_recent_tool_results=3)


async def test_a_turn_that_clearing_can_not_shorten_enough_is_folded() -> None:
    house = House("Five files were read.")
    talk = long_turn(12)
    outcome = await house.decide(talk, policy(strategy="summarize", fold_rounds_above=400, keep_recent_tool_results=3))
    assert (outcome.result, outcome.strategy, outcome.level) == ("compacted", "tool_result_clearing", 2)
    question, note, *rest = sent(outcome)
    assert question == talk.items[0]
    assert "Progress so far, the work is not finished (compaction #1)" in note["content"]
    assert "is still being worked on" in note["content"]
    assert is_note(note["content"])
    assert rest == talk.items[-len(rest) :]
    assert "Result of r0. word word" in read(house)


async def test_a_fold_goes_into_the_next_one() -> None:
    house = House("Five files were read.", "Nine files were read.")
    rules = policy(strategy="summarize", fold_rounds_above=400, keep_recent_tool_results=3)
    talk = long_turn(12)
    await house.decide(talk, rules)
    for n in range(12, 18):
        talk.round(300, ident=f"r{n}")
        outcome = await house.decide(talk, rules)
    assert outcome.result in ("compacted", "replayed")
    assert len(house.writer.jobs) >= 2
    assert [is_note(text) for text in texts(outcome) if text].count(True) == 1
    assert "Five files were read." in read(house, 1)
    assert sent(outcome)[0] == talk.items[0]


async def test_a_failed_fold_leaves_what_was_cleared() -> None:
    house = House(FAILED)
    rules = policy(strategy="summarize", fold_rounds_above=400, keep_recent_tool_results=3, summary_fallback="pass")
    outcome = await house.decide(long_turn(12), rules)
    assert (outcome.result, outcome.strategy) == ("compacted", "tool_result_clearing")
    assert not any(is_note(text) for text in texts(outcome) if text)


@pytest.mark.parametrize("strategy", ["sliding_window", "tool_result_clearing"])
async def test_a_strategy_without_a_model_folds_without_one(strategy: str) -> None:
    house = House()
    talk = long_turn(12)
    outcome = await house.decide(talk, policy(strategy=strategy, fold_rounds_above=400, keep_recent_tool_results=9))
    assert outcome.result == "compacted"
    assert sent(outcome)[0] == talk.items[0]
    assert "Progress so far" in texts(outcome)[1]
    assert not house.writer.jobs


async def test_below_the_limit_nothing_is_folded() -> None:
    house = House()
    outcome = await house.decide(long_turn(12), policy(strategy="summarize", fold_rounds_above=5_000))
    assert outcome.result == "compacted"
    assert not house.writer.jobs


# Clearing


async def test_a_placeholder_names_tool_size_and_archive() -> None:
    talk = long_turn(6, 400)
    outcome = await House().decide(talk, policy(strategy="tool_result_clearing"))
    size = len(talk.items[2]["content"])
    expected = f"[Tool result cleared by compaction: read, {size:,} bytes. It can be read at: {outcome.archive}]"
    assert [text for text in texts(outcome) if text and "cleared" in text] == [expected] * 3
    assert [item.get("tool_call_id") for item in sent(outcome)] == [item.get("tool_call_id") for item in talk.items]


async def test_a_placeholder_stays_as_it_is_when_more_is_cleared() -> None:
    house, rules = House(), policy(strategy="tool_result_clearing", clear_tool_inputs=True)
    talk = long_turn(6, 400)
    first = sent(await house.decide(talk, rules))
    for n in range(6, 12):
        talk.round(400, ident=f"r{n}")
    second = await house.decide(talk, rules)
    assert second.result == "compacted"
    assert sent(second)[:7] == first[:7]
    assert second.archive not in texts(second)[2]
    assert second.archive in texts(second)[8]


async def test_arguments_become_an_empty_object() -> None:
    outcome = await House().decide(long_turn(6, 400), policy(strategy="tool_result_clearing", clear_tool_inputs=True))
    given = [item["tool_calls"][0]["function"]["arguments"] for item in sent(outcome) if "tool_calls" in item]
    assert given[:3] == ["{}"] * 3
    assert [json.loads(text) for text in given[3:]] == [{"path": f"/r{n}"} for n in (3, 4, 5)]


# What still holds


def instructed(**fields: Any) -> Talk:
    """An Anthropic conversation with instructions given in mid-history."""
    items: list[dict[str, Any]] = []
    for n in range(10):
        items.append({"role": "user", "content": f"Question {n}. {words(150)}"})
        if n in (1, 3):
            items.append({"role": "system", "content": f"Rule {n}."})
        items.append({"role": "assistant", "content": "Fine."})
    return Talk(*items, {"role": "user", "content": "And now?"}, form="anthropic-messages", max_tokens=9, **fields)


@pytest.mark.parametrize("rules", [policy(), SUMMARIZE, policy(sliding_window_include_truncation_notice=False)])
async def test_instructions_that_leave_are_repeated(rules: Any) -> None:
    """A21. Also where no notice is wanted: they hold on."""
    house = House()
    talk = instructed()
    first = await house.decide(talk, rules)
    assert [line for line in re.findall(r"Rule \d\.", texts(first)[0])] == ["Rule 1.", "Rule 3."]
    assert is_note(texts(first)[0])
    for n in range(10):
        talk.items += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": f"{n} {words(150)}"}]
    second = await house.decide(talk, rules)
    assert second.result == "compacted"
    assert re.findall(r"Rule \d\.", texts(second)[0]) == ["Rule 1.", "Rule 3."]


async def test_without_a_notice_nothing_is_said() -> None:
    talk = Talk.of(10)
    outcome = await House().decide(talk, policy(sliding_window_include_truncation_notice=False))
    assert sent(outcome) == talk.items[-5:]


JSON_MODE = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize("rules", [policy(), SUMMARIZE, policy(sliding_window_include_truncation_notice=False)])
async def test_a_word_that_other_fields_want_to_see_is_said(rules: Any) -> None:
    """C29: in JSON mode the word has to stand somewhere."""
    talk = Talk.of(10, **JSON_MODE)
    talk.items[0]["content"] = "Answer in JSON. " + talk.items[0]["content"]
    outcome = await House().decide(talk, rules)
    assert "Answer in JSON." in texts(outcome)[0]
    assert is_note(texts(outcome)[0])


async def test_it_is_not_said_where_it_stands_already() -> None:
    talk = Talk({"role": "system", "content": "Reply with json."}, *Talk.of(10).items, **JSON_MODE)
    assert "JSON" not in (await House().decide(talk, policy())).body.decode().partition('"messages"')[2]
    assert "JSON" not in (await House().decide(Talk.of(10), policy())).body.decode()


async def test_it_is_said_in_responses_too() -> None:
    items = [{"role": role, "content": f"{n} {words(100)}"} for n in range(10) for role in ("user", "assistant")]
    fields = {"instructions": "Give JSON.", "text": {"format": {"type": "json_object"}}}
    talk = Talk(*items, {"role": "user", "content": "And now?"}, form="openai-responses", **fields)
    assert "Answer in JSON." in texts(await House().decide(talk, policy()))[0]


# Where two user items in a row are refused


async def alternating(house: House, talk: Talk, rules: Any) -> Outcome:
    outcome = await house.decide(talk, rules, quirks=("alternating_roles",))
    roles = [
        item["role"] for item in sent(outcome) if item["role"] in ("user", "assistant") and not item.get("tool_calls")
    ]
    assert all(a != b for a, b in pairwise(roles)), roles
    return outcome


@pytest.mark.parametrize("rules", [policy(), SUMMARIZE, policy(strategy="summarize", keep_recent_turns=2)])
async def test_the_note_goes_into_the_request_that_follows(rules: Any) -> None:
    house = House()
    talk = Talk.of(10)
    first = await alternating(house, talk, rules)
    kept = len(sent(first))
    assert first.result == "compacted"
    head = talk.items[-kept]["content"]
    assert texts(first)[0].endswith(f"\n\n{head}") or texts(first)[0] == head
    talk.answer().ask("And then?")
    again = await alternating(house, talk, rules)
    assert sent(again) == [*sent(first), *talk.items[-2:]]
    second = await alternating(house, more(talk, 10), rules)
    assert second.result == "compacted"
    assert texts(second)[0].count("compaction") >= 1
    if rules.strategy == "summarize":
        assert "What was said." in read(house)


async def test_a_window_that_opens_on_the_model_has_a_notice_of_its_own() -> None:
    talk = Talk.of(10).ask("And?")
    del talk.items[-2]
    outcome = await alternating(House(), talk, policy(keep_recent_messages=4))
    assert is_note(texts(outcome)[0])
    assert sent(outcome)[1:] == talk.items[-4:]


async def test_a_carried_word_does_not_swallow_the_question() -> None:
    house = House()
    talk = Talk.of(10, **JSON_MODE)
    outcome = await alternating(house, talk, policy(keep_recent_messages=1))
    assert texts(outcome)[0].endswith("And now?")
    assert not is_note(texts(outcome)[0])
    assert (await alternating(house, more(talk, 10), policy(keep_recent_messages=1))).result == "compacted"


async def test_a_folded_turn_ends_on_its_recap_alone() -> None:
    house = House()
    talk = Talk.of(3).round(400).round(400)
    outcome = await alternating(house, talk, policy(strategy="summarize", protect_current_turn=False))
    assert [is_note(text) for text in texts(outcome)] == [True]


async def test_rounds_are_not_folded_behind_the_question() -> None:
    outcome = await alternating(House(), long_turn(12), policy(strategy="summarize", fold_rounds_above=400))
    assert not any(is_note(text) for text in texts(outcome) if text)


# How much


async def test_the_target_is_on_the_providers_scale() -> None:
    """Reported tokens are twice the local ones here, so half as much may stay."""
    rules = policy(strategy="combined", trigger_threshold=4_000, target_threshold=2_000)
    house = House()
    talk = Talk().ask("Go.")
    for n in range(10):
        talk.round(200, ident=f"r{n}")
        before = await house.decide(talk, policy(compact_first_request=False, trigger_threshold=8_000))
        await house.compactor.settle(before, counted(talk) * 2)
    outcome = await house.decide(talk.answer().ask("And?"), rules)
    assert outcome.source == "usage"
    assert (outcome.result, outcome.strategy) == ("compacted", "combined")
    assert outcome.after <= 2_000
    local = await House().decide(talk, policy(strategy="combined", trigger_threshold=2_000, target_threshold=1_000))
    assert sent(local)[1:] == sent(outcome)[1:]


async def test_a_step_frees_a_good_share_of_what_is_too_much() -> None:
    """With the target out of reach every request is above the trigger: small steps would cost a cache each time."""
    talk = Talk().ask("A?").answer(words(500)).ask(words(4_000))
    assert (await House().decide(talk, policy(clear_at_least=1, keep_recent_messages=1))).reason == "gain_too_small"
    assert (await House().decide(talk, policy(keep_recent_messages=1))).result == "compacted"


async def test_the_same_request_gives_the_same_bytes() -> None:
    made = {re.sub(rb"_\d{8}T\d{6}Z_", b"", (await House().decide(Talk.of(10), SUMMARIZE)).body) for _ in range(3)}
    assert len(made) == 1
