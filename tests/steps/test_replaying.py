"""What is remembered of a replay changes nothing: not its bytes, and not whether it fits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import rules
from app.core.plan import Checkpoint
from app.core.view import Clearing, Edited, EntryCache, Facts, Note, View, chain
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from app.steps.replaying import NEAR, Replayer, closed
from tests.contract.scripts import WRITERS, few, script
from tests.items import answers, ask, says
from tests.story import Talk


class Client:
    """A reader and its cache; `replayed` is what a replayer makes of a conversation."""

    def __init__(self, form: str = "openai-chat") -> None:
        self.form = form
        self.reader = Reader(FORMATS[form], "o200k_base", EntryCache())

    def replayed(self, replayer: Replayer, checkpoint: Checkpoint, items: list[Any]) -> View | None:
        raws = open_body(FORMATS[self.form], Talk(*items, form=self.form).body).raws
        view = View(raws, self.reader.entries(raws))
        return replayer.replay(checkpoint, chain("t", self.form, view.entries), view, self.reader)


def told(view: View | None) -> Any:
    """All of a view; not which of several entries the same bytes have got, if they came twice in one request."""
    if view is None:
        return None
    known = [(entry.facts, entry.fingerprint) for entry in view.entries]
    return [bytes(raw) for raw in view.raws], view.pieces, known, view.covered


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items the rules were asked about, each time."""
    sizes: list[int] = []
    violations = rules.violations

    def counted(facts: list[Facts]) -> Any:
        sizes.append(len(facts))
        return violations(facts)

    monkeypatch.setattr("app.core.rules.violations", counted)
    return sizes


CUT = Checkpoint(6, (Note(b'{"role":"user","content":"compaction"}'), 5), "sliding_window", 1)


def test_a_history_that_goes_on_as_usual_is_not_looked_at_again(looked: list[int]) -> None:
    talk, client, replayer = Talk.of(4), Client(), Replayer()
    first = client.replayed(replayer, CUT, talk.items)
    assert first is not None
    assert looked == [len(first)]
    for n in range(8):
        talk.answer().round(ident=f"r{n}").ask("And?") if n % 2 else talk.round(ident=f"r{n}")
        assert client.replayed(replayer, CUT, talk.items) is not None
    assert client.replayed(replayer, CUT, [*talk.items[:-1], {"role": "user", "content": "Or?"}]) is not None
    assert len(looked) == 1


def test_what_a_later_result_answers_is_looked_at(looked: list[int]) -> None:
    """Its call was cut, taken for one that is never answered."""
    lost = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    talk = Talk().ask("a").answer("b").ask("c")
    talk.items.append({"role": "assistant", "content": "x", "tool_calls": lost})
    talk.ask("d").answer("e").ask("f").answer("g").ask("h")
    client, replayer = Client(), Replayer()
    assert client.replayed(replayer, CUT, talk.items) is not None
    late = [
        *talk.items,
        {"role": "assistant", "content": "i"},
        {"role": "tool", "tool_call_id": "c", "content": "late"},
    ]
    assert client.replayed(replayer, CUT, late) is None
    assert client.replayed(replayer, CUT, talk.items) is not None
    assert len(looked) == 3  # the first, and both views of the second


def test_another_checkpoint_under_the_same_key_is_looked_at(looked: list[int]) -> None:
    """The one that was there before may be gone, and another one made."""
    talk, client, replayer = Talk.of(5), Client(), Replayer()
    other = Checkpoint(6, (0, 1, 4, 5), "own", 1)
    for checkpoint in (CUT, other, CUT):
        view = client.replayed(replayer, checkpoint, talk.items)
        assert told(view) == told(client.replayed(Replayer(), checkpoint, talk.items))
    assert len(looked) == 6


def test_items_that_only_differ_in_bytes_are_taken_as_they_are_now() -> None:
    """The same fingerprint, so the same checkpoint; but what stays is the client's own spelling of it."""
    talk, client, replayer = Talk.of(5), Client(), Replayer()
    assert client.replayed(replayer, CUT, talk.items) is not None
    talk.items[5] = {**talk.items[5], "cache_control": {"type": "ephemeral"}}
    view = client.replayed(replayer, CUT, talk.items)
    assert view is not None
    assert b"ephemeral" in bytes(view.raws[1])
    assert told(view) == told(client.replayed(Replayer(), CUT, talk.items))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.steps.replaying.FITTING", 5)
    monkeypatch.setattr("app.steps.replaying.REPLAYED_BYTES", 6_000)
    client, replayer = Client(), Replayer()
    for n in range(20):
        assert client.replayed(replayer, CUT, Talk.of(5).ask(f"{n}").items) is not None
        talk = Talk(*({"role": "user", "content": f"{n}"}, *Talk.of(5).items))
        client.replayed(replayer, CUT, talk.items)
        assert len(replayer._fitting) <= 5
        assert len(replayer._prefixes) <= 6
    assert NEAR > 10


@pytest.mark.parametrize(
    ("facts", "alone"),
    [
        ([], True),
        ([ask(), says()], True),
        ([says("a"), answers("a")], True),
        ([says("a", "b"), answers("b"), answers("a")], True),
        ([says(), says("a")], True),
        ([answers("a")], False),
        ([says("a"), answers("a"), answers("a")], False),
        ([says("a"), answers("b")], False),
        ([says(cites=(("document", 0),))], False),
    ],
)
def test_items_that_concern_nothing_before_them(facts: list[Facts], alone: bool) -> None:
    assert closed(facts) is alone


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=few(40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_replayer_that_remembers_says_what_one_says_that_does_not(form: str, seed: int) -> None:
    """Through conversations with lost results, reused ids and thoughts, that go another way now and then."""
    random, client, warm = Random(seed), Client(form), Replayer()
    requests = [[item for _, item in WRITERS[form](asked)] for asked in script(seed).requests()]
    longest = requests[-1]
    covered = random.randint(1, max(1, len(longest) // 2))
    kept = sorted(random.sample(range(covered), random.randint(0, covered)))
    pieces: list[Any] = [Edited(at, bare=True) if form == "anthropic-messages" and at % 3 == 0 else at for at in kept]
    pieces.insert(random.randint(0, len(pieces)), Note(FORMATS[form].note("compaction")))
    checkpoint = Checkpoint(covered, tuple(pieces), "own", 1)
    for items in requests:
        if len(items) < covered:
            continue
        gone = random.randrange(covered, len(items) + 1)
        astray = items[:gone] + random.sample(longest, min(2, len(longest)))
        for history in (items, astray, items):
            assert told(client.replayed(warm, checkpoint, history)) == told(
                client.replayed(Replayer(), checkpoint, history)
            )


def test_cleared_places_are_kept_as_they_were_written() -> None:
    talk, client, replayer = Talk().ask("a").round(ident="x").answer().ask("b"), Client(), Replayer()
    checkpoint = Checkpoint(3, (0, 1, Edited(2, (Clearing(0, "gone"),))), "tool_result_clearing", 2)
    views = [client.replayed(replayer, checkpoint, talk.items) for _ in range(2)]
    assert views[0] is not None
    assert views[1] is not None
    assert views[1].raws[2] is views[0].raws[2]
    assert b"gone" in bytes(views[1].raws[2])
