"""Every strategy in every format, over whole conversations: what the product promises, judged by the strict provider.

A client resends its growing history before each of the model's steps, and a compactor with a policy drawn by lot decides. The promises:
nothing gets worse, the question is never touched, what stays keeps its bytes, the provider sees one prefix until the next compaction, every
replica makes the same bytes, and what left can be read.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.archive import full_document
from app.core import jsonspan
from app.core.notes import is_note
from app.formats import FORMATS
from app.formats.reading import open_body
from app.request import Outcome
from app.settings import Policy
from app.strategies import STRATEGIES
from tests.contract.scripts import FIELDS, QUIRKS, WRITERS, Item, few, script
from tests.story import House, Talk, policy
from tests.strict import VIOLATIONS
from tests.strict.openai_responses import reasoning_pairs

SEEDS = st.integers(0, 2**32)


def drawn(seed: int, strategy: str, tokens: int) -> Policy:
    """A policy by lot, for conversations of so many tokens at the end."""
    random = Random(seed)
    trigger = max(2, int(tokens * random.choice([0.2, 0.4, 0.7])))
    return policy(
        strategy=strategy,
        trigger_threshold=trigger,
        target_threshold=max(1, int(trigger * random.choice([0.2, 0.5, 0.9]))),
        clear_at_least=random.choice([0, 0, 0.05]),
        keep_recent_messages=random.randint(1, 9),
        keep_recent_turns=random.choice([None, None, 1, 2]),
        keep_recent_tool_results=random.randint(0, 3),
        clear_tool_inputs=random.random() < 0.4,
        exclude_tools=random.choice([(), ("read",)]),
        sliding_window_include_truncation_notice=random.random() < 0.7,
        combined_order=tuple(
            random.sample(["tool_result_clearing", "sliding_window", "summarize"], random.randint(1, 3))
        ),
        protect_current_turn=random.random() < 0.8,
        summary_model=random.choice([None, "extractive"]),
        fold_rounds_above=random.choice([None, trigger]) if strategy in ("summarize", "combined") else None,
    )


def refusals(form: str, body: Item, original: Item) -> Counter[str]:
    more: dict[str, Any] = {"came_with": reasoning_pairs(original)} if form == "openai-responses" else {}
    return Counter(found.rule for found in VIOLATIONS[form](body, quirks=QUIRKS.get(form, frozenset()), **more))


def history(form: str, body: bytes) -> list[bytes]:
    """The items' own bytes."""
    return [bytes(raw) for raw in open_body(FORMATS[form], body).raws]


def facts(form: str, raw: bytes) -> Any:
    return FORMATS[form].facts(json.loads(raw))


def said(form: str, raw: bytes) -> str:
    return "\n".join(part.text for part in FORMATS[form].parts(json.loads(raw)) if part.kind == "text")


class Client:
    """Sends the requests of one script and checks each outcome against the last."""

    def __init__(self, form: str, seed: int, strategy: str, **more: Any) -> None:
        self.form, self.script, self.more = form, script(seed), more
        self.house = House("They spoke of the harbour.")
        self.rules = drawn(seed, strategy, self._tokens())
        self.outcomes: list[tuple[Talk, Outcome]] = []
        self.last: list[bytes] = []

    def _tokens(self) -> int:
        return sum(len(json.dumps(item)) for _, item in WRITERS[self.form](self.script)) // 4

    def talks(self) -> list[Talk]:
        return [
            Talk(*(item for _, item in WRITERS[self.form](asked)), form=self.form, **FIELDS[self.form])
            for asked in self.script.requests()
        ]

    async def run(self) -> None:
        for talk in self.talks():
            outcome = await self.house.decide(talk, self.rules, **self.more)
            self.check(talk, outcome)
            self.outcomes.append((talk, outcome))
        assert not self.house.witness.faults
        await self.check_archive()

    def check(self, talk: Talk, outcome: Outcome) -> None:
        before, after = json.loads(talk.body), json.loads(outcome.body)
        worse = refusals(self.form, after, before) - refusals(self.form, before, before)
        assert not worse, worse
        own, sent = history(self.form, talk.body), history(self.form, outcome.body)
        if outcome.result in ("passed", "declined"):
            assert outcome.body == talk.body
        if outcome.result == "compacted":
            assert outcome.after < outcome.before
            assert outcome.strategy
        else:
            assert sent[: len(self.last)] == self.last
        self.check_kept(own, sent)
        self.check_question(own, sent)
        self.last = sent
        key = FORMATS[self.form].history
        assert {k: v for k, v in after.items() if k != key} == {k: v for k, v in before.items() if k != key}

    def check_kept(self, own: list[bytes], sent: list[bytes]) -> None:
        """Each item is the client's, byte for byte and in order, or a note, or has something cleared in it."""
        left = iter(own)
        for raw in sent:
            if (
                facts(self.form, raw).note
                or b"leared by compaction" in raw
                or (self.rules.clear_tool_inputs and raw not in own)
            ):
                continue
            assert raw in left, raw

    def check_question(self, own: list[bytes], sent: list[bytes]) -> None:
        opens = [raw for raw in own if facts(self.form, raw).opens_turn]
        if self.rules.protect_current_turn or own[-1] == opens[-1]:
            assert opens[-1] in sent
            assert own[-1] == sent[-1]

    async def check_archive(self) -> None:
        """What the last request no longer shows can be read, as the client sent it."""
        talk, outcome = self.outcomes[-1]
        sent = Counter(history(self.form, outcome.body))
        gone = [at for at, raw in enumerate(history(self.form, talk.body)) if not sent[raw]]
        if not gone:
            return
        found = await full_document(self.house.store, await self.house.archive(outcome))
        there = {item["index"]: item["item"] for item in found["items"]}
        for at in gone:
            assert there[at] == talk.items[at]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=few(8), deadline=None)
