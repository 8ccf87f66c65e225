"""Spans and edits over JSON texts as clients really write them: odd spacing, odd escapes, duplicate keys, and things that are no JSON.

The oracle is the standard library: a span holds what `json.loads` says stands there, an edited text parses to the edited value, and every
byte outside the edited place is the one that was there before. Texts are drawn together with their value, so nothing is compared to itself.
"""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import jsonspan
from app.core.jsonspan import FRONT, REMOVED, Span, before
from app.errors import NotCompactable

SPACES = ["", "", "", " ", "\n", "\t ", "\r\n  "]
STRINGS = [
    '""',
    '"a"',
    '"é"',
    '"日本"',
    '"😀"',
    '"\\u0041"',
    '"\\"]},{"',
    '"\\\\"',
    '"[1,"',
    '"a\\n"',
    '"\\/"',
    '"role"',
]
LONE = ['"\\ud800"', '"x\\udfff"', '"\\ud800\\ud800"']
PLAIN = ["0", "-1", "1e2", "0.10", "1E400", "-0.0", "12345678901234567890123", "3.0e-7", "true", "false", "null"]
KEYS = ['"a"', '"b"', '"\\u0063"', '"é"', '"d\\""', '"😀"', '""', '"e:"']


class Texts:
    """Writes JSON texts of any value, with spacing of any kind. One number decides all: drawing each part would take seconds."""

    def __init__(self, seed: int, surrogates: bool = True) -> None:
        self._random = Random(seed)
        self._strings = STRINGS + LONE * surrogates

    def space(self) -> str:
        return self._random.choice(SPACES)

    def any(self, depth: int = 3) -> str:
        kind = self._random.randrange(4 if depth else 2)
        return [self.string, self.plain, self.array, self.object][kind](depth - 1)

    def string(self, _: int = 0) -> str:
        return self._random.choice(self._strings)

    def plain(self, _: int = 0) -> str:
        return self._random.choice(PLAIN)

    def array(self, depth: int = 3, least: int = 0) -> str:
        return "[" + self._joined([self.any(depth) for _ in range(self._random.randint(least, 4))]) + "]"

    def object(self, depth: int = 3) -> str:
        keys = {json.loads(key): key for key in self._random.choices(KEYS + self._strings, k=self._random.randrange(5))}
        return (
            "{" + self._joined([f"{key}{self.space()}:{self.space()}{self.any(depth)}" for key in keys.values()]) + "}"
        )

    def _joined(self, parts: list[str]) -> str:
        return ",".join(self.space() + part + self.space() for part in parts) or self.space()

    def spaced(self, text: str) -> str:
        return self.space() + text + self.space()


SEEDS = st.integers(0, 2**32)


def cut(raw: bytes, span: Span) -> Any:
    return json.loads(raw[slice(*span)])


# Finding


@settings(max_examples=300)
@given(SEEDS)
def test_members_are_where_the_values_are(seed: int) -> None:
    raw = (texts := Texts(seed)).spaced(texts.object()).encode()
    spans = jsonspan.members(raw)
    assert {key: cut(raw, span) for key, span in spans.items()} == json.loads(raw)
    assert all(raw[a:b] == raw[a:b].strip() for a, b in spans.values())


@settings(max_examples=300)
@given(SEEDS, st.sampled_from(["", "x", '{"é": ', " "]))
def test_elements_are_where_the_values_are(seed: int, before: str) -> None:
    text = (texts := Texts(seed)).spaced(texts.array())
    raw = (before + text + "]}").encode()
    start = len(before.encode())
    spans = jsonspan.elements(raw, start, start + len(text.encode()))
    assert [cut(raw, span) for span in spans] == json.loads(text)
    assert all(raw[a:b] == raw[a:b].strip() for a, b in spans)
    assert all(set(raw[a:b]) <= set(b" \t\r\n,") for (_, a), (b, _) in pairwise(spans))


@settings(max_examples=200)
@given(SEEDS)
def test_the_slow_way_finds_the_same_members(seed: int) -> None:
    """A lone surrogate anywhere sends a text the slow way, which then has to give what the fast one would."""
    raw = Texts(seed, surrogates=False).object().encode()
    assert jsonspan._scanned_members(raw) == jsonspan.members(raw)


