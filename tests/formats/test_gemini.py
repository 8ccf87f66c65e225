"""Gemini: each wire rule that a cut or a clearing could break, by its id, on real JSON bodies.

Contents are those of Gemini 3: the first call of each step carries a signature.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import jsonspan, rules
from app.core.plan import Clear, Plan
from app.core.view import Clearing
from app.formats import FORMATS
from app.formats.base import Answer, Usage
from app.formats.reading import fingerprint
from tests.formats.history import CLEARED, NOTE, History, Item

FORM = FORMATS["gemini"]
SIGNED = {"thoughtSignature": "c2ln"}


def user(text: str) -> Item:
    return {"role": "user", "parts": [{"text": text}]}


def says(text: str) -> Item:
    return {"role": "model", "parts": [{"text": text}]}


def calls(*names: str, **more: Any) -> Item:
    """A step as Gemini 3 writes it: the first of its calls is signed."""
    parts = [{"functionCall": {"name": name, "args": {"path": "a"}, **more}} for name in names]
    return {"role": "model", "parts": [parts[0] | SIGNED, *parts[1:]]}


def answers(*names: str, **more: Any) -> Item:
    parts = [{"functionResponse": {"name": name, "response": {"output": "a.py"}, **more}} for name in names]
    return {"role": "user", "parts": parts}


def talk(*items: Item) -> History:
    return History("gemini", *items, quirks=frozenset({"thought_signatures"}))


def boundaries(*items: Item) -> list[int]:
    return talk(*items).boundaries


def assert_never_worse(*items: Item) -> int:
    return talk(*items).assert_never_worse()


def cleared(item: Item, ordinal: int = 0, inputs: bool = False) -> Item:
    edits = FORM.clear(item, [Clearing(ordinal, "[cleared]", inputs)])
    return json.loads(jsonspan.edit(json.dumps(item).encode(), edits))


# Turns


@pytest.mark.parametrize(
    ("item", "role", "opens"),
    [
        (user("hi"), "user", True),
        ({"parts": [{"text": "hi"}]}, "user", True),
        ({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA"}}]}, "user", True),
        (says("hi"), "assistant", False),
        (calls("ls"), "assistant", False),
        (answers("ls"), "tool", False),
        (answers("ls") | {"role": "function"}, "tool", False),
        ({"role": "user", "parts": [*answers("ls")["parts"], {"text": "and then?"}]}, "tool", False),
        ({"role": "user", "parts": []}, "user", False),
        ({"role": "user"}, "user", False),
    ],
)
def test_G1_G12_roles_and_what_opens_a_turn(item: Item, role: str, opens: bool) -> None:
    facts = FORM.facts(item)
    assert (facts.role, facts.opens_turn, facts.pinned) == (role, opens, False)


def test_G2_a_call_turn_never_comes_first_or_after_the_model() -> None:
    history = [
        user("a"),
        calls("ls"),
        answers("ls"),
        says("ok"),
        user("b"),
        calls("cat"),
        answers("cat"),
        says("ok"),
        user("c"),
    ]
    assert assert_never_worse(*history) > 10
    bare = talk(*history[1:]).facts
    assert ("first_role", "assistant", 1) in rules.violations(bare)


def test_G3_G4_a_step_and_its_answers_leave_together() -> None:
    history = [
        user("a"),
        calls("ls", "ls", "cat"),
        answers("ls", "ls", "cat"),
        calls("ls"),
        answers("ls"),
        says("ok"),
        user("b"),
    ]
    assert boundaries(*history) == [1, 3, 5, 6]
    assert assert_never_worse(*history) > 5


def test_G3_several_calls_of_one_name_pair_in_order() -> None:
    facts = [
        FORM.facts(item) for item in (user("a"), calls("ls", "ls"), answers("ls", "ls"), calls("ls"), answers("ls"))
    ]
    assert rules.pair(facts).call_of == {(2, 0): (1, 0), (2, 1): (1, 1), (4, 0): (3, 0)}


def test_G3_answers_resent_after_a_resume_belong_to_their_call() -> None:
    twice = answers("ls", id="ls_1")
    twice["parts"] *= 2
    history = [
        user("a"),
        calls("ls", id="ls_1"),
        twice,
        calls("ls", id="ls_2"),
        answers("ls", id="ls_2"),
        says("ok"),
        user("b"),
    ]
    assert boundaries(*history) == [1, 3, 5, 6]
    assert assert_never_worse(*history) > 5
    assert FORM.canonical(twice) == FORM.canonical(answers("ls", id="ls_1"))
    assert [result.path for result in FORM.facts(twice).results] == [
        result.path for result in FORM.facts(answers("ls", id="ls_1")).results
    ]
    assert [part["functionResponse"]["response"] for part in cleared(twice)["parts"]] == [{"output": "[cleared]"}] * 2


@pytest.mark.parametrize("ident", ["{}", "same"])
def test_thousands_of_answers_in_one_content_are_read_and_cleared_as_a_few_are(ident: str) -> None:
    """In one pass: each was compared with all others, and a few megabytes held a worker up for minutes."""
    many = 20_000
    item = {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "ls", "id": ident.format(at), "response": {"output": str(at)}}}
            for at in range(many)
        ],
    }
    results = FORM.facts(item).results
    assert len(results) == (1 if ident == "same" else many)
    assert FORM.canonical(item)["parts"] == item["parts"]
    edits = FORM.clear(item, [Clearing(at, "[cleared]") for at in range(len(results))])
    assert [path for path, _ in edits] == [("parts", at, "functionResponse", "response") for at in range(many)]


def test_G4_answers_in_contents_of_their_own_stay_with_their_calls() -> None:
    history = [user("a"), calls("ls", "cat"), answers("ls"), answers("cat"), user("b"), says("ok"), user("c")]
    assert boundaries(*history) == [1, 4, 5, 6]
    assert assert_never_worse(*history) > 3


def test_G4_an_empty_content_between_call_and_answer_leaves_with_them() -> None:
    history = [user("a"), calls("ls"), says(""), answers("ls"), says("ok"), user("b")]  # google-genai streams do this
    assert boundaries(*history) == [1, 4, 5]
    assert assert_never_worse(*history) > 3


def test_G5_G8_the_note_is_a_content_of_its_own() -> None:
    after = talk(user("a"), calls("ls"), answers("ls"), says("ok"), user("b"), calls("ls"), answers("ls")).cut(0, 4)
    assert after[0] == {"role": "user", "parts": [{"text": NOTE}]}
    assert after[1:] == [user("b"), calls("ls"), answers("ls")]


def test_G6_a_request_that_ends_on_the_user_still_does() -> None:
    said = talk(user("a"), says("x"), user("b"), says("y"), user("c"))
    assert all(said.cut(start, stop)[-1] == user("c") for start, stop in said.cuts())
    assert ("last_role", "assistant", 1) in rules.violations(talk(user("a"), says("x")).facts)


def test_G7_lead_stands_ahead_of_the_question_in_one_content() -> None:
    led = json.loads(jsonspan.edit(json.dumps(user("go on")).encode(), FORM.lead(user("go on"), NOTE)))
    assert led == {"role": "user", "parts": [{"text": NOTE}, {"text": "go on"}]}
    assert FORM.facts(led).opens_turn
    assert not FORM.facts(led).note, "the question is still the client's"
    assert FORM.facts(json.loads(FORM.note(NOTE))).note


# Signatures


def test_G11_steps_of_the_current_turn_keep_their_signatures() -> None:
    steps = [calls("ls"), answers("ls"), calls("cat", "ls"), answers("cat", "ls"), calls("ls"), answers("ls")]
    history = [user("a"), says("x"), user("b"), *steps]
    assert boundaries(*history) == [1, 2, 3, 5, 7]
    assert assert_never_worse(*history) > 3
    said = talk(*history)
    for start, stop in said.cuts():
        kept = said.cut(start, stop)
        assert kept[-2:] == steps[-2:], "the open round is the client's own"
        assert all(one in history or one == json.loads(FORM.note(NOTE)) for one in kept)


def test_G12_a_signature_in_an_old_turn_freezes_nothing() -> None:
    thought = {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "ok"} | SIGNED]}
    history = [user("a"), calls("ls"), answers("ls"), thought, user("b"), says("y"), user("c")]
    assert boundaries(*history) == [1, 3, 4, 5, 6]
    assert not any(FORM.facts(item).reasoning for item in history)


def test_G13_G15_signed_parts_are_copied_byte_for_byte() -> None:
    said = talk(
        user("a"),
        says("x"),
        user("b"),
        calls("ls", "cat"),
        answers("ls", "cat"),
        says("é") | {"parts": [{"text": "é"} | SIGNED]},
        user("c"),
    )
    body, after = said.body, said.applied(Plan("test", 0, 2, "omitted"))
    assert after.endswith(body[body.index(b'{"role": "user", "parts": [{"text": "b"}]}') :])


def test_G11_arguments_of_a_signed_call_are_not_cleared() -> None:
    first, second = FORM.facts(calls("ls", "cat")).calls
    assert (first.clearable, second.clearable) == (False, True)


# Other parts


def test_G19_contents_with_nothing_in_them_are_read() -> None:
    for item in (
        {"role": "model", "parts": []},
        {"role": "model"},
        {"role": "model", "parts": [{}]},
        {"role": "model", "parts": None},
    ):
        assert not FORM.facts(item).pinned
        assert list(FORM.parts(item)) == []


def test_G21_G22_a_body_behind_cached_content_passes() -> None:
    assert FORM.refusal({"cachedContent": "cachedContents/1"}, user("a")) == "server_history"
    assert FORM.refusal({"cached_content": "cachedContents/1"}, user("a")) == "server_history"
    assert FORM.refusal({"cachedContent": ""}, user("a")) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Generate a new <state_snapshot>.\n\nFirst, reason in your scratchpad. Then, generate the updated <state_snapshot>.",
            "client_compaction",
        ),
        ("First, reason in your scratchpad. Then, generate the <state_snapshot>.", "client_compaction"),
        ("Critically evaluate the <state_snapshot> you just generated. Did you omit anything?", "client_compaction"),
        ("<state_snapshot>\n<overall_goal>…</overall_goal>\n</state_snapshot>", ""),
        ("go on", ""),
    ],
)
def test_X10_gemini_cli_asking_for_its_own_summary_passes(text: str, reason: str) -> None:
    assert FORM.refusal({}, user(text)) == reason


def test_G25_code_and_its_result_in_two_contents_stay_together() -> None:
    code = {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1+1"}}]}
    result = {"role": "model", "parts": [{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}]}
    history = [user("a"), code, result, says("2"), user("b")]
    assert boundaries(*history) == [1, 3, 4]
    assert assert_never_worse(*history) > 3
    both = {"role": "model", "parts": [*code["parts"], *result["parts"], {"text": "2"}]}
    assert FORM.facts(both).results == ()
    assert boundaries(user("a"), both, user("b")) == [1, 2]


def test_G26_server_tool_and_its_response_stay_together() -> None:
    call = {"role": "model", "parts": [{"toolCall": {"id": "t1", "toolType": "URL_CONTEXT"}}, *calls("ls")["parts"]]}
    late = {"role": "model", "parts": [{"toolResponse": {"id": "t1", "response": {}}}, {"text": "ok"}]}
    history = [user("a"), call, answers("ls"), late, user("b")]
    assert boundaries(*history) == [1, 4]
    assert assert_never_worse(*history) >= 3


@pytest.mark.parametrize(
    "odd",
    [
        {"role": "model", "parts": [{"text": "x"}, {"hologram": {}}]},
        {"role": "stranger", "parts": []},
        {"parts": "text"},
        "text",
        None,
    ],
)
def test_X5_unknown_content_stays_with_its_neighbours(odd: Any) -> None:
    facts = FORM.facts(odd)
    assert facts.pinned
    around = [FORM.facts(user("a")), FORM.facts(says("x")), facts, FORM.facts(says("y")), FORM.facts(user("b"))]
    assert not rules.cuts(around)[3]
    assert rules.cuts(around)[4]


# Clearing


def test_G3_G9_clearing_keeps_the_count_the_names_and_an_object() -> None:
    item = answers("ls", "cat", id="1") | {"role": "function"}
    item["parts"][1]["functionResponse"]["id"] = "2"
    after = cleared(item, 1)
    wanted = {"name": "cat", "response": {"output": "[cleared]"}, "id": "2"}
    assert after == {"role": "function", "parts": [item["parts"][0], {"functionResponse": wanted}]}


def test_G27_media_of_an_answer_go_with_it() -> None:
    answer = {
        "name": "shot",
        "id": "1",
        "response": {"image": {"$ref": "a.png"}},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA"}}],
    }
    after = cleared({"role": "user", "parts": [{"functionResponse": answer}]})
    assert after["parts"] == [{"functionResponse": {"name": "shot", "id": "1", "response": {"output": "[cleared]"}}}]


def test_G10_arguments_are_cleared_to_an_object() -> None:
    item = {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"path": "x" * 99}, "id": "1"}}]}
    assert cleared(item, inputs=True)["parts"] == [{"functionCall": {"name": "ls", "args": {}, "id": "1"}}]


def test_G33_clearing_writes_the_clients_spelling() -> None:
    answer = {"role": "user", "parts": [{"function_response": {"name": "ls", "response": {"output": "long"}}}]}
    assert cleared(answer)["parts"] == [{"function_response": {"name": "ls", "response": {"output": "[cleared]"}}}]
    call = {"role": "model", "parts": [{"function_call": {"name": "ls", "args": {"a": 1}}}]}
    assert cleared(call, inputs=True)["parts"] == [{"function_call": {"name": "ls", "args": {}}}]


def test_G3_clearing_everything_old_is_taken() -> None:
    history = [user("a"), calls("ls", "ls"), answers("ls", "ls"), says("ok"), user("b"), calls("cat"), answers("cat")]
    said = talk(*history)
    assert said.clearable() == (Clear(1, 1, inputs=True), Clear(2, 0), Clear(2, 1))
    after = said.clear(*said.clearable())
    assert said.assert_never_worse() > 1
    assert [len(item["parts"]) for item in after] == [len(item["parts"]) for item in history]
    assert [part["functionResponse"]["response"] for part in after[2]["parts"]] == [{"output": CLEARED}] * 2
    assert after[3:] == history[3:]


# Any history


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    names = st.lists(st.sampled_from(["ls", "cat", "grep"]), min_size=1, max_size=3)
    items: list[Item] = []
    for turn in range(draw(st.integers(1, 4))):
        items.append(user(f"question {turn}"))
        for step in range(draw(st.integers(0, 3))):
            called = draw(names)
            ids = {"id": f"{turn}.{step}"} if len(called) == 1 and draw(st.booleans()) else {}
            items += [calls(*called, **ids), answers(*called, **ids)]
        if draw(st.booleans()):
            items.append(says("ok"))
    return [*items, user("now")]


@settings(max_examples=60, deadline=None)
@given(histories())
def test_no_allowed_cut_makes_anything_worse(items: list[Item]) -> None:
    assert assert_never_worse(*items) > 0


# Identity


def test_what_clients_change_does_not_change_a_content() -> None:
    bare = {
        "role": "model",
        "parts": [
            {key: thing for key, thing in part.items() if key != "thoughtSignature"} for part in calls("ls")["parts"]
        ],
    }
    assert FORM.canonical(calls("ls")) == FORM.canonical(bare)
    assert FORM.canonical({"parts": [{"text": "hi"}]}) == FORM.canonical(user("hi"))
    with_thought = {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "ok"}]}
    assert FORM.canonical(with_thought) == FORM.canonical(says("ok"))


def test_different_contents_stay_different() -> None:
    every = [
        user("a"),
        user("b"),
        says("a"),
        calls("ls"),
        calls("cat"),
        calls("ls", "ls"),
        answers("ls"),
        answers("ls", "ls"),
        answers("ls", id="1"),
    ]
    assert len({fingerprint(FORM.canonical(one)) for one in every}) == len(every)


def test_no_session_is_named() -> None:
    assert FORM.session_hint({"labels": {"a": "b"}}) == ""


# Routes and answers


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1beta/models/gemini-3.8-flash:generateContent", "gemini-3.8-flash", False),
        ("/v1beta/models/gemini-3.8-flash:streamGenerateContent", "gemini-3.8-flash", True),
        ("/v1/models/gemini-2.5-flash:generateContent", "gemini-2.5-flash", False),
        ("/models/gemini-2.5-pro:streamGenerateContent", "gemini-2.5-pro", True),
        (
            "/v1/projects/p/locations/eu/publishers/google/models/gemini-2.5-pro:generateContent",
            "gemini-2.5-pro",
            False,
        ),
        ("/v1beta1/projects/p/locations/eu/endpoints/123:streamGenerateContent", "123", True),
        ("/v1beta/tunedModels/mine-1:generateContent", "mine-1", False),
    ],
)
def test_G30_path_names_model_and_stream(path: str, model: str, stream: bool) -> None:
    target = FORM.target(path)
    assert target is not None
    assert (target.format, target.model, target.stream) == ("gemini", model, stream)


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/gemini-3.8-flash:countTokens",
        "/v1beta/models/gemini-3.8-flash:batchGenerateContent",
        "/v1beta/models/gemini-3.8-flash",
        "/v1beta/models",
        "/v1beta/cachedContents",
        "/v1internal:streamGenerateContent",
        "/v1beta/interactions",
        "/v1/projects/p/locations/eu/publishers/anthropic/models/claude:rawPredict",
        "/v1beta/models/gemini-3.8-flash:generateContent/operations",
    ],
)
def test_G32_T6_other_paths_pass(path: str) -> None:
    assert FORM.target(path) is None


def test_U11_usage_adds_thoughts_and_holds_what_was_cached() -> None:
    told = {
        "promptTokenCount": 900,
        "cachedContentTokenCount": 800,
        "candidatesTokenCount": 50,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 970,
    }
    assert FORM.usage({"candidates": [], "usageMetadata": told}) == Usage(900, 70, 800)
    assert FORM.usage({"usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 1}}) == Usage(9, 1)
    assert FORM.usage({"candidates": []}) is None


def test_U12_the_last_report_of_a_stream_holds() -> None:
    stream = [
        {"usageMetadata": {"promptTokenCount": 9}},
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4}},
        {"x": 1},
    ]
    assert FORM.usage(stream) == Usage(9, 4)
    assert FORM.merge(Usage(9), Usage(9, 4)) == Usage(9, 4)


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ("The input token count exceeds the maximum number of tokens allowed (131072).", 131_072),
        (
            "Unable to submit request because the input token count is 1200293 but model only supports up to 1048575. Reduce the "
            "input token count and try again.",
            1_048_575,
        ),
        (
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
            None,
        ),
    ],
)
def test_E8_overflow_also_inside_an_array(message: str, window: int | None) -> None:
    answer = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}}
    assert FORM.overflow(400, json.dumps(answer).encode()) == window
    assert FORM.overflow(400, json.dumps([answer], indent=2).encode()) == window
    assert FORM.overflow(429, json.dumps(answer).encode()) is None


def test_error_has_the_shape_of_google() -> None:
    told = json.loads(FORM.error(400, "unknown_policy", "No policy is called “x”."))["error"]
    assert (told["code"], told["status"], told["message"]) == (400, "INVALID_ARGUMENT", "No policy is called “x”.")
    assert told["details"] == [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "unknown_policy", "domain": "compactd"}
    ]
    statuses = {
        status: json.loads(FORM.error(status, "x", ""))["error"]["status"] for status in (401, 429, 502, 503, 504)
    }
    assert statuses == {
        401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
    }  # fmt: skip


def test_fixed_is_what_the_model_reads_besides() -> None:
    fields = {"system_instruction": {"parts": [{"text": "be brief"}]}, "tools": [{"functionDeclarations": []}]}
    assert [part.text for part in FORM.fixed(fields)] == ["be brief", '[{"functionDeclarations":[]}]']
    fields = {
        "systemInstruction": "be brief",
        "generationConfig": {"temperature": 1, "responseJsonSchema": {"type": "object"}},
    }
    assert [part.text for part in FORM.fixed(fields)] == ["be brief", '{"type":"object"}']


# A question of compactd's own


@pytest.mark.parametrize(
    ("path", "model", "way"),
    [
        ("", "gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro"),
        ("", "models/gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro"),
        ("/v1/models/a:streamGenerateContent", "a", "/v1/models/a"),
        ("/v1beta/models/a:streamGenerateContent", "b", "/v1beta/models/b"),
        ("/models/a%3AstreamGenerateContent", "a", "/models/a"),
        ("/v1beta/tunedModels/a:generateContent", "a", "/v1beta/tunedModels/a"),
        ("/v1beta/tunedModels/a:generateContent", "b", "/v1beta/models/b"),
        ("/v1/projects/p/publishers/google/models/a:generateContent", "b", "/v1/projects/p/publishers/google/models/b"),
        ("/v1beta/models/a b:generateContent", "a b", "/v1beta/models/a%20b"),
    ],
)
def test_G30_question_names_model_and_method_in_its_path(path: str, model: str, way: str) -> None:
    told, body = FORM.question(model, "Well?", 700, path, (), {})
    assert told.decode() == f"{way}:generateContent"
    assert json.loads(body) == {"contents": [user("Well?")], "generationConfig": {"maxOutputTokens": 700}}


def test_question_is_judged_as_the_clients_own_requests_are() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    for key in ("safetySettings", "safety_settings"):
        assert json.loads(FORM.question("m", "Well?", 9, "", (), {key: safety})[1])["safetySettings"] == safety


@pytest.mark.parametrize(
    ("parts", "stop", "said", "problem"),
    [
        ([{"text": "a"}, {"text": "b"}], "STOP", "ab", ""),
        ([{"text": "hm", "thought": True}, {"text": "a", **SIGNED}], "STOP", "a", ""),
        ([{"text": "a"}], None, "a", ""),
        ([{"text": "a"}], "MAX_TOKENS", "a", "truncated"),
        ([], "MAX_TOKENS", "", "truncated"),
        ([{"text": "a"}], "SAFETY", "a", "refused"),
        ([{"text": "a"}], "RECITATION", "a", "refused"),
        ([{"text": "a"}], "SOMETHING_NEW", "a", "refused"),
        ([{"text": "a"}], "OTHER", "a", "failed"),
        ([], "MALFORMED_FUNCTION_CALL", "", "tool_call"),
        ([{"text": "a"}, {"functionCall": {"name": "read", "args": {}}}], "STOP", "a", "tool_call"),
        ([{"text": "hm", "thought": True}], "STOP", "", "reasoning_only"),
        ([], "STOP", "", ""),
    ],
)
def test_answer(parts: list[Item], stop: str | None, said: str, problem: str) -> None:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": stop}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "cachedContentTokenCount": 3}
    assert FORM.answer({"candidates": [candidate], "usageMetadata": usage}) == Answer(said, problem, Usage(5, 3, 3))


def test_answer_to_a_blocked_prompt_is_a_refusal() -> None:
    assert FORM.answer({"promptFeedback": {"blockReason": "SAFETY"}}).problem == "refused"
    assert FORM.answer({"prompt_feedback": {"block_reason": "OTHER"}, "candidates": []}).problem == "refused"
    assert FORM.answer({"candidates": [{"finishReason": "SAFETY"}]}).problem == "refused"
    assert FORM.answer({"promptFeedback": {}}) == Answer("")