@given(seed=SEEDS)
def test_all_promises_hold_over_a_conversation(form: str, strategy: str, seed: int) -> None:
    asyncio.run(Client(form, seed, strategy).run())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=few(2), deadline=None)
@given(seed=SEEDS)
def test_two_replicas_make_the_same_bytes(form: str, strategy: str, seed: int) -> None:
    """Each from an empty store: nothing depends on the process, the clock only names the archive."""
    patch = pytest.MonkeyPatch()
    patch.setattr("app.archive.time.time", lambda: 1_700_000_000.0)
    try:
        clients = [Client(form, seed, strategy) for _ in range(2)]
        for client in clients:
            asyncio.run(client.run())
    finally:
        patch.undo()
    one, other = ([outcome.body for _, outcome in client.outcomes] for client in clients)
    assert one == other


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=few(8), deadline=None)
@given(seed=SEEDS)
def test_a_server_that_wants_alternating_roles_gets_them(strategy: str, seed: int) -> None:
    """Judged where the client itself kept them: a system message only at the start, no two questions in a row."""
    client = Client("openai-chat", seed, strategy, quirks=("alternating_roles",))
    for talk in client.talks():
        quirks = frozenset({"alternating_roles"})
        before = VIOLATIONS["openai-chat"](json.loads(talk.body), quirks=quirks)
        outcome = asyncio.run(client.house.decide(talk, client.rules, **client.more))
        after = VIOLATIONS["openai-chat"](json.loads(outcome.body), quirks=quirks)
        assert not Counter(v.rule for v in after) - Counter(v.rule for v in before)
    assert not client.house.witness.faults


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=few(20), deadline=None)
@given(seed=SEEDS)
def test_without_a_plan_the_very_same_bytes_go_on(form: str, seed: int) -> None:
    house = House()
    talk = Talk(*(item for _, item in WRITERS[form](script(seed))), form=form, **FIELDS[form])
    odd = talk.body.replace(b": ", b" :\n", 3)
    never = policy(trigger_threshold=1, target_threshold=1, min_messages_before_compaction=10_000)
    for rules in (policy(trigger_threshold=10_000_000), never):
        asked = talk.asked(rules, body=odd)
        outcome = asyncio.run(house.compactor.decide(asked))
        assert outcome.body is asked.opened.body


@pytest.mark.parametrize("form", WRITERS)
@example(text="They met in the harbour.")
@settings(max_examples=few(30))
@given(text=st.text(max_size=80))
def test_a_note_reads_back_as_what_was_written(form: str, text: str) -> None:
    """Whatever a summariser wrote, lone surrogates and all: one user item that says it."""
    raw = FORMATS[form].note(text)
    assert said(form, raw) == text or not text
    assert facts(form, raw).role == "user"
    assert facts(form, raw).note == is_note(text)
    assert jsonspan.value(raw) == json.loads(raw)