@settings(max_examples=200)
@given(SEEDS)
def test_the_slow_way_finds_the_same_elements(seed: int) -> None:
    raw = Texts(seed, surrogates=False).array().encode()
    assert jsonspan._scanned_elements(raw, 0, len(raw)) == jsonspan.elements(raw)


def values(parsed: Any) -> int:
    """Arrays and objects, and what stands in them behind a comma."""
    if not isinstance(parsed, list | dict):
        return 0
    inner = parsed if isinstance(parsed, list) else list(parsed.values())
    return max(1, len(inner)) + sum(map(values, inner))


@settings(max_examples=300)
@given(SEEDS, st.integers(0, 20))
def test_values_are_counted_without_making_them(seed: int, most: int) -> None:
    parsed = (texts := Texts(seed)).any()
    told = values(
        json.loads(parsed, object_pairs_hook=lambda pairs: {str(at): pair[1] for at, pair in enumerate(pairs)})
    )
    assert jsonspan.more_values_than(most, texts.spaced(parsed).encode()) == (told > most)


@pytest.mark.parametrize("text", ['"[,{\\"[,{\\\\"', '"\\\\\\"[,{"', "[" + '"a,",' * 9 + '"[,"]', '{"a,": "[,"}'])
def test_marks_in_strings_are_no_values(text: str) -> None:
    told = values(json.loads(text))
    assert [jsonspan.more_values_than(most, text.encode()) for most in (told - 1, told)] == [
        told > 0,
        False,
    ] or not told


def test_a_long_key_takes_no_more_than_its_bytes() -> None:
    """A hundred bytes for each were a gigabyte for a key of ten megabytes."""
    for inner in (b"a", b"\\n"):
        raw = b'{"' + inner * 1_000_000 + b'": 1}'
        tracemalloc.start()
        assert [*jsonspan.members(raw).values()] == [(len(raw) - 2, len(raw) - 1)]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 10 * len(raw)


@settings(max_examples=200)
@given(SEEDS)
def test_a_value_is_what_the_text_says(seed: int) -> None:
    text = Texts(seed).any()
    assert jsonspan.value(text.encode()) == json.loads(text)


def test_a_span_keeps_the_spelling() -> None:
    raw = b'{ "n" : 1e2 ,"m":[ 0.10,\n"\\u0041" , {} ]}'
    spans = jsonspan.members(raw)
    assert raw[slice(*spans["n"])] == b"1e2"
    assert [raw[a:b] for a, b in jsonspan.elements(raw, *spans["m"])] == [b"0.10", b'"\\u0041"', b"{}"]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"b":0,"a":22}',
        b'{"a":[1,2],"\\u0061":{}}',
        b'{"a":"\\ud800","a":1}',
        b'{"a":"12,","":5,"a":"xyz,"}',
    ],
)
def test_a_duplicate_key_is_told(raw: bytes) -> None:
    with pytest.raises(NotCompactable, match="duplicate_key"):
        jsonspan.members(raw)


def test_a_duplicate_key_further_in_is_none_of_ours() -> None:
    raw = b'{"a":{"x":1,"x":2}}'
    assert raw[slice(*jsonspan.members(raw)["a"])] == b'{"x":1,"x":2}'


