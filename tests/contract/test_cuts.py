"""Cuts and clearings that the rules allow, on generated conversations, judged by the strict provider.

One script, written in each format: turns of rounds of parallel calls, with thinking, server tools, late instructions, pictures, reused ids,
and clients that lost a result or kept one too many. The promise is that no plan makes anything worse than it came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Plan
from tests.formats.history import History, Item

IMAGE = "iVBORw0KGgo="


@dataclass(frozen=True)
class Round:
    """The model's calls and their results. `server`: 1 a server tool within the message, 2 one that spans the round."""

    calls: int
    thinks: bool = False
    server: int = 0
    instructed: bool = False
    remark: bool = False
    picture: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Turn:
    rounds: tuple[Round, ...]
    answered: bool = True
    thinks: bool = False
    picture: bool = False
    instructed: bool = False


@dataclass(frozen=True)
class Script:
    """`ends`: with a question, or within the last turn's rounds. `ids`: how many different call ids there are (0: all different)."""

    turns: tuple[Turn, ...]
    ends_with_question: bool
    ids: int = 0
    orphan: bool = False


RARELY = st.sampled_from([False] * 7 + [True])
ROUNDS = st.builds(
    Round,
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 2]),
    RARELY,
    RARELY,
    RARELY,
    st.sampled_from([False] * 15 + [True]),
)
TURNS = st.builds(Turn, st.lists(ROUNDS, max_size=4).map(tuple), st.just(True), st.booleans(), RARELY, RARELY)
SCRIPTS = st.builds(
    Script, st.lists(TURNS, min_size=1, max_size=4).map(tuple), st.booleans(), st.sampled_from([0, 0, 0, 2]), RARELY
)


class _Numbers:
    def __init__(self, ids: int) -> None:
        self.ids = ids
        self.last = -1

    def take(self, count: int) -> list[int]:
        first, self.last = self.last + 1, self.last + count
        return [n % max(self.ids, count) if self.ids else n for n in range(first, self.last + 1)]


def anthropic(script: Script) -> list[Item]:
    numbers, servers = _Numbers(script.ids), iter(range(1_000))
    items: list[Item] = []

    def text(said: str) -> Item:
        return {"type": "text", "text": said}

    def says(*blocks: Item, thinks: bool = False) -> None:
        thought = [{"type": "thinking", "thinking": "hm", "signature": "sig"}] if thinks else []
        items.append({"role": "assistant", "content": [*thought, *blocks]})

    def search(n: int) -> tuple[Item, Item]:
        use = {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {"query": "q"}}
        page = {"type": "web_search_result", "url": "https://x", "title": "t", "encrypted_content": "EqgfCioIARgB"}
        return use, {"type": "web_search_tool_result", "tool_use_id": use["id"], "content": [page]}

    if script.orphan:
        items.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_lost", "content": "x"}]}
        )
    for turn in script.turns:
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
        items.append({"role": "user", "content": [text("ask"), picture] if turn.picture else "ask"})
        if turn.instructed:
            items.append({"role": "system", "content": "Be brief."})
        for one in turn.rounds:
            use, found = search(next(servers))
            called = numbers.take(one.calls)
            before = [[], [use, found], [use]][one.server]
            calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {"n": n}} for n in called]
            says(*before, *calls, thinks=one.thinks)
            answers = called[1:] if one.lost else called
            content = [text("out " * 60), picture] if one.picture else "out " * 60
            results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": content} for n in answers]
            remark = [text("and")] if (one.remark and one.server != 2) or not results else []
            items.append({"role": "user", "content": [*results, *remark]})
            if one.instructed:
                items.append({"role": "system", "content": [text("Be brief.")]})
            if one.server == 2:
                says(found, text("go on"))
                items.append({"role": "user", "content": "yes"})
        says(text("done"), thinks=turn.thinks)
    return items


def chat(script: Script) -> list[Item]:
    numbers = _Numbers(script.ids)
    items: list[Item] = [{"role": "system", "content": "s"}]
    if script.orphan:
        items.append({"role": "tool", "tool_call_id": "call_lost", "content": "x"})
    for turn in script.turns:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
        items.append({"role": "user", "content": [{"type": "text", "text": "ask"}, picture] if turn.picture else "ask"})
        if turn.instructed:
            items.append({"role": "developer", "content": "Be brief."})
        for one in turn.rounds:
            called = numbers.take(one.calls)
            function = {"name": "read", "arguments": '{"n": 1}'}
            calls = [{"id": f"call_{n}", "type": "function", "function": function} for n in called]
            thought = {"reasoning_content": "hm"} if one.thinks else {}
            items.append({"role": "assistant", "content": None, "tool_calls": calls, **thought})
            for n in reversed(called[1:] if one.lost else called):
                items.append({"role": "tool", "tool_call_id": f"call_{n}", "content": "out " * 60})
            if one.instructed:
                items.append({"role": "system", "content": "Be brief."})
        items.append({"role": "assistant", "content": "done", **({"reasoning_content": "hm"} if turn.thinks else {})})
    return items


WRITERS: dict[str, Callable[[Script], list[Item]]] = {"anthropic-messages": anthropic, "openai-chat": chat}
FIELDS: dict[str, Item] = {
    "anthropic-messages": {
        "model": "claude-opus-5", "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "read", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}],
    },
    "openai-chat": {"model": "gpt-5.1"},
}  # fmt: skip


def written(form: str, script: Script) -> History:
    """The script in a format, ending where a request ends: with a question, or with results (as far as it has any)."""
    items = WRITERS[form](script)
    if script.ends_with_question:
        items.append({"role": "user", "content": "ask"})
    else:
        while items and items[-1]["role"] == "assistant":
            items.pop()
    return History(form, *items, **FIELDS[form])


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=150, deadline=None)
@given(script=SCRIPTS, data=st.data())
def test_no_allowed_cut_makes_a_request_worse(form: str, script: Script, data: st.DataObject) -> None:
    talk = written(form, script)
    cuts = list(talk.cuts())
    if not cuts:
        return
    for start, stop in data.draw(st.lists(st.sampled_from(cuts), min_size=1, max_size=6, unique=True)):
        assert not talk.worse(Plan("test", start, stop, "omitted")), (start, stop)


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=100, deadline=None)
@given(script=SCRIPTS)
def test_no_clearing_makes_a_request_worse(form: str, script: Script) -> None:
    talk = written(form, script)
    places = talk.clearable()
    assert not talk.worse(Plan("test", clear=places))
    after: Any = talk.clear(*places)
    before: Any = talk.items(talk.body)
    assert [item["role"] for item in after] == [item["role"] for item in before]
    assert after[rules.open_round(talk.facts) :] == before[rules.open_round(talk.facts) :]


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=100, deadline=None)
@given(script=SCRIPTS)
def test_a_sound_history_can_always_be_cut_before_its_question(form: str, script: Script) -> None:
    """Unless the client lost a result and used its call's id again: then a result behind the question may do for both (R1)."""
    talk = written(form, script)
    assume(not (script.ids and rules.pair(talk.facts).unanswered))
    assert rules.cuts(talk.facts)[rules.current_turn(talk.facts)]
