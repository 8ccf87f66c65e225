"""OpenAI chat completions: each wire rule that a cut or a clearing could break, by its id, on real JSON bodies.

Rules of the servers that speak this format (Q) are judged with the strict provider's quirks.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core import jsonspan, rules
from app.core.media import Image
from app.core.plan import Clear, Plan
from app.formats import FORMATS
from app.formats.base import Answer, Part, Usage
from app.formats.reading import fingerprint
from tests.formats.history import CLEARED, NOTE, History, Item

FORM = FORMATS["openai-chat"]
IMAGE = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}


def message(role: str, content: Any, **more: Any) -> Item:
    return {"role": role, "content": content, **more}


def user(content: Any) -> Item:
    return message("user", content)


def says(content: Any, **more: Any) -> Item:
    return message("assistant", content, **more)


def asks(*numbers: int, content: Any = None, **more: Any) -> Item:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "read", "arguments": '{"path": "/src"}'}}
        for n in numbers
    ]
    return message("assistant", content, tool_calls=calls, **more)


def tells(n: int, content: Any = "line of code " * 20, **more: Any) -> Item:
    return message("tool", content, tool_call_id=f"call_{n}", **more)


def history(*items: Item, quirks: frozenset[str] = frozenset(), **fields: Any) -> History:
    return History("openai-chat", *items, quirks=quirks, **{"model": "gpt-5.1", **fields})


ROUND = (user("a"), says("b"), user("c"), asks(1), tells(1), says("d"), user("e"))


# Pairs


def test_C1_C2_call_and_answers_leave_together() -> None:
    talk = history(message("system", "s"), *ROUND)
    assert talk.boundaries == [1, 2, 3, 4, 6, 7]
    assert talk.assert_never_worse() > 8
    talk.assert_forbidden(1, 5, "C2")


def test_C1_call_broken_long_ago_freezes_nothing() -> None:
    talk = history(user("a"), asks(9), user("never mind"), asks(1), tells(1), says("b"), user("c"))
    assert {2, 3, 5} <= set(talk.boundaries)
    assert talk.assert_never_worse() > 5


def test_C2_answer_whose_call_is_gone_is_no_new_fault() -> None:
    talk = history(tells(7), user("a"), says("b"), user("c"))
    assert talk.assert_never_worse() > 2
    assert not talk.worse(Plan("test", 1, 3, "omitted"))


def test_C3_C4_parallel_calls_and_all_answers_leave_together() -> None:
    talk = history(user("a"), asks(1, 2), tells(2), tells(1), says("b"), user("c"))
    assert talk.boundaries == [1, 4, 5]
    assert talk.assert_never_worse()
    talk.assert_forbidden(0, 3, "C2")


def test_C5_ids_used_again_pair_by_position() -> None:
    talk = history(user("a"), asks(1), tells(1), says("b"), user("c"), asks(1), tells(1), says("d"), user("e"))
    assert talk.boundaries == [1, 3, 4, 5, 7, 8]
    assert talk.assert_never_worse() > 8


def test_C6_odd_tool_calls_do_not_break_reading() -> None:
    for calls in ([], {}, "x", [None, 3], [{"id": 4, "function": "f"}], [{"type": "custom"}]):
        for call in FORM.facts(says("x", tool_calls=calls)).calls:
            assert (call.id, call.tool, call.clearable) == ("", "", False)
        assert [part.kind for part in FORM.parts(says("x", tool_calls=calls))] == ["text"]


def test_C8_Q14_cleared_arguments_are_the_text_of_an_object() -> None:
    talk = history(*ROUND, quirks=frozenset({"json_arguments"}))
    after = talk.clear(Clear(3, 0, True))
    assert after[3]["tool_calls"][0]["function"] == {"name": "read", "arguments": "{}"}
    assert talk.assert_never_worse()


def test_C9_C10_Q20_content_stays_null_or_empty_as_it_was() -> None:
    talk = history(user("a"), asks(1), tells(1), asks(2, content=""), tells(2), says("b"), user("c"))
    after = talk.clear(*talk.clearable())
    assert (after[1]["content"], after[3]["content"]) == (None, "")
    assert talk.assert_never_worse()


def test_C11_C12_cleared_result_is_text_without_pictures() -> None:
    talk = history(
        user("a"), asks(1), tells(1, [{"type": "text", "text": "shot"}, IMAGE], name="shoot"), says("b"), user("c")
    )
    assert talk.clear(Clear(2, 0))[2] == tells(1, CLEARED, name="shoot")
    assert talk.assert_never_worse()


def test_C13_refusal_is_read_and_left_alone() -> None:
    refused = says([{"type": "refusal", "refusal": "I can't."}])
    talk = history(user("a"), says("b"), user("c"), refused, user("d"))
    assert talk.cut(0, 2)[2] == refused
    assert list(FORM.parts(refused)) == list(FORM.parts(says(None, refusal="I can't."))) == [Part("text", "I can't.")]


def test_C14_spoken_answer_is_pinned() -> None:
    assert FORM.facts(says(None, audio={"id": "audio_1"})).pinned
    assert not FORM.facts(says("b", audio=None)).pinned


def test_C15_function_call_of_old_pairs_by_name() -> None:
    asked = says(None, function_call={"name": "read", "arguments": '{"a": 1}'})
    told = message("function", "text", name="read")
    talk = history(user("a"), asked, told, says("b"), asked, told, says("c"), user("d"))
    assert talk.boundaries == [1, 3, 4, 6, 7]
    assert talk.assert_never_worse() > 5
    after = talk.clear(Clear(1, 0, True), Clear(2, 0))
    assert after[1]["function_call"] == {"name": "read", "arguments": "{}"}
    assert after[2] == message("function", CLEARED, name="read")


def test_C16_custom_input_is_free_text() -> None:
    calls = [{"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]
    talk = history(user("a"), says(None, tool_calls=calls), tells(1), says("b"), user("c"))
    assert talk.facts[1].calls[0].tool == "sql"
    assert talk.clear(Clear(1, 0, True))[1]["tool_calls"][0]["custom"] == {"name": "sql", "input": CLEARED}
    assert talk.assert_never_worse()


@pytest.mark.parametrize("role", ["system", "developer"])
def test_C17_C18_instructions_stay_where_they_were(role: str) -> None:
    talk = history(message(role, "s"), user("a"), says("b"), message(role, "late"), user("c"), says("d"), user("e"))
    assert rules.head_end(talk.facts) == 1
    note = {"role": "user", "content": NOTE}
    assert talk.cut(1, 6) == [message(role, "s"), note, message(role, "late"), user("e")]
    assert talk.assert_never_worse() > 5


def test_C20_last_role_never_changes() -> None:
    talk = history(user("a"), says("b"), user("c"), says("The answer is"))
    assert rules.level(talk.facts) == 0
    assert talk.assert_never_worse() > 1
    assert {talk.cut(start, stop)[-1]["role"] for start, stop in talk.cuts() if stop < 4} == {"assistant"}


def test_C22_history_is_never_empty() -> None:
    talk = history(message("system", "s"), user("a"))
    assert talk.worse(Plan("test", 1, 2))["empty"]


def test_C23_prediction_is_counted() -> None:
    predicted = {"type": "content", "content": [{"type": "text", "text": "code"}]}
    assert list(FORM.fixed({"prediction": predicted})) == [Part("text", "code")]


def test_C29_json_mode_obliges_to_a_word() -> None:
    assert FORM.obliges({"response_format": {"type": "json_object"}}) == "JSON"
    for other in (
        {},
        {"response_format": None},
        {"response_format": "json_object"},
        {"response_format": {"type": "json_schema"}},
    ):
        assert FORM.obliges(other) == ""


def test_C26_moving_breakpoints_change_nothing() -> None:
    marked = user(
        [
            {
                "type": "text",
                "text": "a",
                "prompt_cache_breakpoint": {"mode": "explicit"},
                "cache_control": {"type": "ephemeral"},
            }
        ]
    )
    assert fingerprint(FORM.canonical(marked)) == fingerprint(FORM.canonical(user("a")))


def test_C27_C28_fields_of_servers_stay_on_kept_messages() -> None:
    extra = {
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        "provider_specific_fields": {"a": 1e2},
    }
    signed = asks(1, **extra)
    signed["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "sig"}}
    talk = history(
        user("a"),
        says("b"),
        user("c"),
        signed,
        tells(1),
        says("d"),
        user("e"),
        quirks=frozenset({"thought_signatures"}),
    )
    assert talk.cut(0, 2)[2] == signed
    assert talk.clear(Clear(3, 0, True), Clear(4, 0))[3]["tool_calls"][0]["extra_content"] == {
        "google": {"thought_signature": "sig"}
    }
    assert talk.assert_never_worse() > 5


# Servers with rules of their own


def test_Q1_Q2_Q3_Q26_mistrals_order_before_a_new_question() -> None:
    talk = history(message("system", "s"), *ROUND, quirks=frozenset({"mistral_order"}))
    for stop in (3, 7):  # where a question follows
        assert not talk.worse(Plan("test", 1, stop, "omitted"))


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"])
def test_Q6_Q8_turn_with_reasoning_is_cut_only_before_reasoning(key: str) -> None:
    thought = {
        key: "hm"
        if key.startswith("reasoning") and key != "reasoning_details"
        else [{"type": "thinking", "thinking": "hm"}]
    }
    talk = history(
        user("a"), says("b"), user("c"), asks(1, **thought), tells(1), asks(2), tells(2), asks(3, **thought), tells(3)
    )
    assert talk.boundaries == [1, 2, 3, 7]
    assert talk.assert_never_worse() > 3
    assert next(FORM.parts(talk.items(talk.body)[3])) == Part("reasoning", "hm")


def test_Q6_deepseek_wants_its_reasoning_back() -> None:
    thought = {"reasoning_content": "hm"}
    talk = history(
        user("a"), asks(1, **thought), tells(1), says("b", **thought), user("c"), asks(2, **thought), tells(2),
        quirks=frozenset({"deepseek_reasoning"}),
    )  # fmt: skip
    assert talk.assert_never_worse() > 3


def test_Q7_Q10_no_reasoning_is_ever_added() -> None:
    talk = history(*ROUND, quirks=frozenset({"refuses_reasoning"}))
    assert talk.assert_never_worse() > 5


def test_Q15_note_goes_into_the_question_for_strict_templates() -> None:
    talk = history(
        message("system", "s"),
        user("a"),
        says("b"),
        user("c"),
        says("d"),
        user("e"),
        quirks=frozenset({"alternating_roles"}),
    )
    assert talk.worse(Plan("test", 1, 5, "omitted"))["Q15"]
    led = talk.applied(Plan("test", 1, 5, "omitted"), lead=True)
    assert talk.items(led) == [message("system", "s"), user(f"{NOTE}\n\ne")]
    assert not talk.refusals(led) - talk.refusals(talk.body)


def test_Q11_mistrals_thinking_parts() -> None:
    item = says([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "b"}])
    assert FORM.facts(item).reasoning
    assert not FORM.facts(item).pinned
    assert list(FORM.parts(item)) == [Part("reasoning", "hm"), Part("text", "b")]


# Reading


@pytest.mark.parametrize(
    "item",
    [
        {"role": "critic", "content": "x"},
        {"role": ["user"]},
        {},
        None,
        "text",
        user([{"type": "hologram"}]),
        says([{"a": 1}]),
        user([3]),
    ],
)
def test_X5_what_is_not_known_is_pinned(item: Any) -> None:
    assert FORM.facts(item).pinned
    list(FORM.parts(item))
    FORM.canonical(item)


def test_X10_agents_own_compaction_passes() -> None:
    asked = "Provide a detailed prompt for continuing our conversation above."
    assert (
        FORM.refusal({}, user(asked))
        == FORM.refusal({}, user([{"type": "text", "text": asked}]))
        == "client_compaction"
    )
    assert FORM.refusal({}, says(asked)) == FORM.refusal({}, user("go on")) == FORM.refusal({}, None) == ""


def test_results_without_an_id_and_with_many() -> None:
    talk = history(
        user("a"), asks(1, 2), message("tool", "both", tool_call_ids=["call_1", "call_2"]), says("b"), user("c")
    )
    assert talk.boundaries == [1, 3, 4]
    assert [(one.id, one.size, one.clearable) for one in talk.facts[2].results] == [
        ("call_1", 4, True),
        ("call_2", 0, False),
    ]
    assert [one.id for one in FORM.facts(message("tool", "x")).results] == [""]
    assert history(user("a"), says("b"), message("tool", "x", name="doc"), says("c"), user("d")).boundaries == [1, 3, 4]


def test_sizes_are_bytes_of_what_would_go() -> None:
    sizes = [FORM.facts(tells(1, content)).results[0].size for content in ("äö", None, [IMAGE], {"a": 1})]
    assert sizes == [4, 0, len(jsonspan.dump([IMAGE])), 7]
    assert FORM.facts(asks(1)).calls[0].size == len('{"path": "/src"}')


def test_parts_read_everything_that_a_model_reads() -> None:
    content = [
        {"type": "text", "text": "see"}, IMAGE, {"type": "image_url", "image_url": {"url": "data:image/png;base64,??", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 200_000}},
    ]  # fmt: skip
    assert list(FORM.parts(user(content))) == [
        Part("text", "see"), Part("media", "image", image=Image()), Part("media", "image/png", image=Image(detail="low")),
        Part("media", "input_audio", tokens=1), Part("media", "application/pdf", tokens=6_000),
    ]  # fmt: skip
    assert list(FORM.parts(asks(1, content="b"))) == [Part("text", "b"), Part("call", '{"path": "/src"}', "read")]
    assert list(FORM.parts(tells(1, {"a": 1}))) == [Part("result", '{"a":1}')]
    both = says("b", reasoning="hm", reasoning_details=[{"text": "hm"}])
    assert [part.kind for part in FORM.parts(both)] == ["reasoning", "text"]


def test_fixed_is_tools_and_schema() -> None:
    fields = {"tools": [{"a": 1}], "functions": None, "response_format": {"type": "json_object"}, "prediction": None}
    assert [part.text for part in FORM.fixed(fields)] == ['[{"a":1}]', '{"type":"json_object"}']


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (user("a"), user([{"type": "text", "text": "a"}]), True),
        (asks(1), {key: value for key, value in asks(1).items() if key != "content"}, True),
        (says("b"), says("b", refusal=None, function_call=None, cache_control={"type": "ephemeral"}), True),
        (user("a"), {"content": "a", "role": "user", "client_metadata": {"turn": 3}}, True),
        (user("a"), says("a"), False),
        (user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), user("ab"), False),
        (user([{"type": "text", "text": "a"}, IMAGE]), user("a"), False),
        (says("b", reasoning_content="hm"), says("b"), True),
        (says("b", reasoning="hm", reasoning_details=[{"text": "hm"}], thinking_blocks=[{}]), says("b"), True),
        (
            says([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "b"}]),
            says("b"),
            True,
        ),
        (says("b", reasoning_content="hm"), says("c", reasoning_content="hm"), False),
        (tells(1), tells(2), False),
    ],
)
def test_same_message_or_another(one: Item, other: Item, same: bool) -> None:
    assert (fingerprint(FORM.canonical(one)) == fingerprint(FORM.canonical(other))) == same


def test_note_is_known_again_and_opens_a_turn() -> None:
    facts = FORM.facts(json.loads(FORM.note(NOTE)))
    assert facts.note
    assert facts.opens_turn
    assert not FORM.facts(user("a")).note


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"role":"user","content":"own","n":1e2}', b'{"role":"user","content":"ahead\\n\\nown","n":1e2}'),
        (
            b'{"content":[{"text":"own","type":"text"},{"n":1e2}]}',
            b'{"content":[{"text":"ahead\\n\\nown","type":"text"},{"n":1e2}]}',
        ),
        (
            b'{"content":[{"type":"file"},{"n":1e2}]}',
            b'{"content":[{"type":"text","text":"ahead"},{"type":"file"},{"n":1e2}]}',
        ),
        (
            b'{"content":[ {"n":1e2, "type" : "file"} ,\n {"n":1e2}\t]}',
            b'{"content":[ {"type":"text","text":"ahead"},{"n":1e2, "type" : "file"} ,\n {"n":1e2}\t]}',
        ),
        (b'{"content":[]}', b'{"content":[{"type":"text","text":"ahead"}]}'),
    ],
)
def test_lead_changes_nothing_but_the_text(raw: bytes, expected: bytes) -> None:
    assert jsonspan.edit(raw, FORM.lead(json.loads(raw), "ahead")) == expected


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("/v1/chat/completions", True), ("/chat/completions", True), ("/openai/deployments/d/chat/completions", True),
        ("/v1/completions", False), ("/v1/chat/completions/chatcmpl_1", False), ("/v1/responses", False),
    ],
)  # fmt: skip
def test_target(path: str, is_ours: bool) -> None:
    target = FORM.target(path)
    assert (target is not None and target.format == "openai-chat") == is_ours


def test_session_hint() -> None:
    assert FORM.session_hint({"prompt_cache_key": "k"}) == "k"
    assert FORM.session_hint({"prompt_cache_key": 3}) == FORM.session_hint({}) == ""


# Answers


@pytest.mark.parametrize(
    ("event", "usage"),
    [
        (
            {"usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}},
            Usage(100, 7, 60),
        ),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": {"cache_write_tokens": 4}}},
            Usage(9, 0, 0, 4),
        ),
        (
            {"choices": [], "usage": None, "x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}},
            Usage(9, 2),
        ),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 5}}, Usage(9, 2, 5)),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 5, "prompt_tokens_details": None}},
            Usage(9, 2, 5),
        ),
        ({"choices": [{"delta": {}, "usage": {"prompt_tokens": 9, "completion_tokens": 2}}]}, Usage(9, 2)),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": "x"}}, Usage()),
        ({"choices": [{"delta": {}}], "usage": None}, None),
        ({"error": {"message": "x"}}, None),
        ("[DONE]", None),
        ([1], None),
    ],
)
def test_U1_U2_U4_usage(event: Any, usage: Usage | None) -> None:
    assert FORM.usage(event) == usage


def test_U2_the_last_report_counts() -> None:
    assert FORM.merge(Usage(9, 2), Usage(9, 30, 5)) == Usage(9, 30, 5)
    assert FORM.merge(Usage(9, 2, 5), Usage(0, 4)) == Usage(9, 4, 5)


def test_E1_E3_overflow() -> None:
    error = {
        "message": "This model's maximum context length is 8192 tokens.",
        "code": "context_length_exceeded",
        "param": "messages",
    }
    assert FORM.overflow(400, json.dumps({"error": error}).encode()) == 8_192
    assert FORM.overflow(400, FORM.error(400, "unknown_policy", "No such policy.")) is None


def test_error_has_the_providers_shape() -> None:
    told = json.loads(FORM.error(400, "unknown_policy", "No such policy."))
    assert told == {
        "error": {
            "message": "No such policy.",
            "type": "invalid_request_error",
            "param": None,
            "code": "unknown_policy",
        }
    }
    assert json.loads(FORM.error(502, "upstream_unreachable", "x"))["error"]["type"] == "server_error"


# A question of compactd's own


def asked(
    model: str = "gpt-4o", path: str = "", quirks: tuple[str, ...] = (), fields: Item | None = None
) -> tuple[str, Item]:
    way, body = FORM.question(model, "Well?", 700, path, quirks, fields or {})
    return way.decode(), json.loads(body)


def test_question_has_the_limit_that_the_model_takes() -> None:
    assert asked() == ("/v1/chat/completions", {"model": "gpt-4o", "messages": [user("Well?")], "max_tokens": 700})
    assert asked("gpt-5", quirks=("max_completion_tokens",))[1] == {
        "model": "gpt-5", "messages": [user("Well?")], "max_completion_tokens": 700,
    }  # fmt: skip


def test_question_on_azure_names_its_model_in_the_path() -> None:
    path = "/openai/deployments/prod/chat/completions"
    assert (
        asked("gpt-4o", path, fields={"model": "gpt-4o"})[0] == path
    )  # the client's own: what it is called there, the path says
    assert asked("", path, fields={}) == (path, {"messages": [user("Well?")], "max_tokens": 700})
    assert asked("prod", path, fields={}) == (path, {"messages": [user("Well?")], "max_tokens": 700})
    assert asked("cheap", path, fields={})[0] == "/openai/deployments/cheap/chat/completions"
    assert asked("cheap one", path, fields={"model": "gpt-4o"})[0] == "/openai/deployments/cheap%20one/chat/completions"
    assert asked("cheap", "/openai/v1/chat/completions", fields={"model": "gpt-4o"})[0] == "/openai/v1/chat/completions"


@pytest.mark.parametrize(
    ("answer", "stop", "said", "problem"),
    [
        (says("a"), "stop", "a", ""),
        (says("a"), None, "a", ""),
        (says([{"type": "text", "text": "a"}]), "stop", "a", ""),
        (says("a", reasoning_content="hm"), "stop", "a", ""),
        (
            says([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]),
            "stop",
            "a",
            "",
        ),
        (says("<think>\nhm\n</think>\n\na"), "stop", "\n\na", ""),
        (says("a"), "length", "a", "truncated"),
        (says("a"), "model_length", "a", "truncated"),
        (says("a"), "content_filter", "a", "refused"),
        (says("a"), "error", "a", "failed"),
        (says(None, refusal="No."), "stop", "", "refused"),
        (asks(1), "tool_calls", "", "tool_call"),
        (asks(1, content="a"), "stop", "a", "tool_call"),
        (says(None, function_call={"name": "read", "arguments": "{}"}), "function_call", "", "tool_call"),
        (says("", reasoning_content="hm"), "stop", "", "reasoning_only"),
        (says(None, reasoning_details=[{"text": "hm"}]), "stop", "", "reasoning_only"),
        (says("<think>hm"), "stop", "", "reasoning_only"),
        (says("<think>hm"), "length", "", "truncated"),
        (says(None), "stop", "", ""),
    ],
)
def test_answer(answer: Item, stop: str | None, said: str, problem: str) -> None:
    body = {
        "choices": [{"message": answer, "finish_reason": stop}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    assert FORM.answer(body) == Answer(said, problem, Usage(5, 2))


def test_answer_without_choices_is_empty() -> None:
    assert FORM.answer({"error": {"message": "provider returned error"}}) == FORM.answer({"choices": []}) == Answer("")
