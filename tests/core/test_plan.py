"""Plans applied, stored, found again and made on top of each other.

Items here are JSON texts of a kind and a number, and a rewritten item says what was done to it, so that every byte of a result is known
beforehand. What has to hold: a checkpoint gives the very view that it was made from, and a plan on a replayed view becomes one checkpoint
over the client's own prefix.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import jsonspan
from app.core.jsonspan import Slice
from app.core.plan import Checkpoint, Clear, Plan, apply, changed_items, checkpoint_of, leads, replay
from app.core.view import Clearing, Edited, Entry, Facts, Note, Piece, View, origin, raw_bytes
from tests.items import answers, ask, note, rule, says

KINDS = {
    "ask": ask(), "says": says("a"), "answers": answers("a", "b"), "note": note(), "rule": rule(stays=True), "pinned": ask(pinned=True),
}  # fmt: skip
NOTE = b'{"kind":"note"}'
SEEDS = st.integers(0, 2**32)


def client(*kinds: str) -> View:
    raws: list[Slice] = [b'{"kind": "%s" ,"n":%d}' % (kind.encode(), at) for at, kind in enumerate(kinds)]
    return View(raws, read(raws))


def read(raws: Sequence[Slice]) -> list[Entry]:
    return [Entry(KINDS[json.loads(raw_bytes(raw))["kind"]], b"", 1) for raw in raws]


def rewrite(raw: Slice, piece: Edited) -> bytes:
    cleared = [[c.ordinal, c.text, c.inputs] for c in piece.cleared]
    done = {"cleared": cleared, "lead": piece.lead, "bare": piece.bare}
    return jsonspan.edit(raw_bytes(raw), [((key,), jsonspan.dump(value)) for key, value in done.items() if value])


def applied(own: View, view: View, plan: Plan, text: bytes | str = NOTE, ending: bytes = b"") -> View:
    return apply(own, view, plan, text, lambda place: f"gone {place.item}.{place.ordinal}", rewrite, read, ending)


def shown(view: View) -> list[bytes]:
    return [raw_bytes(raw) for raw in view.raws]


def stored(view: View) -> Checkpoint:
    checkpoint = Checkpoint.decode(checkpoint_of(view, "test", 1, "", 1).encode())
    assert checkpoint is not None
    return checkpoint


TALK = ("ask", "says", "answers", "says", "ask", "says", "answers", "says", "ask")


# Applying


def test_a_cut_leaves_a_note_and_every_other_byte() -> None:
    own = client(*TALK)
    after = applied(own, own, Plan("t", 0, 4, "omitted"))
    assert shown(after) == [NOTE, *shown(own)[4:]]
    assert after.pieces == [Note(NOTE), 4, 5, 6, 7, 8]
    assert after.covered == 4
    assert [entry.facts for entry in after.entries] == [note(), *own.facts[4:]]


def test_a_cut_without_a_note_leaves_nothing() -> None:
    own = client(*TALK)
    assert shown(applied(own, own, Plan("t", 0, 4), b"")) == shown(own)[4:]


def test_what_stays_survives_a_cut_behind_its_note() -> None:
    own = client("ask", "rule", "says", "ask")
    after = applied(own, own, Plan("t", 0, 3, "omitted"))
    assert after.pieces == [Note(NOTE), 1, 3]
    assert after.covered == 3


def test_clearing_keeps_the_item_in_its_place() -> None:
    own = client(*TALK)
    after = applied(own, own, Plan("t", clear=(Clear(2, 0), Clear(2, 1), Clear(1, 0, inputs=True))))
    assert after.pieces[:4] == [
        0, Edited(1, (Clearing(0, "gone 1.0", True),)), Edited(2, (Clearing(0, "gone 2.0"), Clearing(1, "gone 2.1"))), 3,
    ]  # fmt: skip
    assert shown(after)[3:] == shown(own)[3:]
    assert after.covered == 3


def test_reasoning_is_taken_out_of_kept_items() -> None:
    own = client(*TALK)
    after = applied(own, own, Plan("t", 0, 4, "omitted", bare=(5,)))
    assert after.pieces == [Note(NOTE), 4, Edited(5, bare=True), 6, 7, 8]
    assert after.covered == 6


def test_a_second_clearing_adds_to_the_first() -> None:
    own = client(*TALK)
    once = applied(own, own, Plan("t", clear=(Clear(2, 0),)))
    twice = applied(own, once, Plan("t", clear=(Clear(2, 1),), bare=(2,)))
    assert twice.pieces[2] == Edited(2, (Clearing(0, "gone 2.0"), Clearing(1, "gone 2.1")), bare=True)


def test_a_text_leads_the_request_that_follows() -> None:
    own = client(*TALK)
    plan = Plan("t", 0, 4, "omitted")
    assert leads(own, plan)
    after = applied(own, own, plan, "lead")
    assert after.pieces == [Edited(4, lead="lead"), 5, 6, 7, 8]
    assert after.covered == 5
    again = applied(own, after, Plan("t", 0, 4, "omitted"), "more")
    assert again.pieces == [Edited(8, lead="more")]
    bare = applied(own, after, Plan("t", bare=(0,)))
    assert bare.pieces[0] == Edited(4, lead="lead", bare=True)
    assert applied(own, bare, Plan("t", clear=(Clear(0, 0),))).pieces[0] == Edited(
        4, (Clearing(0, "gone 0.0"),), "lead", True
    )


@pytest.mark.parametrize("follows", ["says", "answers", "rule", "note", "pinned", ""])
def test_a_text_leads_nothing_else(follows: str) -> None:
    """Into such an item nothing may be written, and a note must not get lost."""
    own = client("ask", "says", *filter(None, [follows]))
    plan = Plan("t", 0, 2, "omitted")
    assert not leads(own, plan)
    with pytest.raises(ValueError, match="no user request"):
        applied(own, own, plan, "lead")


def test_a_cut_of_the_whole_tail_ends_on_the_continuation() -> None:
    own = client("ask", "says", "answers")
    plan = Plan("t", 0, 3, "summary", continuation=True)
    after = applied(own, own, plan, ending=b'{"kind":"note","go":"on"}')
    assert shown(after) == [NOTE, b'{"kind":"note","go":"on"}']
    assert shown(applied(own, own, plan)) == [NOTE]
    longer = client("ask", "says", "answers", "says")
    assert shown(replay(longer, stored(after), rewrite, read)) == [*shown(after), shown(longer)[3]]


def test_new_items_and_old_ones_may_stand_in_a_cuts_place() -> None:
    own = client(*TALK)
    made = Note(b'{"kind":"says"}')
    after = applied(own, own, Plan("t", 0, 6, instead=(1, made, 4), bare=(4,)), b"")
    assert after.pieces == [1, made, Edited(4, bare=True), 6, 7, 8]
    assert after.covered == 6
    assert changed_items(own, after) == [0, 2, 3, 4, 5]
    assert replay(own, stored(after), rewrite, read).pieces == after.pieces


def test_what_left_is_told_once() -> None:
    own = client(*TALK)
    once = applied(own, own, Plan("t", clear=(Clear(2, 0),)))
    assert changed_items(own, once) == [2]
    twice = applied(own, once, Plan("t", 0, 4, "omitted", clear=(Clear(6, 0),)))
    assert changed_items(once, twice) == [0, 1, 2, 3, 6]
    assert changed_items(twice, applied(own, twice, Plan("t", 0, 2, "omitted"))) == [4]


# Storing


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    covered = draw(st.integers(1, 12))
    texts = st.sampled_from(["", "a", "é\n", "\ud800", "x" * 50])
    pieces: list[Piece] = []
    for index in sorted(draw(st.sets(st.integers(0, covered - 1)))):
        if draw(st.booleans()):
            pieces.append(index)
        else:
            cleared = draw(st.lists(st.builds(Clearing, st.integers(0, 3), texts, st.booleans()), max_size=2))
            pieces.append(Edited(index, tuple(cleared), draw(texts), draw(st.booleans())))
    pieces.insert(draw(st.integers(0, len(pieces))), Note(draw(st.sampled_from([NOTE, b'{"t":"\\ud800 \xc3\xa9"}']))))
    return Checkpoint(
        covered, tuple(pieces), draw(texts), draw(st.integers(0, 2)), draw(texts), draw(st.integers(1, 9))
    )


@settings(max_examples=150)
@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


def test_untouched_items_are_stored_as_ranges() -> None:
    assert json.loads(Checkpoint(900, tuple(range(10, 900)), "t", 1).encode())["pieces"] == [[10, 900]]


GOOD = {
    "v": 1,
    "covered": 3,
    "pieces": [{"note": "{}"}, [1, 2]],
    "strategy": "t",
    "level": 1,
    "archive": "",
    "number": 1,
}
EDITED = {"index": 0, "cleared": [], "lead": "", "bare": False}


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2}, {"v": "1"}, {"covered": "3"}, {"covered": 0}, {"covered": -1}, {"covered": None}, {"number": "x"}, {"strategy": 7},
        {"pieces": None}, {"pieces": {}}, {"pieces": [7]}, {"pieces": ["x"]}, {"pieces": [[0]]}, {"pieces": [[0, 1, 2]]},
        {"pieces": [[1, 4]]}, {"pieces": [[2, 1]]}, {"pieces": [[-1, 1]]}, {"pieces": [[0, 10**15]]}, {"pieces": [[0, 2], [1, 3]]},
        {"pieces": [[0, 1.5]]}, {"pieces": [{}]}, {"pieces": [{"note": 7}]}, {"pieces": [{"note": "\ud800"}]},
        {"pieces": [{**EDITED, "index": 3}]}, {"pieces": [{**EDITED, "cleared": [[0]]}]}, {"pieces": [{**EDITED, "lead": None}]},
        {"pieces": [EDITED, EDITED]},
    ],
)  # fmt: skip
def test_a_record_that_is_not_sound_is_none(changed: dict[str, object]) -> None:
    assert Checkpoint.decode(json.dumps(GOOD).encode()) is not None
    assert Checkpoint.decode(json.dumps({**GOOD, **changed}).encode()) is None


@pytest.mark.parametrize("key", GOOD)
def test_a_record_without_a_field_is_none(key: str) -> None:
    assert Checkpoint.decode(json.dumps({k: v for k, v in GOOD.items() if k != key}).encode()) is None


@given(st.binary(max_size=60) | st.sampled_from([b"", b"[]", b"7", b'"v"', b"null", b"{}", b"[" * 5_000, b'{"v":1}']))
def test_garbage_is_none(value: bytes) -> None:
    assert Checkpoint.decode(value) is None


@settings(max_examples=200)
@given(SEEDS, st.data())
def test_a_damaged_record_is_none_or_sound(seed: int, data: st.DataObject) -> None:
    after = some(client(*TALK), client(*TALK), Random(seed))
    text = bytearray(checkpoint_of(after, "test", 1, "", 1).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    found = Checkpoint.decode(bytes(text))
    if found is not None:
        origins = [origin(piece) for piece in found.pieces if origin(piece) >= 0]
        assert origins == sorted(set(origins))
        assert all(index < found.covered for index in origins)


# One on top of the other


def some(own: View, view: View, random: Random) -> View:
    """Any plan, applied: a cut or not, things cleared, reasoning taken, a note of either kind."""
    size = len(view)
    start, stop = sorted(random.choices(range(size + 1), k=2))
    places = [
        Clear(at, random.randrange(2), random.random() < 0.3)
        for at in range(size)
        if own_item(view, at) and random.random() < 0.2
    ]
    clear = tuple(dict.fromkeys(place for place in places if not start <= place.item < stop))
    bare = tuple(at for at in range(size) if own_item(view, at) and not start <= at < stop and random.random() < 0.1)
    plan = Plan("t", start, stop, "omitted", clear, bare, continuation=stop == size > start)
    lead = leads(view, plan) and random.random() < 0.5
    return applied(own, view, plan, "lead" if lead else NOTE, ending=NOTE)


def own_item(view: View, at: int) -> bool:
    return not isinstance(view.pieces[at], Note)


def grown(random: Random, kinds: list[str]) -> list[str]:
    return [*kinds, *random.choices(["ask", "says", "answers", "rule", "pinned"], k=random.randint(0, 4))]


@settings(max_examples=400)
@given(SEEDS)
def test_a_checkpoint_gives_the_view_that_it_was_made_from(seed: int) -> None:
    """Also where the plan was made on a view that earlier checkpoints had made, of a conversation that went on between."""
    random = Random(seed)
    kinds = grown(random, ["ask", "says"])
    own = view = client(*kinds)
    for _ in range(random.randint(1, 4)):
        after = some(own, view, random)
        if after.covered == 0:
            return
        checkpoint = stored(after)
        again = replay(own, checkpoint, rewrite, read)
        assert (again.pieces, shown(again), again.covered) == (after.pieces, shown(after), after.covered)
        assert [entry.facts for entry in again.entries] == [entry.facts for entry in after.entries]
        kinds = grown(random, kinds)
        own = client(*kinds)
        view = replay(own, checkpoint, rewrite, read)
        assert shown(view)[: len(after)] == shown(after)
        assert shown(view)[len(after) :] == shown(own)[len(own) - len(view) + len(after) :]


@settings(max_examples=300)
@given(SEEDS)
def test_kept_items_keep_their_bytes_and_their_order(seed: int) -> None:
    own = client(*grown(Random(seed), list(TALK)))
    after = some(own, own, Random(seed))
    for piece, raw in zip(after.pieces, shown(after), strict=True):
        assert raw == (raw_bytes(own.raws[piece]) if isinstance(piece, int) else raw)
    origins = [origin(piece) for piece in after.pieces if origin(piece) >= 0]
    assert origins == sorted(set(origins))
    touched = [at for at, piece in enumerate(after.pieces) if not isinstance(piece, int)]
    gone = set(range(len(own))) - set(origins)
    assert after.covered >= max((index + 1 for index in gone), default=0)
    assert all(origin(after.pieces[at]) < after.covered for at in touched)
    assert set(changed_items(own, after)) == gone | {origin(after.pieces[at]) for at in touched} - {-1}


def test_facts_are_read_from_what_is_forwarded() -> None:
    own = client("ask", "says")
    seen: list[bytes] = []

    def reads(raws: Sequence[Slice]) -> list[Entry]:
        seen.extend(map(raw_bytes, raws))
        return [Entry(Facts("user", note=True), b"") for _ in raws]

    after = apply(own, own, Plan("t", 0, 1, "omitted", bare=(1,)), NOTE, lambda _: "", rewrite, reads)
    assert seen == shown(after)
    assert all(entry.facts.note for entry in after.entries)
