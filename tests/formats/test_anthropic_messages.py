"""Anthropic Messages: each wire rule that a cut or a clearing could break, by its id, on real JSON bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core import jsonspan, rules
from app.core.plan import Clear, Plan
from app.core.view import Clearing
from app.formats import FORMATS
from app.formats.base import Answer, Usage
from app.formats.reading import fingerprint
from tests.formats.history import CLEARED, NOTE, History, Item

FORM = FORMATS["anthropic-messages"]
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}, {"name": "web_search", "type": "web_search_20250305"}]


def user(*content: Any) -> Item:
    return {
        "role": "user",
        "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content),
    }


def says(*blocks: Any) -> Item:
    return {"role": "assistant", "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def system(said: Any, **more: Any) -> Item:
    return {"role": "system", "content": said, **more}


def text(said: str, **more: Any) -> Item:
    return {"type": "text", "text": said, **more}


def call(n: int, **more: Any) -> Item:
    return {"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {"path": f"/src/{n}.py"}, **more}


def result(n: int, content: Any = "line of code " * 20, **more: Any) -> Item:
    return {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": content, **more}


def search(n: int) -> Item:
    return {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {"query": "tides"}}


def found(n: int) -> Item:
    page = {
        "type": "web_search_result",
        "url": "https://sea.example",
        "title": "Tides",
        "encrypted_content": "EqgfCioIARgB" * 9,
    }
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{n}", "content": [page]}


def thinks(n: int) -> Item:
    return {"type": "thinking", "thinking": f"thought {n}", "signature": f"sig{n}"}


def image(**more: Any) -> Item:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}, **more}


def history(*items: Item, **fields: Any) -> History:
    return History(
        "anthropic-messages", *items, **{"model": "claude-opus-5", "max_tokens": 100, "tools": TOOLS, **fields}
    )


# Tool pairs


def test_A1_call_and_its_results_leave_together() -> None:
    talk = history(user("a"), says("b"), user("c"), says(call(1)), user(result(1)), says("d"), user("e"))
    assert talk.boundaries == [1, 2, 3, 5, 6]
    assert talk.assert_never_worse() > 8
    talk.assert_forbidden(0, 4, "A4")


def test_A1_call_broken_long_ago_freezes_nothing() -> None:
    talk = history(user("a"), says(call(9)), user("never mind"), says(call(1)), user(result(1)), says("d"), user("e"))
    assert {2, 3, 5} <= set(talk.boundaries)
    assert talk.assert_never_worse() > 5


def test_A2_parallel_calls_and_all_results_leave_together() -> None:
    talk = history(user("a"), says("two:", call(1), call(2)), user(result(2), result(1)), says("d"), user("e"))
    assert talk.boundaries == [1, 3, 4]
    assert talk.assert_never_worse()


def test_A3_A17_note_never_stands_before_a_result_carrier() -> None:
    talk = history(
        user("a"), says("x"), user("b"), says(call(1)), user(result(1), text("and hurry")), says("d"), user("e")
    )
    talk.assert_forbidden(0, 4, "A4")
    after = talk.cut(0, 3)
    assert [item["role"] for item in after] == ["user", "assistant", "user", "assistant", "user"]
    assert after[0] == {"role": "user", "content": NOTE}


def test_A3_text_ahead_of_a_carrier_goes_behind_its_results() -> None:
    for item, kinds in [
        (user(result(1), image()), ["tool_result", "text", "image"]),
        (user(result(1), text("own")), ["tool_result", "text"]),
        (user(result(1)), ["tool_result", "text"]),
    ]:
        led = json.loads(jsonspan.edit(json.dumps(item).encode(), FORM.lead(item, "ahead")))
        assert [block["type"] for block in led["content"]] == kinds


def test_A5_message_with_results_and_text_opens_no_turn() -> None:
    facts = FORM.facts(user(result(1), text("and hurry")))
    assert not facts.opens_turn
    assert [one.id for one in facts.results] == ["toolu_1"]
    assert FORM.facts(user(text("<system-reminder>be brief</system-reminder>"), text("go on"))).opens_turn


def test_A6_A7_ids_used_again_pair_by_position() -> None:
    talk = history(
        user("a"), says(call(1)), user(result(1)), user("b"), says(call(1)), user(result(1)), says("c"), user("d")
    )
    assert talk.boundaries == [1, 3, 4, 6, 7]
    assert talk.assert_never_worse()


def test_A9_cleared_input_is_an_object() -> None:
    talk = history(user("a"), says("x", call(1)), user(result(1)), says("d"), user("e"))
    after = talk.clear(Clear(1, 0, True))
    assert after[1]["content"][1] == {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    assert not talk.worse(Plan("test", clear=(Clear(1, 0, True),)))


def test_A10_cleared_result_keeps_its_place_and_its_marker() -> None:
    marked = result(1, [text("x" * 300), image()], cache_control={"type": "ephemeral"})
    talk = history(user("a"), says(call(1), call(2)), user(marked, result(2)), says("d"), user("e"))
    assert talk.clear(Clear(2, 0))[2]["content"] == [{**marked, "content": CLEARED}, result(2)]
    bare = {"type": "tool_result", "tool_use_id": "toolu_1"}
    talk = history(user("a"), says(call(1)), user(bare), says("d"), user("e"))
    assert talk.clear(Clear(2, 0))[2]["content"] == [{**bare, "content": CLEARED}]


def test_A11_error_flag_stays_and_no_picture_beside_it() -> None:
    talk = history(
        user("a"), says(call(1)), user(result(1, [text("broken " * 50)], is_error=True)), says("d"), user("e")
    )
    assert talk.clear(Clear(2, 0))[2]["content"][0] == {**result(1, CLEARED), "is_error": True}
    assert talk.assert_never_worse()


def test_A12_toolset_result_keeps_its_toolset() -> None:
    state = {"type": "browser_state", "tabs": []}
    member = call(1, name="screenshot", toolset_name="browser")
    shown = result(1, [image(), state], toolset_name="browser")
    talk = history(user("a"), says(member), user(shown), says("d"), user("e"))
    assert talk.clearable() == (Clear(2, 0),)
    assert talk.clear(Clear(2, 0))[2]["content"] == [{**shown, "content": CLEARED}]
    assert talk.assert_never_worse()


def test_A13_tools_stay_as_they_are() -> None:
    talk = history(user("a"), says(call(1)), user(result(1)), says("d"), user("e"))
    assert json.loads(talk.applied(Plan("test", 0, 3, "omitted")))["tools"] == TOOLS


# Roles


def test_A15_A16_history_begins_with_the_user() -> None:
    talk = history(user("a"), says("b"), user("c"), says("d"), user("e"))
    for start, stop in talk.cuts():
        assert talk.cut(start, stop)[0]["role"] == "user"
    assert not talk.worse(Plan("test", 0, 1, "omitted"))
    assert talk.worse(Plan("test", 0, 1))["A15"]  # nothing but the note makes this cut possible


@pytest.mark.parametrize("thinking", [(), (thinks(7),)])
def test_A19_system_message_goes_with_the_answer_after_it(thinking: tuple[Item, ...]) -> None:
    rule = system("Use metric units.")
    talk = history(
        user("a"), says("b"), user("c"), rule, says(*thinking, call(1)), user(result(1)), rule, says(*thinking, call(2)),
        user(result(2)), rule,
    )  # fmt: skip
    assert set(talk.boundaries) >= {3, 6}
    assert not {4, 7} & set(talk.boundaries)
    assert talk.assert_never_worse() == 5
    talk.assert_forbidden(4, 6, "A19")


def test_A19_A20_last_system_messages_belong_to_the_open_round() -> None:
    facts = history(user("a"), says(call(1)), user(result(1)), system("x"), system("y")).facts
    assert rules.open_round(facts) == 1
    assert rules.level(facts) == 2
    assert rules.level(facts[:1] + facts[3:]) == 1


def test_A21_text_of_a_system_message_is_carried() -> None:
    for said in ("Use metric units.", [text("Use metric units.", cache_control={"type": "ephemeral"})]):
        facts = FORM.facts(system(said))
        assert (facts.role, facts.carried, facts.stays, facts.pinned) == ("system", True, False, False)
        assert [part.text for part in FORM.parts(system(said))] == ["Use metric units."]
    assert not FORM.facts(system("Only now.", clear_at="next_user_message")).carried
    assert FORM.facts(system("Always.", clear_at="never")).carried


def test_A21_effort_alone_stays_anywhere() -> None:
    effort = system([], output_config={"effort": "low"})
    assert FORM.facts(effort).stays
    assert history(user("a"), says("b"), effort, user("c")).cut(0, 3)[1] == effort
    assert FORM.facts(system("Be brief.", output_config={"effort": "low"})).pinned


def test_A22_tool_changes_are_pinned_and_no_note_follows_them() -> None:
    change = system([{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}])
    talk = history(user("a"), says("b"), user("c"), change, says("d"), user("e"), says("f"), user("g"))
    assert talk.facts[3].pinned
    assert 4 not in talk.boundaries
    assert talk.assert_never_worse() > 4
    talk.assert_forbidden(4, 6, "A19")


def test_A27a_request_never_ends_on_the_model_by_our_doing() -> None:
    talk = history(user("a"), says("b"), user("c"))
    assert talk.worse(Plan("test", 2, 3))["last_role"]


def test_A27_A27b_prefill_and_paused_turn_are_no_level() -> None:
    assert rules.level(history(user("a"), says("b"), user("c"), says("The answer is")).facts) == 0
    assert rules.level(history(user("a"), says("b"), user("c"), says(search(1), found(1))).facts) == 0
    talk = history(user("a"), says("b"), user("c"), says("Let me see", search(1)))
    assert rules.level(talk.facts) == 0
    assert talk.assert_never_worse()


# Thinking


def test_A28_A29_thinking_of_the_running_turn_stays_whole() -> None:
    talk = history(
        user("a"), says(thinks(1), "b"), user("c"),
        says(thinks(2), call(1)), user(result(1)), says(call(2)), user(result(2)), says(thinks(3), call(3)), user(result(3)),
        thinking={"type": "enabled", "budget_tokens": 2000}, model="claude-sonnet-4-5",
    )  # fmt: skip
    assert talk.boundaries == [1, 2, 3, 7]
    assert talk.assert_never_worse() > 3
    assert FORM.facts(says({"type": "redacted_thinking", "data": "x"}, "b")).reasoning


def test_A30_a_tool_loop_under_manual_thinking_begins_with_a_thought() -> None:
    talk = history(
        user("a"), says(thinks(1), call(1)), user(result(1)), says(call(2)), user(result(2)),
        thinking={"type": "enabled", "budget_tokens": 2000}, model="claude-sonnet-4-5",
    )  # fmt: skip
    talk.assert_forbidden(1, 3, "A30")


def test_A32_A33_hidden_thoughts_are_not_touched() -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": "sig"}
    talk = history(
        user("a"), says("b"), user("c"), says(hidden, call(1)), user(result(1)), says(hidden, "d"), user("e")
    )
    kept = talk.cut(0, 2)[2]
    assert kept["content"] == [hidden, call(1)]
    assert talk.clear(*talk.clearable())[3]["content"] == [hidden, {**call(1), "input": {}}]


def test_A37_fallback_block_is_pinned() -> None:
    hop = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    assert FORM.facts(says(thinks(1), hop, thinks(2), "b")).pinned
    assert not FORM.facts(
        says(thinks(1), {"type": "connector_text", "connector_text": "so", "signature": "s"}, thinks(2))
    ).pinned


def test_A38_credit_token_wants_the_same_body() -> None:
    assert FORM.refusal({"fallback_credit_token": "t"}, user("a")) == "must_not_change"


# cache_control


def test_A39_A40_no_plan_adds_a_marker() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    talk = history(
        user(text("a", **mark)), says(text("b", **mark)), user(text("c")), says(call(1)), user(result(1, **mark)), says("d"),
        user(text("e", **mark)),
    )  # fmt: skip
    assert talk.assert_never_worse() > 5
    for start, stop in talk.cuts():
        assert json.dumps(talk.cut(start, stop)).count("cache_control") <= 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a"), user(text("a"))),
        (user("a"), user(text("a", cache_control={"type": "ephemeral"}))),
        (user(result(1, "r")), user(result(1, [text("r", cache_control={"type": "ephemeral"})]))),
        (user(result(1, "r")), user(result(1, "r", cache_control={"type": "ephemeral", "ttl": "1h"}))),
        (says(call(1)), says(call(1, cache_control={"type": "ephemeral"}))),
        (says("b"), says(text("b", citations=None))),
        (says("b"), {"content": "b", "role": "assistant"}),
    ],
)
def test_A43_same_message_with_moved_markers(one: Item, other: Item) -> None:
    assert fingerprint(FORM.canonical(one)) == fingerprint(FORM.canonical(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a"), says("a")),
        (user("a"), user("b")),
        (user(text("a"), text("b")), user("ab")),
        (user(result(1)), user(result(2))),
        (user(result(1, "x")), user(result(1, "x", is_error=True))),
        (says(call(1)), says(call(1, input={"path": "y"}))),
        (says(call(1, input={"cache_control": 1})), says(call(1, input={}))),
        (says(thinks(1), "b"), says("b")),
    ],
)
def test_A43_other_messages_differ(one: Item, other: Item) -> None:
    assert fingerprint(FORM.canonical(one)) != fingerprint(FORM.canonical(other))


# Server tools


def test_A45_pair_within_one_message_needs_no_rule() -> None:
    item = says("Let me see", search(1), found(1), "Twice a day.")
    assert FORM.facts(item).calls == FORM.facts(item).results == ()
    talk = history(user("a"), item, user("b"), says("c"), user("d"))
    assert talk.boundaries == [1, 2, 3, 4]
    assert talk.assert_never_worse()


def test_A46_pair_across_messages_leaves_together() -> None:
    talk = history(
        user("a"), says(search(1), call(1)), user(result(1)), says(found(1), "Twice a day."), user("b"), says("c"), user("d"),
    )  # fmt: skip
    assert talk.boundaries == [1, 4, 5, 6]
    assert talk.assert_never_worse() > 5
    talk.assert_forbidden(0, 3, "A45")


def test_A47_A48_waiting_server_tool_keeps_its_round_open() -> None:
    talk = history(user("a"), says("b"), user("c"), says(search(1), call(1)), user(result(1)))
    assert rules.open_round(talk.facts) == 3
    assert Clear(4, 0) not in talk.clearable()
    assert talk.assert_never_worse() == 3


def test_A50_A51_sealed_results_are_never_cleared() -> None:
    advice = {
        "type": "advisor_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {"type": "advisor_redacted_result"},
    }
    talk = history(user("a"), says(search(1), call(1)), user(result(1)), says(found(1), advice), user("d"))
    assert talk.clearable() == (Clear(1, 1, True), Clear(2, 0))


def test_A52_A53_programmatic_calls_stay_with_the_code_that_made_them() -> None:
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "f()"}}
    caller = {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}}
    done = {
        "type": "code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "code_execution_result", "stdout": "1"},
    }
    tools = [*TOOLS, {"type": "code_execution_20250825", "name": "code_execution"}]
    running = [
        user("a"),
        says("b"),
        user("c"),
        says(code, call(1, **caller)),
        user(result(1)),
        says(call(2, **caller)),
        user(result(2)),
    ]
    waiting = history(*running, container="c_1", tools=tools)
    assert rules.open_round(waiting.facts) == 3
    waiting.assert_forbidden(3, 5, "A53")
    over = history(*running, says(done, "One."), user("d"), tools=tools)
    assert over.boundaries == [1, 2, 3, 8]
    assert over.assert_never_worse() > 3


def test_A54_mcp_pair_across_messages() -> None:
    asked = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "q", "server_name": "s", "input": {}}
    told = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [text("t")]}
    assert FORM.facts(says(asked, told)).calls == ()
    assert history(user("a"), says(asked), says(told, "b"), user("c")).boundaries == [1, 3]


def test_A56_A57_result_that_loads_tools_is_not_cleared() -> None:
    loads = user(result(1, [{"type": "tool_reference", "tool_name": "read"}]))
    assert not FORM.facts(loads).results[0].clearable
    assert not FORM.facts(user(result(1, [{"type": "something_new"}]))).results[0].clearable
    assert FORM.facts(user(result(1, [text("x"), image()]))).results[0].clearable


def test_A58_container_upload_may_leave() -> None:
    assert not FORM.facts(user({"type": "container_upload", "file_id": "file_1"}, text("read it"))).pinned


# The provider's own compaction


def test_A59_A60_A62_compaction_block_is_pinned_and_may_open_the_history() -> None:
    folded = says({"type": "compaction", "content": "So far: …", "signature": "s"})
    talk = history(folded, user("a"), says("b"), user("c"))
    assert talk.facts[0].pinned
    assert talk.facts[0].restarts
    assert talk.assert_never_worse()
    assert talk.cut(1, 3)[0] == folded


def test_A59_compaction_that_failed_replaces_nothing() -> None:
    failed = says({"type": "compaction", "content": None}, {"type": "text", "text": "I go on."})
    assert [fact.restarts for fact in history(user("a"), failed, user("b")).facts] == [False, False, False]


def test_A61_threshold_compaction_is_no_reason_to_pass() -> None:
    edits = {
        "context_management": {
            "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60000}}]
        }
    }
    assert FORM.refusal(edits, user("a")) == ""


def test_A61_compaction_on_demand_passes() -> None:
    assert FORM.refusal({"compaction": {"type": "summarize"}}, user("a")) == "client_compaction"


def test_A68_sources_with_citations_are_not_cleared() -> None:
    source = {
        "type": "search_result",
        "source": "s",
        "title": "t",
        "content": [text("x")],
        "citations": {"enabled": True},
    }
    assert not FORM.facts(user(result(1, [source]))).results[0].clearable
    assert FORM.facts(user(result(1, [{**source, "citations": {"enabled": False}}]))).results[0].clearable


def document(said: str) -> Item:
    return {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": said},
        "citations": {"enabled": True},
    }


def cites(index: int, key: str = "document_index") -> Item:
    return text(
        "So it says.", citations=[{"type": "char_location", "cited_text": "x", key: index, "document_title": None}]
    )


def test_A68_sources_and_what_cites_them_are_told() -> None:
    facts = FORM.facts(user(document("a"), text("and"), document("b")))
    assert (facts.sources, facts.cites) == (("document", "document"), ())
    page = {"type": "web_fetch_result", "url": "u", "content": document("c")}
    fetched = {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": page}
    assert FORM.facts(says({**search(1), "name": "web_fetch"}, fetched, cites(2))).sources == ("document",)
    hit = {"type": "search_result", "source": "s", "title": "t", "content": [text("x")]}
    assert FORM.facts(user(result(1, [hit, text("y")]))).sources == ("search_result",)
    assert FORM.facts(says(cites(1), cites(0, "search_result_index"))).cites == (("document", 1), ("search_result", 0))
    assert (
        FORM.facts(says(text("x", citations=None), text("y", citations=[{"type": "web_search_result_location"}]))).cites
        == ()
    )


def test_A68_sources_leave_with_what_cites_them() -> None:
    first, second = user(document("a"), text("What?")), user(document("b"), text("And that?"))
    talk = history(user("a"), says("b"), first, says(cites(0)), second, says(cites(1)), user("c"), says("d"), user("e"))
    assert talk.boundaries == [1, 2, 6, 7, 8]
    assert talk.assert_never_worse() > 8
    talk.assert_forbidden(2, 4, "A68")


def test_A68_sources_that_nobody_cites_bind_nothing() -> None:
    talk = history(
        user(document("a"), text("What?")), says("b"), user(document("b"), text("And?")), says("c"), user("d")
    )
    assert talk.boundaries == [1, 2, 3, 4]
    assert talk.assert_never_worse() > 5


@pytest.mark.parametrize(
    "item",
    [
        user({"type": "something_new", "text": "x"}),
        says("a", {"type": "something_new"}),
        says("a", {"no": "type"}),
        {"role": "critic", "content": "x"},
        {"role": "user", "content": 7},
        {"role": "user"},
        {"role": "assistant", "content": ["x"]},
        system([]),
        None,
        "text",
    ],
)
def test_X5_what_is_not_known_is_pinned(item: Any) -> None:
    assert FORM.facts(item).pinned
    list(FORM.parts(item))
    FORM.canonical(item)


@pytest.mark.parametrize(
    ("fields", "last", "reason"),
    [
        ({"thread": {"type": "create"}}, user("a"), "server_history"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, user(result(1)), "server_history"),
        ({"diagnostics": {"previous_message_id": "msg_1"}}, user("a"), ""),
        ({}, user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."), "client_compaction"),
        (
            {},
            user(result(1), text("\nYour task is to create a detailed summary of the conversation so far")),
            "client_compaction",
        ),
        ({}, user("Please make a summary."), ""),
        ({}, says("CRITICAL: Respond with TEXT ONLY"), ""),
        ({}, None, ""),
    ],
)
def test_X10_what_passes_untouched(fields: Item, last: Any, reason: str) -> None:
    assert FORM.refusal(fields, last) == reason


# Reading


def test_note_is_known_again_and_opens_a_turn() -> None:
    facts = FORM.facts(json.loads(FORM.note(NOTE)))
    assert facts.note
    assert facts.opens_turn
    assert not FORM.facts(user("a")).note


def test_parts_read_everything_that_a_model_reads() -> None:
    item = user(
        result(1, [text("out"), image()]), result(2, None), text("ask"),
        {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
        {"type": "search_result", "source": "https://s", "title": "S", "content": [text("hit")]},
    )  # fmt: skip
    assert [(part.kind, part.text) for part in FORM.parts(item)] == [
        ("result", "out"), ("media", "image/png"), ("result", ""), ("text", "ask"), ("text", "doc"), ("text", "T"),
        ("text", "https://s"), ("text", "S"), ("text", "hit"),
    ]  # fmt: skip
    item = says(thinks(1), "b", call(1), search(1), found(1))
    assert [(part.kind, part.text, part.name) for part in FORM.parts(item)] == [
        ("reasoning", "thought 1", ""), ("text", "b", ""), ("call", '{"path":"/src/1.py"}', "read"),
        ("call", '{"query":"tides"}', "web_search"), ("result", "https://sea.example", ""), ("result", "Tides", ""),
        ("media", "encrypted content", ""),
    ]  # fmt: skip


def test_sizes_are_bytes_of_what_would_go() -> None:
    assert FORM.facts(user(result(1, "äö"))).results[0].size == 4
    assert FORM.facts(user(result(1, None))).results[0].size == 0
    assert FORM.facts(user(result(1, [image()]))).results[0].size > 60
    assert FORM.facts(says(call(1, input={}))).calls[0].size == 2


def test_fixed_is_system_tools_and_schema() -> None:
    fields = {
        "system": [text("S", cache_control={"type": "ephemeral"})],
        "tools": TOOLS,
        "output_config": {"format": {"a": 1}},
    }
    assert [part.text for part in FORM.fixed(fields)] == ["S", json.dumps(TOOLS, separators=(",", ":")), '{"a":1}']
    assert [part.text for part in FORM.fixed({"system": "S", "output_config": {"effort": "low"}})] == ["S"]


def test_session_hint() -> None:
    assert FORM.session_hint({"metadata": {"user_id": "user_1_session_2"}}) == "user_1_session_2"
    assert FORM.session_hint({"metadata": None}) == FORM.session_hint({"metadata": {"user_id": 7}}) == ""


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("/v1/messages", True), ("/messages", True), ("/v1/messages/", True), ("/anthropic/v1/messages", True),
        ("/v1/messages/count_tokens", False), ("/v1/messages/batches", False), ("/v1/threads/t_1/messages", False), ("/v1/models", False),
    ],
)  # fmt: skip
def test_target(path: str, is_ours: bool) -> None:
    target = FORM.target(path)
    assert (target is not None and target.format == "anthropic-messages") == is_ours


# Answers


def test_U7_input_is_the_sum_of_three() -> None:
    told = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 7}
    assert FORM.usage({"type": "message", "usage": told}) == Usage(125, 7, 100, 20)
    assert FORM.usage({"usage": {"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 7}}) == Usage(
        5, 7
    )


def test_what_context_editing_cleared_is_told_with_the_usage() -> None:
    applied = [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000},
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 15_000},
    ]
    usage = {"input_tokens": 5, "output_tokens": 7}
    told = FORM.usage({"type": "message", "usage": usage, "context_management": {"applied_edits": applied}})
    edits = (("cleared_input_tokens", 65_000), ("cleared_thinking_turns", 3), ("cleared_tool_uses", 8))
    assert told == Usage(5, 7, edits=edits)
    assert FORM.merge(Usage(5, 1), told) == FORM.merge(told, Usage(5, 7)) == told


@pytest.mark.parametrize(
    "managed", [None, {}, [], {"applied_edits": None}, {"applied_edits": ["x", {"cleared_tool_uses": "8"}]}]
)
def test_context_editing_that_tells_nothing(managed: Any) -> None:
    assert FORM.usage({"usage": {"input_tokens": 5}, "context_management": managed}) == Usage(5)


def test_U8_stream_reports_are_cumulative() -> None:
    first = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 1}
    start = FORM.usage({"type": "message_start", "message": {"usage": first}})
    delta = FORM.usage({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 44}})
    assert start is not None
    assert delta is not None
    assert FORM.merge(start, delta) == Usage(95, 44, 90)
    late = FORM.usage({"type": "message_delta", "usage": {"input_tokens": 120, "output_tokens": 50}})
    assert late is not None
    assert FORM.merge(Usage(0, 1), late) == Usage(120, 50)  # gateways that know the input only at the end
    assert (
        FORM.usage({"type": "ping"})
        is FORM.usage({"type": "error", "error": {"message": "x"}})
        is FORM.usage([])
        is None
    )


def test_U8_U9_passes_of_server_tools_are_not_the_prompt() -> None:
    totals = {"input_tokens": 900, "output_tokens": 50, "server_tool_use": {"web_search_requests": 2}}
    assert FORM.usage({"usage": totals}) == Usage(0, 50)
    first = {"type": "message", "input_tokens": 300, "cache_read_input_tokens": 20, "output_tokens": 9}
    assert FORM.usage({"usage": {**totals, "iterations": [first, {**first, "input_tokens": 600}]}}) == Usage(
        320, 50, 20
    )
    assert FORM.usage({"usage": {**totals, "iterations": [{"type": "compaction", "input_tokens": 9}, first]}}) == Usage(
        0, 50
    )
    assert FORM.usage({"usage": {**totals, "server_tool_use": {"web_search_requests": 0}}}) == Usage(900, 50)


@pytest.mark.parametrize(
    ("status", "message", "window"),
    [
        (400, "prompt is too long: 213462 tokens > 200000 maximum", 200_000),  # E4
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", 200_000),  # E5
        (400, "Input is too long for requested model.", 0),  # E7
        (413, "Request exceeds the maximum size", None),  # E6
        (
            400,
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
            None,
        ),  # E18
        (429, "prompt is too long", None),
    ],
)
def test_E4_E5_E6_E7_overflow(status: int, message: str, window: int | None) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    assert FORM.overflow(status, json.dumps(body).encode()) == window


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"), (404, "not_found_error"),
        (413, "request_too_large"), (422, "invalid_request_error"), (429, "rate_limit_error"), (500, "api_error"), (502, "api_error"),
        (529, "overloaded_error"),
    ],
)  # fmt: skip
def test_error_has_the_providers_shape(status: int, kind: str) -> None:
    told = json.loads(FORM.error(status, "unknown_policy", "No such policy."))
    assert told == {"type": "error", "error": {"type": kind, "message": "No such policy.", "code": "unknown_policy"}}


def test_lead_ahead_of_a_picture_changes_nothing_else() -> None:
    raw = b'{"role":"user","content":[ {"type":"image", "n":1e2,"source":{}} ,{"n":1e2} ]}'
    led = jsonspan.edit(raw, FORM.lead(json.loads(raw), "ahead"))
    assert led == raw.replace(b'{"type":"image"', b'{"type":"text","text":"ahead"},{"type":"image"')


def test_lead_changes_nothing_but_the_text() -> None:
    raw = b'{"role":"user","content":[{"type":"text","text":"own","n":1e2},{"type":"image","source":{}}]}'
    assert jsonspan.edit(raw, FORM.lead(json.loads(raw), "ahead")) == raw.replace(b'"own"', b'"ahead\\n\\nown"')
    assert (
        json.loads(jsonspan.edit(b'{"role":"user","content":"own"}', FORM.lead(user("own"), "ahead")))["content"]
        == "ahead\n\nown"
    )


def test_clear_writes_several_places_of_one_message() -> None:
    item = user(result(1), result(2), text("and"))
    edits = FORM.clear(item, [Clearing(1, "two"), Clearing(0, "one")])
    after = json.loads(jsonspan.edit(json.dumps(item).encode(), edits))
    assert after == user(result(1, "one"), result(2, "two"), text("and"))


# A question of compactd's own


def asked(path: str = "", fields: Item | None = None, **more: Any) -> tuple[str, Item]:
    way, body = FORM.question(
        more.get("model", "claude-opus-5"), "Well?", 700, path, more.get("quirks", ()), fields or {}
    )
    return way.decode(), json.loads(body)


def test_A36_question_says_nothing_of_thinking_or_sampling() -> None:
    for quirks in ((), ("thinking_always_on", "no_sampling", "adaptive_thinking")):
        assert asked(quirks=quirks) == (
            "/v1/messages", {"model": "claude-opus-5", "max_tokens": 700, "messages": [{"role": "user", "content": "Well?"}]},
        )  # fmt: skip
    assert asked("/anything/v1/messages")[0] == "/anything/v1/messages"


def test_A65_question_begins_with_the_clients_short_system_blocks() -> None:
    billing, known = text("x-billing: 1"), text("You are an agent.", cache_control={"type": "ephemeral"})
    long = text("Do this. " * 200)
    assert asked(fields={"system": [billing, known, long]})[1]["system"] == [billing, known]
    assert asked(fields={"system": [known, long, billing]})[1]["system"] == [known]
    for given in ([long, known], [], "You are an agent.", None, [3]):
        assert "system" not in asked(fields={"system": given})[1]


@pytest.mark.parametrize(
    ("blocks", "stop", "said", "problem"),
    [
        ([text("a"), text("b")], "end_turn", "a\nb", ""),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}, text("a")], "end_turn", "a", ""),
        ([text("a")], "stop_sequence", "a", ""),
        ([text("a")], "max_tokens", "a", "truncated"),
        ([text("a")], "model_context_window_exceeded", "a", "truncated"),
        ([text("No.")], "refusal", "No.", "refused"),
        ([text("a"), call(1)], "tool_use", "a", "tool_call"),
        ([call(1)], None, "", "tool_call"),
        ([text("a")], "pause_turn", "a", "tool_call"),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}], "end_turn", "", "reasoning_only"),
        ([], "end_turn", "", ""),
    ],
)
def test_answer(blocks: list[Item], stop: str | None, said: str, problem: str) -> None:
    body = {
        "content": blocks,
        "stop_reason": stop,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2},
    }
    assert FORM.answer(body) == Answer(said, problem, Usage(8, 2, 3))