NO_JSON = [
    b"", b" ", b"{", b"[", b"[1", b"[1,,2]", b"[1] x", b"[,]", b"{,}", b'{"a" x: 1}', b'{"a":1,,"b":2}', b"nul", b"\xef\xbb\xbf[1]",
    b'["\\ud800",,2]', b'["\\ud800"', b'["\\ud800"] x', b'{"a":"\\ud800" "b":1}', b'{"a":"\\ud800",}', b"\x00", "[1]".encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("raw", NO_JSON)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    for look in (jsonspan.members, jsonspan.elements):
        with pytest.raises(NotCompactable, match=r"not_json|not_utf8"):
            look(raw)


def test_another_kind_of_value_is_refused() -> None:
    for raw in (b"[]", b'["\\ud800"]', b"1"):
        with pytest.raises(NotCompactable, match="not_json"):
            jsonspan.members(raw)
    for raw in (b"{}", b'{"a":"\\ud800"}', b"1"):
        with pytest.raises(NotCompactable, match="not_json"):
            jsonspan.elements(raw)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(NotCompactable, match="not_utf8"):
        jsonspan.members(b'{"\xff":"\\ud800"}')
    with pytest.raises(NotCompactable, match="not_json"):
        jsonspan.value(b'"\xff"')


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_any_depth_is_found_or_refused(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for raw in (b'{"a":' + deep + b"}", b'{"b":"\\ud800","a":' + deep + b"}"):
        with suppress(NotCompactable):
            assert raw[slice(*jsonspan.members(raw)["a"])] == deep
    with pytest.raises(NotCompactable, match="not_json"):
        jsonspan.value(b"[" * 100_000)


# Writing


@settings(max_examples=200)
@given(SEEDS)
def test_what_is_dumped_comes_back(seed: int) -> None:
    thing = json.loads(Texts(seed).any().replace("1E400", "1"))
    text = jsonspan.dump(thing)
    assert json.loads(text) == thing
    assert jsonspan.value(text) == thing


# Editing


def places(value: Any, path: jsonspan.Path = ()) -> list[jsonspan.Path]:
    """Every path into a value."""
    inner: list[jsonspan.Path] = []
    if isinstance(value, dict):
        for key, held in value.items():
            inner += places(held, (*path, key))
    elif isinstance(value, list):
        for at, held in enumerate(value):
            inner += places(held, (*path, at))
    return [path, *inner]


def put(value: Any, path: jsonspan.Path, new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: put(held, path[1:], new) if key == path[0] else held for key, held in value.items()}
    return [put(held, path[1:], new) if at == path[0] else held for at, held in enumerate(value)]


@settings(max_examples=300)
@given(SEEDS, st.data())
def test_an_edit_changes_one_place_and_no_other_byte(seed: int, data: st.DataObject) -> None:
    raw = Texts(seed).any().encode()
    value = json.loads(raw)
    path = data.draw(st.sampled_from([path for path in places(value) if path] or [()]))
    edited = jsonspan.edit(raw, [(path, b'"new"')])
    assert json.loads(edited) == put(value, path, "new")
    if path:
        before, found, after = edited.partition(b'"new"')
        assert found
        assert raw.startswith(before)
        assert raw.endswith(after)


@settings(max_examples=200)
@given(SEEDS, st.data())
def test_many_edits_are_one_after_the_other(seed: int, data: st.DataObject) -> None:
    raw = Texts(seed).any().encode()
    value = json.loads(raw)
    chosen = data.draw(st.lists(st.sampled_from(places(value)), unique=True, max_size=4))
    # None inside another one: the order would matter there.
    paths = [path for path in chosen if not any(path[: len(other)] == other for other in chosen if other != path)]
    edited = jsonspan.edit(raw, [(path, b"%d" % at) for at, path in enumerate(paths)])
    for at, path in enumerate(paths):
        value = put(value, path, at)
    assert json.loads(edited) == value


def test_no_edit_gives_the_same_object() -> None:
    raw = b'{"a": 1e2}'
    assert jsonspan.edit(raw, []) is raw


def test_a_missing_key_is_added_at_the_end() -> None:
    assert jsonspan.edit(b'{"a": 1e2 }', [(("b",), b"[]")]) == b'{"a": 1e2 ,"b":[]}'
    assert jsonspan.edit(b"{ }", [(("\ud800",), b"0")]) == b'{ "\\ud800":0}'
    assert jsonspan.edit(b'{"a":"}"}', [(("b",), b"1"), (("c",), b"2")]) == b'{"a":"}","b":1,"c":2}'


@settings(max_examples=200)
@given(SEEDS, st.data())
def test_elements_are_added_in_front_and_taken_out(seed: int, data: st.DataObject) -> None:
    raw = (texts := Texts(seed)).spaced(texts.array()).encode()
    value = json.loads(raw)
    gone = data.draw(st.sets(st.sampled_from(range(len(value))))) if value else set()
    added = data.draw(st.integers(0, 2))
    edits = [((at,), REMOVED) for at in gone] + [((FRONT,), b'"front %d"' % n) for n in range(added)]
    edited = jsonspan.edit(raw, edits)
    assert json.loads(edited) == [f"front {n}" for n in range(added)] + [
        v for at, v in enumerate(value) if at not in gone
    ]
    kept = [raw[a:b] for at, (a, b) in enumerate(jsonspan.elements(raw)) if at not in gone]
    assert [edited[a:b] for a, b in jsonspan.elements(edited)][added:] == kept


@settings(max_examples=200)
@given(SEEDS, st.data())
def test_elements_are_added_anywhere_and_all_else_stays(seed: int, data: st.DataObject) -> None:
    raw = (texts := Texts(seed)).spaced(texts.array()).encode()
    value = json.loads(raw)
    places = data.draw(st.lists(st.integers(0, len(value)), max_size=3, unique=True).map(sorted))
    edited = jsonspan.edit(raw, [((before(at),), b'"new %d"' % at) for at in places])
    expected = list(value)
    for at in reversed(places):
        expected.insert(at, f"new {at}")
    assert json.loads(edited) == expected
    if value:
        for at in places:
            edited = edited.replace(b'"new %d",' % at if at < len(value) else b',"new %d"' % at, b"")
        assert edited == raw


@pytest.mark.parametrize("path", [("a", "x", "y"), ("a", 3), ("a", -4), ("b", "c"), (0,)])
def test_an_edit_of_what_is_not_there_is_refused(path: jsonspan.Path) -> None:
    with pytest.raises(NotCompactable):
        jsonspan.edit(b'{"a":[{"x":{}}, 2]}', [(path, b"1")])


# Splicing


def body(texts: Texts, at: int) -> tuple[bytes, bytes]:
    """(a body with an array under `h` as its member number `at`, that array)"""
    history = texts.array(least=1)
    pairs = [(key, texts.any()) for key in ('"a"', '"\\u0063"', '"é"')]
    pairs.insert(at, ('"h"', history))
    text = ",".join(
        f"{texts.space()}{key}{texts.space()}:{texts.space()}{value}{texts.space()}" for key, value in pairs
    )
    return f"{{{text}}}".encode(), history.encode()


@settings(max_examples=300)
@given(SEEDS, st.integers(0, 3), st.data())
def test_splicing_keeps_head_tail_and_every_kept_element(seed: int, at: int, data: st.DataObject) -> None:
    raw, history = body(Texts(seed), at)
    old = [history[a:b] for a, b in jsonspan.elements(history)]
    kept = sorted(data.draw(st.sets(st.integers(0, len(old) - 1))))
    pieces: list[int | bytes] = list(kept)
    for note in sorted(data.draw(st.sets(st.integers(0, len(kept)), max_size=2)), reverse=True):
        pieces.insert(note, b'{"note":1}')
    spliced = jsonspan.splice(raw, "h", pieces, [len(element) for element in old])
    head, tail = jsonspan.members(raw)["h"]
    assert spliced.startswith(raw[:head])
    assert spliced.endswith(raw[tail:])
    start, stop = jsonspan.members(spliced)["h"]
    assert [spliced[a:b] for a, b in jsonspan.elements(spliced, start, stop)] == [
        piece if isinstance(piece, bytes) else old[piece] for piece in pieces
    ]


def test_neighbours_keep_what_stands_between_them() -> None:
    raw = b'{"h": [ 1 ,\n 2,3  ,  4 ] }'
    assert jsonspan.splice(raw, "h", [0, 1, 3], [1, 1, 1, 1]) == b'{"h": [ 1 ,\n 2,4 ] }'
    assert jsonspan.splice(raw, "h", [b"0", 2, 3], [1, 1, 1, 1]) == b'{"h": [ 0,3  ,  4 ] }'


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(NotCompactable):
        jsonspan.splice(b'{"h":[1,2,3]}', "h", [0], [1, 1])
    with pytest.raises(NotCompactable, match="duplicate_key"):
        jsonspan.splice(b'{"h":[1,2],"h":[3]}', "h", [0], [1])


@pytest.mark.parametrize("body", [b'{"x": "\xff", "messages": [1, 2]}', b'{"messages": [1, 2], "x": {"y": "\xc3("}}'])
def test_what_is_not_utf8_is_never_changed(body: bytes) -> None:
    """msgspec does not look inside strings that it skips."""
    assert set(jsonspan.members(body)) == {"x", "messages"}
    for change in (
        lambda: jsonspan.splice(body, "messages", [1], [1, 1]),
        lambda: jsonspan.edit(body, [(("new",), b"1")]),
        lambda: jsonspan.readable(body),
    ):
        with pytest.raises(NotCompactable) as refused:
            change()
        assert refused.value.reason == "not_utf8"
