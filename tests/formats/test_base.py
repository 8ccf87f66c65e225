"""What every format has to hold, whatever it reads: nothing raises, what it writes it also understands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import jsonspan
from app.core.view import Clearing
from app.formats import FORMATS
from app.formats.base import Format, Part, Usage
from app.formats.reading import fingerprint
from tests.formats.history import NOTE
from tests.strict import VIOLATIONS

# Keys and values that formats look for, so that odd shapes get behind the first check.
KEYS = st.sampled_from(
    ["role", "type", "content", "parts", "text", "tool_calls", "tool_call_id", "function", "function_call", "functionCall",
     "functionResponse", "id", "call_id", "name", "arguments", "input", "output", "source", "data", "caller", "tool_use_id", "image_url",
     "inlineData", "usage", "message", "response", "usageMetadata", "iterations", "output_config", "tool_call_ids", "summary", "x"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["user", "assistant", "model", "tool", "system", "developer", "function", "text", "tool_use", "tool_result", "server_tool_use",
     "web_search_tool_result", "thinking", "image", "document", "base64", "message", "function_call", "function_call_output", "reasoning",
     "custom", "compaction", "", "\ud800", "data:image/png;base64,AAAA"]
)  # fmt: skip
ANSWER_KEYS = st.sampled_from(
    ["choices", "message", "content", "tool_calls", "output", "candidates", "parts", "text", "type", "response", "item", "stop_reason",
     "finish_reason", "finishReason", "promptFeedback", "blockReason", "status", "incomplete_details", "reason", "usage", "refusal"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
EVERY = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS.keys())


def test_table_names_each_format_once() -> None:
    assert set(FORMATS) == {"openai-chat", "openai-responses", "anthropic-messages", "gemini"}
    assert all(form.name == name for name, form in FORMATS.items())


@settings(max_examples=200, deadline=None)
@given(value=JSON)
def test_reading_never_raises(value: Any) -> None:
    for form in FORMATS.values():
        facts = form.facts(value)
        for part in form.parts(value):
            assert isinstance(part.text, str)
            assert part.tokens >= 0
        fields = {key: value for key in form.fields}
        assert isinstance(form.refusal(fields, value), str)
        assert isinstance(form.session_hint(fields), str)
        assert all(isinstance(part, Part) for part in form.fixed(fields))
        assert form.usage(value) is None or isinstance(form.usage(value), Usage)
        assert all(one.size >= 0 for one in (*facts.calls, *facts.results))
        once = form.canonical(value)
        assert fingerprint(form.canonical(once)) == fingerprint(once)


@settings(max_examples=200, deadline=None)
@given(item=st.dictionaries(KEYS, JSON, max_size=5))
def test_every_place_offered_for_clearing_can_be_cleared(item: Any) -> None:
    for form in FORMATS.values():
        facts = form.facts(item)
        if facts.pinned:
            continue
        places = [Clearing(n, "[cleared]") for n, one in enumerate(facts.results) if one.clearable]
        places += [Clearing(n, "[cleared]", True) for n, one in enumerate(facts.calls) if one.clearable]
        after = jsonspan.value(jsonspan.edit(jsonspan.dump(item), form.clear(item, places)))
        again = form.facts(after)
        assert (again.role, again.opens_turn, again.pinned) == (facts.role, facts.opens_turn, facts.pinned)
        assert [one.id for one in again.results] == [one.id for one in facts.results]
        assert [one.id for one in again.calls] == [one.id for one in facts.calls]


@EVERY
def test_note_is_one_user_item_that_is_known_again(form: Format) -> None:
    item = json.loads(form.note(NOTE))
    facts = form.facts(item)
    assert (facts.role, facts.note, facts.opens_turn, facts.pinned) == ("user", True, True, False)
    assert [part.text for part in form.parts(item)] == [NOTE]
    assert not form.facts(json.loads(form.note("What is a note?"))).note


@EVERY
def test_note_can_lead_into_another_item(form: Format) -> None:
    led = jsonspan.value(jsonspan.edit(form.note("own"), form.lead(json.loads(form.note("own")), NOTE)))
    texts = "\n\n".join(part.text for part in form.parts(led))
    assert texts == f"{NOTE}\n\nown"
    assert form.facts(led).opens_turn


@EVERY
def test_error_names_code_and_message(form: Format) -> None:
    for status in (400, 401, 404, 413, 429, 500, 502, 504, 529):
        told = form.error(status, "some_code", 'It said "no" \ud83d\ude00.').decode()
        assert "some_code" in told
        assert '"no"' in json.dumps(json.loads(told)).replace("\\", "")
        assert form.overflow(status, told.encode()) is None


@EVERY
def test_merging_the_same_report_twice_changes_nothing(form: Format) -> None:
    usage = Usage(100, 20, 60, 5)
    assert form.merge(usage, usage) == usage
    assert form.merge(Usage(), usage) == usage


@EVERY
def test_paths_belong_to_one_format(form: Format) -> None:
    paths = [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1beta/models/m:generateContent",
        "/v1/models",
        "/v1/embeddings",
    ]
    ours = [path for path in paths if form.target(path)]
    assert len(ours) == 1
    target = form.target(ours[0])
    assert target is not None
    assert target.format == form.name


@EVERY
def test_question_is_a_plain_request_that_breaks_no_rule(form: Format) -> None:
    path, body = form.question("m-1", "Well? \ud83d", 700, "", (), {})
    told = json.loads(body)
    assert form.target(path.decode()) is not None
    assert VIOLATIONS[form.name](told) == []
    assert "Well? \\ud83d" in json.dumps(told)
    assert "700" in json.dumps(told)
    assert not told.keys() & {"tools", "stream", "temperature"}


@EVERY
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANSWER_KEYS, inner, max_size=4),
        max_leaves=12,
    )
)
@settings(max_examples=200, deadline=None)
def test_answer_never_raises(form: Format, body: Any) -> None:
    form.answer(body)
