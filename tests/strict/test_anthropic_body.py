"""The rules of an Anthropic body as a whole, kept and broken."""

from __future__ import annotations

from typing import Any

from .samples import anthropic, assistant, result, server_use, text, use, user
from .samples import rules as rules_of

ASK = user("Read it.")
ADAPTIVE = {"thinking": {"type": "adaptive"}}
MANUAL = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def rules(*messages: Any, **more: Any) -> set[str]:
    return rules_of("anthropic-messages", anthropic(*messages, **more))


def marked(ttl: str = "5m") -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def test_A13_tool_blocks_need_tools() -> None:
    exchange = (ASK, assistant(use()), user(result()))
    assert rules(*exchange) == set()
    assert rules(*exchange, tools=[]) == {"A13"}
    assert rules(ASK, tools=[]) == set()


def test_A22_tool_changes_name_known_tools() -> None:
    def changed(**tool: Any) -> set[str]:
        system = {"role": "system", "content": [{"type": "tool_removal", "tool": tool}]}
        return rules(ASK, system, model="claude-opus-5")

    assert changed(type="tool_reference", name="read") == set()
    assert changed(type="tool_reference", name="write") == {"A22"}
    assert changed(type="tool_definition", definition={"name": "write"}) == set()
    assert changed(type="mcp_toolset_reference", server_name="s") == {"A22"}


def test_A36_fields_per_model() -> None:
    assert rules(ASK, model="claude-sonnet-4-5", **MANUAL) == set()
    assert rules(ASK, model="claude-opus-4-7", **MANUAL) == {"A36"}
    assert rules(ASK, model="claude-opus-4-7", **ADAPTIVE) == set()
    assert rules(ASK, model="claude-sonnet-4-5", **ADAPTIVE) == {"A36"}
    off = {"thinking": {"type": "disabled"}}
    assert rules(ASK, model="claude-opus-5", **off) == set()
    assert rules(ASK, model="claude-opus-5", output_config={"effort": "max"}, **off) == {"A36"}
    assert rules(ASK, model="claude-fable-5", **off) == {"A36"}
    assert rules(ASK, tool_choice={"type": "any"}, **MANUAL) == {"A36"}
    assert rules(ASK, model="claude-opus-4-7", temperature=0.2) == {"A36"}
    assert rules(ASK, model="claude-opus-4-5", temperature=0.2) == set()


def test_A39_at_most_four_markers() -> None:
    system = [text("a", **marked()), text("b", **marked())]
    three = user(text("c", **marked()))
    inside = user(result(content=[text("d", **marked())]))
    assert rules(three, assistant(use()), inside, system=system) == set()
    assert rules(three, assistant(use(**marked())), inside, system=system) == {"A39"}
    assert rules(three, assistant(use()), inside, system=system, **marked()) == {"A39"}
    assert rules(three, assistant(use(cache_control=None)), inside, system=system) == set()


def test_A40_long_lives_before_short_ones() -> None:
    assert rules(user(text("a", **marked("5m"))), system=[text("s", **marked("1h"))]) == set()
    assert rules(user(text("a", **marked("1h"))), system=[text("s", **marked("5m"))]) == {"A40"}
    assert rules(user(text("a", **marked("1h"))), tools=[{"name": "t", **marked("5m")}]) == {"A40"}
    assert rules(user(text("a", **marked("5m"))), ASK, **marked("1h")) == {"A40"}


def test_A41_the_last_block_agrees_with_the_automatic_marker() -> None:
    assert rules(user(text("a", **marked("1h"))), **marked("1h")) == set()
    assert rules(user(text("a", **marked("1h"))), **marked("5m")) == {"A41"}


def test_A48_a_waiting_server_tool_is_defined() -> None:
    paused = (ASK, assistant(server_use("srvtoolu_1", "bash_code_execution")))
    assert rules(*paused, tools=[{"type": "code_execution_20250825", "name": "code_execution"}]) == set()
    assert rules(*paused, tools=[{"name": "read"}]) == {"A48"}


def test_A55_each_server_has_its_toolset() -> None:
    servers = [{"type": "url", "name": "s", "url": "https://example.com"}]
    toolset = {"type": "mcp_toolset", "mcp_server_name": "s"}
    assert rules(ASK, mcp_servers=servers, tools=[toolset]) == set()
    assert rules(ASK, mcp_servers=servers, tools=[]) == {"A55"}
    assert rules(ASK, mcp_servers=servers, tools=[toolset, toolset]) == {"A55"}
    assert rules(ASK, tools=[toolset]) == {"A55"}


def test_A56_references_name_tools_and_one_is_loaded() -> None:
    def found(name: str) -> set[str]:
        return rules(ASK, assistant(use()), user(result(content=[{"type": "tool_reference", "tool_name": name}])))

    assert found("read") == set()
    assert found("write") == {"A56"}
    assert rules(ASK, tools=[{"name": "read", "defer_loading": True}]) == {"A56"}


def test_A61_a_compaction_trigger_is_high_enough() -> None:
    def edited(value: int) -> set[str]:
        edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": value}}
        return rules(ASK, context_management={"edits": [edit]})

    assert edited(50_000) == set()
    assert edited(49_999) == {"A61"}


def test_A63_thinking_is_cleared_first_and_some_is_kept() -> None:
    tools = {"type": "clear_tool_uses_20250919"}
    first = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    none = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 0}}
    assert rules(ASK, context_management={"edits": [first, tools]}) == set()
    assert rules(ASK, context_management={"edits": [tools, first]}) == {"A63"}
    assert rules(ASK, context_management={"edits": [none]}) == {"A63"}


def test_A65_system_is_text() -> None:
    assert rules(ASK, system="Be brief.") == set()
    assert rules(ASK, system=[text("Be brief.")]) == set()
    assert rules(ASK, system={"text": "Be brief."}) == {"A65"}
    assert rules(ASK, system=[{"type": "image"}]) == {"A65"}


def document(citations: bool) -> dict[str, Any]:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    return {"type": "document", "source": source, "citations": {"enabled": citations}}


def test_A66_citations_for_all_documents_or_none() -> None:
    assert rules(user(document(True), document(True), "Which?")) == set()
    assert rules(user(document(True), document(False), "Which?")) == {"A66"}


def test_A67_citations_exclude_structured_output() -> None:
    structured = {"output_config": {"format": {"type": "json_schema"}}}
    assert rules(user(document(False), "Which?"), **structured) == set()
    assert rules(user(document(True), "Which?"), **structured) == {"A67"}


def test_A68_citations_point_at_documents_that_are_there() -> None:
    cited = assistant(text("This.", citations=[{"type": "char_location", "document_index": 1}]))
    assert rules(user(document(True), document(True), "Which?"), cited, ASK) == set()
    assert rules(user(document(True), "Which?"), cited, ASK) == {"A68"}


def test_A69_at_most_600_images() -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    assert rules(user(*[image] * 600, "What?")) == set()
    assert rules(user(*[image] * 601, "What?")) == {"A69"}
