"""Standing rules: what earlier turns still show, and how long a result may be.

Tried on growing conversations in all formats, and judged by the strict provider, which knows nothing of compactd.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from app.core import tokens
from app.formats import FORMATS
from app.request import Outcome
from app.settings import Policy
from app.steps import archiving
from app.steps.eligibility import MAX_REJECTIONS
from tests.story import BASE, House, Item, Talk, policy, sent, words
from tests.strict import VIOLATIONS
from tests.strict.openai_responses import reasoning_pairs

MODES = ["no_reasoning", "no_tool_results", "compact_tool_results", "messages_only"]
EVERY_MODE = pytest.mark.parametrize("mode", MODES)
EVERY_FORM = pytest.mark.parametrize("form", FORMATS)
THOUGHT = "I wonder about this."
PICTURE = "iVBORw0KGgoAAAANSUhEUg=="
FIELDS: dict[str, Item] = {
    "openai-chat": {}, "gemini": {}, "openai-responses": {"store": False},
    "anthropic-messages": {
        "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    },
}  # fmt: skip


def standing(shown: str = "full", **more: Any) -> Policy:
    """Nothing but standing rules."""
    return policy(history_mode=shown, trigger_threshold=1.0, target_threshold=0.5, **more)


# A model and its user, in every format


class Scene:
    """Writes turns in a format; every step gives what is added, and a request may be made after each."""

    def __init__(self, form: str, seed: int = 0) -> None:
        self.form, self.random, self.number = form, Random(seed), 0

    def steps(self, turns: int) -> Iterator[tuple[bool, list[Item]]]:
        """(does a turn begin here, items up to the next request)."""
        before: list[Item] = []
        for turn in range(turns):
            yield True, [*before, self.asks(f"Question {turn}? {words(60)}")]
            for _ in range(self.random.randint(0, 3)):
                yield (
                    False,
                    self.round(self.random.randint(1, 2), self.random.random() < 0.7, self.random.random() < 0.4),
                )
            before = self.answers(self.random.random() < 0.5)

    def asks(self, text: str) -> Item:
        return (
            {"role": "user", "parts": [{"text": text}]} if self.form == "gemini" else {"role": "user", "content": text}
        )

    def answers(self, thinks: bool) -> list[Item]:
        self.number += 1
        text, thought = f"Answer {self.number}.", {"type": "thinking", "thinking": THOUGHT, "signature": "sig"}
        match self.form:
            case "gemini":
                shown = [{"text": THOUGHT, "thought": True}] * thinks
                return [{"role": "model", "parts": [*shown, {"text": text, "thoughtSignature": "sig"}]}]
            case "anthropic-messages":
                return [{"role": "assistant", "content": [*[thought] * thinks, {"type": "text", "text": text}]}]
            case "openai-responses":
                said = {"type": "message", "id": f"msg_{self.number}", "role": "assistant", "status": "completed"}
                return [
                    *self._reasons(thinks),
                    {**said, "content": [{"type": "output_text", "text": text, "annotations": []}]},
                ]
        return [{"role": "assistant", "content": text, **({"reasoning_content": THOUGHT} if thinks else {})}]

    def _reasons(self, thinks: bool) -> list[Item]:
        self.number += 1
        return [{"type": "reasoning", "id": f"rs_{self.number}", "summary": [], "encrypted_content": "enc"}] * thinks

    def round(self, calls: int, thinks: bool, speaks: bool) -> list[Item]:
        first, self.number = self.number + 1, self.number + calls
        numbers = range(first, first + calls)
        outputs = [f"Result {n}. " + f"line {n} of the file\n" * self.random.choice([1, 30, 300]) for n in numbers]
        thought = {"type": "thinking", "thinking": THOUGHT, "signature": "sig"}
        match self.form:
            case "gemini":
                shown: list[Item] = [{"text": THOUGHT, "thought": True}] * thinks + [{"text": "Looking."}] * speaks
                called = [{"functionCall": {"name": "read", "args": {"n": n}}} for n in numbers]
                called[0]["thoughtSignature"] = "sig"
                read = [{"functionResponse": {"name": "read", "response": {"output": text}}} for text in outputs]
                return [{"role": "model", "parts": [*shown, *called]}, {"role": "user", "parts": read}]
            case "anthropic-messages":
                uses = [{"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"n": n}} for n in numbers]
                said = [{"type": "text", "text": "Looking."}] * speaks
                results = [
                    {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
                    for n, text in zip(numbers, outputs, strict=True)
                ]
                return [
                    {"role": "assistant", "content": [*[thought] * thinks, *said, *uses]},
                    {"role": "user", "content": results},
                ]
            case "openai-responses":
                made = [
                    {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "read", "arguments": "{}"}
                    for n in numbers
                ]
                out = [
                    {"type": "function_call_output", "call_id": f"c{n}", "output": text}
                    for n, text in zip(numbers, outputs, strict=True)
                ]
                aloud = [*self.answers(False), *self._reasons(thinks)] if speaks else []
                return [*self._reasons(thinks), *aloud, *made, *out]
        asked = [{"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in numbers]
        mine = {"reasoning_content": THOUGHT} if thinks else {}
        said_aloud = "Looking." if speaks else None
        answers = [
            {"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in zip(numbers, outputs, strict=True)
        ]
        return [{"role": "assistant", "content": said_aloud, "tool_calls": asked, **mine}, *answers]


def grown(form: str, seed: int, turns: int = 4) -> Iterator[tuple[Talk, int, bool]]:
    """(the conversation at each request, where its current turn begins, does it begin with this request)."""
    talk, start = Talk(form=form, **FIELDS[form]), 0
    for opens, items in Scene(form, seed).steps(turns):
        talk.items += items
        start = len(talk.items) - 1 if opens else start
        yield talk, start, opens


def refusals(form: str, body: bytes, original: bytes) -> Counter[str]:
    more = {"came_with": reasoning_pairs(json.loads(original))} if form == "openai-responses" else {}
    return Counter(violation.rule for violation in VIOLATIONS[form](json.loads(body), **more))


def text_of(outcome: Outcome) -> str:
    return json.dumps(sent(outcome), ensure_ascii=False)


# What holds for every mode


@EVERY_FORM
@EVERY_MODE
@pytest.mark.parametrize("seed", range(6))
async def test_a_growing_conversation_is_valid_stable_and_its_current_turn_untouched(
    form: str, mode: str, seed: int
) -> None:
    house, rules = House(), standing(mode)
    last: list[Item] = []
    last_turn: list[Item] = []
    for talk, start, opens in grown(form, seed):
        outcome = await house.decide(talk, rules, window=1_000_000)
        assert house.witness.faults == []
        assert not refusals(form, outcome.body, talk.body) - refusals(form, talk.body, talk.body)
        kept = sent(outcome)
        current = len(talk.items) - start
        assert kept[-current:] == talk.items[start:]
        again = await House().decide(talk, rules, window=1_000_000)
        assert again.body == outcome.body
        # Within a turn nothing that was sent changes; when a turn begins, only the one before it does.
        assert kept[: len(last_turn if opens else last)] == (last_turn if opens else last)
        last = kept
        last_turn = kept[:-current] if opens else last_turn
    assert outcome.reason == "standing_rules"


@EVERY_MODE
async def test_a_conversation_with_nothing_to_take_out_passes_as_it_is(mode: str) -> None:
    talk = Talk.of(4, 50)
    outcome = await House().decide(talk, standing(mode, max_tool_result_tokens=10))
    assert (outcome.result, outcome.body) == ("passed", talk.body)


@EVERY_FORM
@EVERY_MODE
async def test_the_only_turn_is_never_touched(form: str, mode: str) -> None:
    scene = Scene(form)
    talk = Talk(
        scene.asks("Now?"), *scene.round(2, True, True), *scene.round(1, True, False), form=form, **FIELDS[form]
    )
    assert (await House().decide(talk, standing(mode))).body == talk.body


@EVERY_MODE
async def test_without_any_request_nothing_is_earlier(mode: str) -> None:
    talk = Talk().round(500).round(500)
    talk.items[0]["reasoning_content"] = THOUGHT
    assert (await House().decide(talk, standing(mode))).body == talk.body


@EVERY_MODE
async def test_observing_changes_nothing(mode: str) -> None:
    talk = Talk().ask("One?").round(500).answer().ask("Two?")
    talk.items[1]["reasoning_content"] = THOUGHT
    outcome = await House().decide(talk, standing(mode, mode="observe", max_tool_result_tokens=50))
    assert (outcome.result, outcome.body) == ("observed", talk.body)
    assert outcome.after < outcome.before


# What each mode shows


def earlier(form: str, *more: Item) -> tuple[Talk, int]:
    """A turn with a thoughtful round and answer, then a question."""
    scene = Scene(form, 1)
    scene.random.choice = lambda options: options[-1]  # type: ignore[method-assign,assignment]  # long results
    talk = Talk(
        scene.asks("One?"),
        *scene.round(2, True, True),
        *scene.answers(True),
        *more,
        scene.asks("Two?"),
        form=form,
        **FIELDS[form],
    )
    return talk, len(talk.items) - 1


@EVERY_FORM
async def test_no_reasoning(form: str) -> None:
    talk, _ = earlier(form)
    outcome = await House().decide(talk, standing("no_reasoning"))
    text = text_of(outcome)
    assert THOUGHT not in text
    assert "rs_" not in text
    assert "Looking." in text or form == "openai-responses"
    assert ("Result 1." in text) == ("Result 1." in json.dumps(talk.items))
    assert text.count("line ") == json.dumps(talk.items).count("line ")
    if form == "openai-responses":
        assert [item.get("id") for item in sent(outcome)] == [None] * len(sent(outcome))  # R12
    if form == "gemini":
        assert text.count("thoughtSignature") == json.dumps(talk.items).count("thoughtSignature")


async def test_reasoning_that_a_model_wants_back_stays_with_its_calls() -> None:
    talk, _ = earlier("openai-chat")
    outcome = await House().decide(talk, standing("no_reasoning"), quirks=["keeps_reasoning"])
    assert [bool(item.get("reasoning_content")) for item in sent(outcome) if item["role"] == "assistant"] == [
        True,
        False,
    ]
    talk, _ = earlier("openai-responses")
    outcome = await House().decide(talk, standing("no_reasoning"), quirks=["keeps_reasoning"])
    kinds = [item.get("type") for item in sent(outcome)]
    assert kinds.count("reasoning") == 1
    assert kinds[kinds.index("reasoning") + 1] == "function_call"


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"])
async def test_every_spelling_of_reasoning_goes_in_chat(key: str) -> None:
    talk = Talk().ask("One?").answer().ask("Two?")
    talk.items[1] = {
        key: [{"text": THOUGHT}] if key.endswith("s") else THOUGHT,
        "role": "assistant",
        "x": 1,
        "content": "Fine.",
    }
    outcome = await House().decide(talk, standing("no_reasoning"))
    assert sent(outcome)[1] == {"role": "assistant", "x": 1, "content": "Fine."}


async def test_what_held_nothing_but_reasoning_is_not_left_empty() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
    chat = Talk().ask("One?").answer().ask("Two?")
    chat.items[1]["content"] = [thinking]
    gemini = Talk({"role": "user", "parts": [{"text": "One?"}]}, form="gemini")
    gemini.items += [
        {"role": "model", "parts": [{"text": THOUGHT, "thought": True}]},
        {"role": "user", "parts": [{"text": "Two?"}]},
    ]
    for talk in (chat, gemini):
        outcome = await House().decide(talk, standing("no_reasoning"))
        assert THOUGHT not in text_of(outcome)
        assert "[Reasoning removed by compaction.]" in text_of(outcome)
        assert not refusals(talk.form, outcome.body, talk.body)


async def test_reasoning_stays_where_what_it_led_to_can_not_be_without_its_id() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    reasons = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"}
    talk = Talk({"role": "user", "content": "One?"}, reasons, search, form="openai-responses", store=False)
    talk.items += [*Scene("openai-responses").answers(True), {"role": "user", "content": "Two?"}]
    outcome = await House().decide(talk, standing("no_reasoning"))
    assert sent(outcome)[1:3] == [reasons, search]
    assert [item.get("type") for item in sent(outcome)].count("reasoning") == 1


async def test_a_round_stays_where_its_reasoning_is_wanted_by_something_else() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    for stays in (True, False):
        scene = Scene("openai-responses")
        reasons, call, output = scene.round(1, True, False)
        talk = Talk(scene.asks("One?"), reasons, call, form="openai-responses", store=False)
        talk.items += [search, output] if stays else [output, search]
        talk.items += [*scene.answers(False), scene.asks("Two?")]
        outcome = await House().decide(talk, standing("messages_only"))
        assert (sent(outcome) == talk.items, outcome.reason) == (
            stays,
            "below_threshold" if stays else "standing_rules",
        )


@EVERY_FORM
async def test_no_tool_results(form: str) -> None:
    talk, _ = earlier(form)
    outcome = await House().decide(talk, standing("no_tool_results"))
    text = text_of(outcome)
    assert "line " not in text
    assert text.count("[Tool result of an earlier turn left out by compaction: read.]") == 2
    assert len(sent(outcome)) == len(talk.items)
    assert THOUGHT in text or form == "openai-responses"


@EVERY_FORM
async def test_compact_tool_results(form: str) -> None:
    talk, _ = earlier(form)
    outcome = await House().decide(talk, standing("compact_tool_results"))
    text = text_of(outcome)
    assert text.count("cut by compaction") == 2
    assert "Result " in text
    assert "can be read at" not in text
    assert tokens.count(text, "o200k_base") < tokens.count(json.dumps(talk.items), "o200k_base") / 5


@EVERY_FORM
async def test_messages_only(form: str) -> None:
    talk, _ = earlier(form)
    outcome = await House().decide(talk, standing("messages_only"))
    text = text_of(outcome)
    assert "Result" not in text
    assert '"read"' not in text
    assert "Answer" in text
    assert ("Looking." in text) == (
        form in ("openai-chat", "anthropic-messages")
    )  # Gemini refuses two model contents in a row
    assert not refusals(form, outcome.body, talk.body)


async def test_a_round_in_which_the_user_spoke_stays() -> None:
    talk, _ = earlier("anthropic-messages")
    talk.items[2]["content"].append({"type": "text", "text": "By the way: hurry."})
    outcome = await House().decide(talk, standing("messages_only"))
    assert outcome.body == talk.body


async def test_words_of_a_round_go_where_they_would_stand_beside_the_answer() -> None:
    talk, _ = earlier("openai-chat")
    outcome = await House().decide(talk, standing("messages_only"), quirks=["alternating_roles"])
    assert [item["role"] for item in sent(outcome)] == ["user", "assistant", "user"]


@pytest.mark.parametrize("mode", ["no_tool_results", "compact_tool_results", "messages_only"])
async def test_tools_that_are_excluded_keep_their_results(mode: str) -> None:
    talk, _ = earlier("openai-chat")
    assert (await House().decide(talk, standing(mode, exclude_tools=["read"]))).body == talk.body
    assert (await House().decide(talk, standing(mode, exclude_tools=["write"]))).body != talk.body


async def test_a_call_that_nobody_answered_freezes_its_round_only() -> None:
    talk = Talk().ask("One?").round(300).answer().ask("Two?").round(300).answer().ask("Three?")
    talk.items[5]["tool_calls"].append(
        {"id": "lost", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    )
    outcome = await House().decide(talk, standing("messages_only"))
    assert sent(outcome) == [talk.items[0], *talk.items[3:]]


# Thinking that is bound to its prefix


@pytest.mark.parametrize(
    ("binding", "mode", "fields", "kept"),
    [
        ("drop_block", "no_tool_results", {}, True),
        ("strip", "no_tool_results", {}, False),
        ("drop_block", "compact_tool_results", {"thinking": {"type": "disabled"}}, False),
        ("drop_block", "no_reasoning", {}, False),
    ],
)
async def test_bound_thinking_is_asked_to_be_dropped_or_taken_out(
    binding: str, mode: str, fields: Item, kept: bool
) -> None:
    talk, _ = earlier("anthropic-messages")
    talk.fields |= fields
    outcome = await House().decide(talk, standing(mode, thinking_binding=binding), quirks=["binds_thinking"])
    assert (THOUGHT in text_of(outcome)) == kept
    assert (b"drop_block" in outcome.body) == (not fields and binding == "drop_block")


async def test_where_bound_thinking_must_not_be_dropped_earlier_turns_stay() -> None:
    talk, _ = earlier("anthropic-messages")
    for mode in ("no_tool_results", "compact_tool_results", "messages_only"):
        outcome = await House().decide(talk, standing(mode, thinking_binding="error"), quirks=["binds_thinking"])
        assert outcome.body == talk.body


# The cap


@EVERY_FORM
@pytest.mark.parametrize("seed", range(4))
async def test_a_cap_holds_for_every_result_and_the_same_way_ever_after(form: str, seed: int) -> None:
    house, rules = House(), standing(max_tool_result_tokens=200)
    last: list[Item] = []
    for talk, _, _ in grown(form, seed, 3):
        outcome = await house.decide(talk, rules, window=1_000_000)
        assert not refusals(form, outcome.body, talk.body) - refusals(form, talk.body, talk.body)
        assert sent(outcome)[: len(last)] == last
        assert (await House().decide(talk, rules, window=1_000_000)).body == outcome.body
        last = sent(outcome)
        for item, kept in zip(talk.items, last, strict=True):
            assert (item == kept) or "cut by compaction" in json.dumps(kept)


@EVERY_FORM
async def test_a_cut_result_can_be_read_at_its_address(form: str) -> None:
    talk, _ = earlier(form)
    house = House()
    outcome = await house.decide(talk, standing(max_tool_result_tokens=200))
    addresses = [piece.partition(" ")[0] for piece in text_of(outcome).split("can be read at: ")[1:]]
    assert len(addresses) == len(set(addresses)) == 2
    whole = []
    for address in addresses:
        ident, capability = address.removeprefix(f"{BASE}/compactd/archives/").split("/")
        archive = await house.store.get_archive(ident)
        assert archive is not None
        assert archive.capability == capability
        whole += json.loads(archive.document)["items"]
    read = json.dumps([entry["item"] for entry in whole])
    assert all(f"line {n} of the file\\n" * 300 in read for n in (1, 2))


@pytest.mark.parametrize("form", ["anthropic-messages", "gemini"])
async def test_the_archive_of_a_cut_result_holds_none_of_those_that_came_beside_it(form: str) -> None:
    """A message with a hundred results would be stored a hundred times."""
    files = [f"line of file {n}\n" * 300 for n in range(3)]
    if form == "gemini":
        results = [{"functionResponse": {"name": "read", "response": {"output": text}}} for text in files]
        calls = [{"functionCall": {"name": "read", "args": {}}}] * 3
        items: list[Item] = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
        question: Item = {"role": "user", "parts": [{"text": "Read."}]}
    else:
        results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": text} for n, text in enumerate(files)]
        uses = [{"type": "tool_use", "id": f"t{n}", "name": "read", "input": {}} for n in range(3)]
        items = [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
        question = {"role": "user", "content": "Read."}
    house = House()
    await house.decide(Talk(question, *items, form=form), standing(max_tool_result_tokens=200))
    listed, _ = await house.store.archives()
    assert len(listed) == 3
    for one in listed:
        archive = await house.store.get_archive(one.id)
        assert archive is not None
        (entry,) = json.loads(archive.document)["items"]
        alone = [{**items[1], key: [result]} for key in ("parts", "content") if key in items[1] for result in results]
        assert entry["index"] == 2
        assert entry["item"] in alone


@pytest.mark.parametrize("mode", ["messages_only", "no_reasoning"])
async def test_ten_thousand_calls_of_one_answer_are_shaped_as_a_few_are(mode: str) -> None:
    """In one pass: looked at call by call it took up to a minute, with every request."""
    many = 10_000
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"} for n in range(many)]
    results = [{"type": "function_call_output", "call_id": f"c{n}", "output": "x"} for n in range(many)]
    said = {"role": "assistant", "content": "Done."}
    talk = Talk(
        {"role": "user", "content": "Go."},
        *calls,
        *results,
        said,
        {"role": "user", "content": "And?"},
        form="openai-responses",
    )
    outcome = await House().decide(talk, standing(mode), window=10_000_000)
    left = [talk.items[0], *talk.items[-2:]] if mode == "messages_only" else talk.items
    assert sent(outcome) == left


async def test_thousands_of_calls_of_one_message_are_one_round() -> None:
    many = 4_000
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}} for n in range(many)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "x"} for n in range(many)]
    answers = [{"role": "user", "content": results[n : n + 2]} for n in range(0, many, 2)]
    said, asked = {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}
    talk = Talk(
        {"role": "user", "content": "Go."}, {"role": "assistant", "content": calls}, *answers, said, asked,
        form="anthropic-messages",
    )  # fmt: skip
    outcome = await House().decide(talk, standing("messages_only"), window=10_000_000)
    assert sent(outcome) == [talk.items[0], said, asked]


async def test_what_is_shown_of_a_cut_result_is_its_head_and_its_tail() -> None:
    talk = Talk().ask("Read.").round(5)
    text = "".join(f"{n}: here stands line {n}\n" for n in range(2_000))
    talk.items[2]["content"] = text
    outcome = await House().decide(talk, standing(max_tool_result_tokens=400), window=1_000_000)
    shown = sent(outcome)[2]["content"]
    head, _, tail = shown.partition("\n[… cut by compaction: ")
    assert text.startswith(head)
    assert text.endswith(tail.partition(" …]\n")[2])
    assert 250 < tokens.count(shown, "o200k_base") <= 480
    assert f"{tokens.count(text, 'o200k_base'):,} tokens" in shown


@pytest.mark.parametrize("limit", [1, 5, 20, 49])
async def test_nothing_is_cut_to_something_longer(limit: int) -> None:
    talk = Talk().ask("Read.").round(50)
    outcome = await House().decide(talk, standing(max_tool_result_tokens=limit))
    assert outcome.body == talk.body


async def test_without_an_archive_no_address_is_told() -> None:
    talk, _ = earlier("openai-chat")
    house = House()
    outcome = await house.decide(talk, standing(max_tool_result_tokens=200, archive_history=False))
    assert "cut by compaction" in text_of(outcome)
    assert "can be read" not in text_of(outcome)
    assert house.witness.archives == []


async def test_other_tenants_get_other_addresses() -> None:
    talk, _ = earlier("openai-chat")
    house, rules = House(), standing(max_tool_result_tokens=200)
    one, other = [await house.decide(talk, rules, tenant=tenant) for tenant in ("a", "b")]
    assert one.body != other.body
    archives, _ = await house.store.archives()
    assert len(archives) == 4


async def test_each_result_is_archived_once_and_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, _ = earlier("openai-chat")
    house, rules = House(), standing(max_tool_result_tokens=200)
    for _ in range(3):
        await house.decide(talk, rules)
    assert house.witness.archives == [("store", "ok")] * 2

    class Broken:
        name, addresses = "file", False
        tries = 0

        async def put(self, archive: Any) -> None:  # noqa: ARG002
            self.tries += 1
            raise OSError

        async def get_archive(self, archive_id: str) -> None: ...

    broken, down = Broken(), House()
    monkeypatch.setattr(down.compactor._archivist, "_shelf", broken)
    first = await down.decide(talk, rules)
    assert (await down.decide(talk, rules)).body == first.body
    assert broken.tries == 2
    monkeypatch.setattr(archiving, "RETRY_SECONDS", 0)
    for _ in range(2):
        await down.decide(talk, rules, tenant="b")
    assert broken.tries == 6


async def test_what_comes_with_every_request_is_not_archived_again_for_a_crowd_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "REMEMBERED", 8)
    talk, _ = earlier("openai-chat")
    house, rules = House(), standing(max_tool_result_tokens=200)
    for number in range(10):
        await house.decide(talk, rules)
        await house.decide(talk, rules, tenant=f"t{number}")
    assert house.witness.archives == [("store", "ok")] * 2 * 11


@EVERY_FORM
async def test_results_with_pictures_are_not_cut(form: str) -> None:
    scene = Scene(form)
    talk = Talk(scene.asks("Look."), *scene.round(1, False, False), form=form, **FIELDS[form])
    long = words(500)
    match form:
        case "anthropic-messages":
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
            talk.items[-1]["content"][0]["content"] = [
                {"type": "text", "text": long},
                {"type": "image", "source": source},
            ]
        case "gemini":
            talk.items[-1]["parts"][0]["functionResponse"] |= {
                "response": {"output": long}, "parts": [{"inlineData": {"mimeType": "image/png", "data": PICTURE}}],
            }  # fmt: skip
        case "openai-responses":
            picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
            talk.items[-1]["output"] = [{"type": "input_text", "text": long}, picture]
        case _:
            picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
            talk.items[-1]["content"] = [{"type": "text", "text": long}, picture]
    assert (await House().decide(talk, standing(max_tool_result_tokens=100))).body == talk.body


async def test_long_results_are_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, _ = earlier("openai-chat")
    house, rules = House(), standing("compact_tool_results", max_tool_result_tokens=900)
    await house.decide(talk, rules)
    counted: list[int] = []
    real: Callable[[str, str], int] = tokens.count
    monkeypatch.setattr(tokens, "count", lambda text, encoding: counted.append(len(text)) or real(text, encoding))
    await house.decide(talk, rules)
    assert counted == []


# Together with compactions


@EVERY_FORM
@pytest.mark.parametrize("mode", ["full", *MODES])
@pytest.mark.parametrize("strategy", ["sliding_window", "tool_result_clearing", "summarize"])
async def test_what_rules_and_compactions_take_out_is_all_readable_and_replayed(
    form: str, mode: str, strategy: str
) -> None:
    small = policy(
        strategy=strategy, history_mode=mode, max_tool_result_tokens=300, trigger_threshold=500, target_threshold=200,
        keep_recent_messages=2, keep_recent_tool_results=0,
    )  # fmt: skip
    house = House("They read files.")
    compactions = 0
    for talk, start, _ in grown(form, 3, 8):
        outcome = await house.decide(talk, small, window=1_000_000)
        assert house.witness.faults == []
        assert not refusals(form, outcome.body, talk.body) - refusals(form, talk.body, talk.body)
        assert (await house.decide(talk, small, window=1_000_000)).body == outcome.body
        if outcome.result != "compacted":
            continue
        compactions += 1
        archived = await _whole(house, outcome)
        assert outcome.context is not None
        assert archived <= set(range(outcome.context.view.covered))
        shown = {index for index, item in enumerate(talk.items) if item in sent(outcome)}
        assert set(range(outcome.context.view.covered)) <= shown | archived
        assert start not in archived
    assert compactions or strategy == "tool_result_clearing"


@pytest.mark.parametrize("seed", range(4))
async def test_a_checkpoint_never_parts_reasoning_from_what_it_led_to(seed: int) -> None:
    """Many small compactions: each reaches one item further than the last, wherever that is. A replay knows of reasoning that went only
    what the checkpoint says, and what it led to must not name it (R12)."""
    form = "openai-responses"
    small = policy(
        strategy="summarize", history_mode="no_reasoning", trigger_threshold=500, target_threshold=200, keep_recent_turns=2,
        summary_model="extractive", keep_recent_tool_results=1,
    )  # fmt: skip
    house = House()
    for talk, _, _ in grown(form, seed, 8):
        for replica in (house, House(store=house.store), House(store=house.store)):
            outcome = await replica.decide(talk, small, window=1_000_000)
            assert not refusals(form, outcome.body, talk.body) - refusals(form, talk.body, talk.body)


async def _whole(house: House, outcome: Outcome) -> set[int]:
    from app.archive import full_document

    document = await full_document(house.store, await house.archive(outcome))
    return {entry["index"] for entry in document["items"]}


async def test_a_shape_that_breaks_something_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "app.steps.earlier_turns.EarlierTurns.traffic", lambda _: ({1}, set())
    )  # the call goes, its results stay
    talk, _ = earlier("openai-chat")
    assert (await House().decide(talk, standing("messages_only"))).body == talk.body


async def test_a_shape_that_a_provider_refuses_is_given_up() -> None:
    talk, _ = earlier("openai-chat")
    house, rules = House(), standing("messages_only")
    for _ in range(MAX_REJECTIONS):
        outcome = await house.decide(talk, rules)
        assert outcome.changed
        await house.compactor.reject(outcome)
    assert (await house.decide(talk, rules)).body == talk.body
