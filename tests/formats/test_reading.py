"""A body is looked into once, by slices; what was read is remembered; what is rewritten changes in one place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import tokens
from app.core.view import Clearing, Edited, Entry, EntryCache, raw_bytes
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.reading import Reader, fingerprint, model_in, open_body

CHAT, MESSAGES = FORMATS["openai-chat"], FORMATS["anthropic-messages"]
FORMS = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


def reader(form: Any = CHAT, cache: EntryCache | None = None) -> Reader:
    return Reader(form, "o200k_base", EntryCache() if cache is None else cache)


# Opening a body


@FORMS
@pytest.mark.parametrize("odd", ["", "\\ud800"])
def test_items_and_fields_are_slices_of_the_body(form: Any, odd: str) -> None:
    """A lone surrogate sends the body the slow way, which gives the same."""
    key = form.fields[0]
    body = f'{{ "{key}" : ["x{odd}", 1e2] ,\n"{form.history}":[ {{"a" : 1e2}},{{"b":"{odd}"}}  ], "else": {{"n":0.10}} }}'.encode()
    opened = open_body(form, body)
    assert opened.body is body
    assert [raw_bytes(raw) for raw in opened.raws] == [b'{"a" : 1e2}', f'{{"b":"{odd}"}}'.encode()]
    assert raw_bytes(opened.fields.raw[key]) == f'["x{odd}", 1e2]'.encode()
    assert dict(opened.fields) == {key: json.loads(f'["x{odd}", 1e2]')}
    assert (list(opened.fields), len(opened.fields)) == ([key], 1)
    assert opened.last == json.loads(f'{{"b":"{odd}"}}')


@FORMS
@pytest.mark.parametrize(
    ("history", "reason"),
    [("7", "no_history"), ("null", "no_history"), ('{"a":1}', "no_history"), ("[", "not_json"), ("[1,]", "not_json")],
)
def test_what_has_no_history_is_refused(form: Any, history: str, reason: str) -> None:
    for before in ("", '"\\ud800":1,'):
        with pytest.raises(NotCompactable, match=reason):
            open_body(form, f'{{{before}"{form.history}":{history}}}'.encode())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"[]", "no_history|not_json"),
        (b"{}", "no_history"),
        (b'{"x":1}', "no_history"),
        (b'{"x":"\\ud800"}', "no_history"),
        (b'{"messages":[{}],"messages":["\\ud800"]}', "duplicate_key"),
        (b'{"\xff":"\\ud800"}', "not_utf8"),
        (b"\xef\xbb\xbf{}", "not_json"),
        (b'{"messages":' + b"[" * 100_000, "not_json"),
    ],
)
def test_what_can_not_be_looked_into_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(NotCompactable, match=reason):
        open_body(CHAT, body)


def test_a_history_of_one_text_has_no_items() -> None:
    for text in ("Hello", "\\ud800"):
        opened = open_body(FORMATS["openai-responses"], f'{{"input":"{text}"}}'.encode())
        assert opened.raws == []
        assert opened.last is None


# Entries


def test_equal_bytes_are_read_once() -> None:
    cache = EntryCache()
    items: list[Any] = [b'{"role":"user","content":"a"}', b'{"role":"user", "content":"a"}']
    first = reader(cache=cache).entries(items)
    again = reader(cache=cache).entries([items[0], *items])
    assert again == [first[0], *first]
    assert first[0] is not first[1]
    assert first[0].fingerprint == first[1].fingerprint
    other = reader(MESSAGES, cache).entries(items[:1])
    assert other[0] is not first[0]


def test_an_item_that_is_no_json_is_told() -> None:
    with pytest.raises(NotCompactable, match="not_json"):
        reader().entries([b'{"role":"user","content":"\xff"}'])


def test_the_count_is_of_every_part_and_four_tokens_an_item() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "/x"}'}}
    items: list[Any] = [
        json.dumps(item).encode()
        for item in (
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": "Wait.", "tool_calls": [call]},
        )
    ]
    own = reader()
    entries = own.entries(items)
    assert [entry.tokens for entry in entries] == [-1, -1]
    own.count(items, entries)
    parts = [tokens.count(text, "o200k_base") for text in ("How many?", "Wait.", '{"path": "/x"}')]
    assert [entry.tokens for entry in entries] == [4 + parts[0], 4 + parts[1] + parts[2] + 3]


def test_media_count_by_their_figure_and_are_known_before() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}
    item: list[Any] = [json.dumps(picture).encode()]
    own = reader()
    (entry,) = own.entries(item)
    own.count(item, [entry])
    assert entry.tokens == 4 + entry.media > 100


def test_what_stands_beside_the_history_is_counted_once() -> None:
    tools = json.dumps([{"type": "function", "function": {"name": "read", "description": "word " * 50}}])
    own = reader()

    def fixed(body: str) -> Entry:
        opened = open_body(CHAT, body.encode())
        entry = own.fixed(opened)
        own.count_fixed(opened, entry)
        return entry

    entry = fixed(f'{{"tools":{tools},"messages":[1]}}')
    assert entry.tokens > 50
    assert fixed(f'{{"model":"other","messages":[2, 3],"tools":{tools}}}') is entry
    assert fixed('{"messages":[1]}').tokens == 0
    assert fixed(f'{{"functions":{tools},"messages":[1]}}') is not entry


# Rewriting

RESULT = (
    b'{"role": "user", "content": [ {"type":"tool_result","tool_use_id":"a", "content":"long 1e2" } ,'
    b'{"type":"text","text":"\\u0041"}]}'
)


def test_a_rewritten_item_changes_in_one_place() -> None:
    own = reader(MESSAGES)
    text = own.rewrite(RESULT, Edited(0, (Clearing(0, "gone"),)))
    assert text == RESULT.replace(b'"long 1e2"', b'"gone"')
    assert own.rewrite(RESULT, Edited(0, (Clearing(0, "gone"),))) is text
    assert own.rewrite(RESULT, Edited(0, (Clearing(0, "else"),))) != text


def test_what_is_remembered_of_rewriting_is_one_bound_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.core.view.REWRITTEN_BYTES", 5_000)
    cache = EntryCache()
    for n in range(50):
        for own in (reader(MESSAGES, cache), reader(FORMATS["openai-chat"], cache)):
            own.rewrite(RESULT, Edited(0, (), f"{n}"))
        assert len(cache.rewritten) <= 12


def test_texts_of_an_item() -> None:
    own = reader(MESSAGES)
    assert own.text(RESULT) == "A"
    assert own.results(RESULT) == ["long 1e2"]
    assert [part.kind for part in own.parts(RESULT)] == ["result", "text"]


# Fingerprints


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5) | st.just("\ud800"), max_size=5))
def test_a_fingerprint_is_of_the_value(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert fingerprint(value) == fingerprint(backwards)
    assert len(fingerprint(value)) == 16
    assert fingerprint({**value, "more": 1}) != fingerprint(value)


def test_odd_values_have_a_fingerprint_too() -> None:
    values = ["\ud800", {"a": "\ud800"}, 10**40, 1e300, None, [], {}, ""]
    assert len({fingerprint(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("named", "model"), [('"gpt-4o"', "gpt-4o"), ('"\\ud800x"', "?x"), ("7", ""), ("null", ""), ('"\\u00e4"', "ä")]
)
def test_the_model_that_a_body_names_can_be_written_down(named: str, model: str) -> None:
    body = b'{"model": %b, "messages": []}' % named.encode()
    assert open_body(FORMATS["openai-chat"], body).model == model
    assert open_body(FORMATS["openai-chat"], b'{"messages": []}').model == ""


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"input": null, "prompt": {"model": "x"}, "model": "fw-1"}', "fw-1"),
        (b'{"model": "a\\ud800b"}', ""),
        (b'{"messages": [' + b"{}," * 9 + b'{}], "model": "m"}', "m"),
        (b'{"model": 7}', ""),
        (b"{}", ""),
        (b"[]", ""),
        (b'{"model": "m"', ""),
        (b"", ""),
    ],
)
def test_a_model_is_seen_though_the_history_is_not(body: bytes, model: str) -> None:
    assert model_in(body) == model
