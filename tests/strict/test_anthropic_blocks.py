"""The rules of single content blocks of Anthropic's format, kept and broken."""

from __future__ import annotations

from typing import Any

from .samples import anthropic, assistant, result, server_use, text, thinking, use, user
from .samples import rules as rules_of

ASK = user("Read it.")
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
MARK = {"cache_control": {"type": "ephemeral"}}


def rules(*messages: Any, **more: Any) -> set[str]:
    return rules_of("anthropic-messages", anthropic(*messages, **more))


def answered(content: Any, **more: Any) -> set[str]:
    return rules(ASK, assistant(use()), user(result(content=content, **more)))


def test_A10_results_hold_text_or_known_parts() -> None:
    assert answered("") == set()
    assert answered([]) == set()
    assert answered([text("done"), IMAGE]) == set()
    assert answered({"text": "done"}) == {"A10"}
    assert answered([{"query": "a.py", "result": "..."}]) == {"A10"}
    bare = result()
    del bare["content"]
    assert rules(ASK, assistant(use()), user(bare)) == set()


def test_A11_errors_are_text() -> None:
    assert answered([text("failed")], is_error=True) == set()
    assert answered([IMAGE], is_error=True) == {"A11"}
    assert answered([IMAGE], is_error=False) == set()


def test_A22_tool_changes_stand_in_system_messages() -> None:
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}
    system = {"role": "system", "content": [change]}
    assert rules(ASK, system, model="claude-opus-5") == set()
    assert rules(user(change), model="claude-opus-5") == {"A22"}


def test_A24_no_empty_text() -> None:
    assert rules(user(text("hi"))) == set()
    assert rules(user(text(""))) == {"A24"}
    assert answered([text("")]) == {"A24"}
    assert rules(ASK, system=[text("")]) == {"A24"}


def test_A25_no_blank_text() -> None:
    assert rules(user(text(" \n"))) == {"A25"}
    assert rules(user(" \n")) == {"A25"}
    assert answered([text("\n\n")]) == {"A25"}


def test_A26_no_empty_message() -> None:
    assert rules(ASK, assistant()) == set()  # the optional final assistant message
    assert rules(ASK, assistant(), ASK) == {"A26"}
    assert rules(ASK, assistant(""), ASK) == {"A26"}
    assert rules(user("")) == {"A26"}
    assert rules({"role": "user"}) == {"A26"}
    assert rules({"role": "user", "content": 7}) == {"A26"}
    assert rules({"role": "user", "content": ["hi"]}) == {"A26"}


def test_A32_thinking_may_be_empty_but_signed() -> None:
    assert rules(ASK, assistant(thinking(""), "Done."), ASK) == set()


def test_A33_thinking_is_the_assistants_and_signed() -> None:
    assert rules(ASK, assistant({"type": "redacted_thinking", "data": "enc"}, "Done."), ASK) == set()
    assert rules(ASK, assistant(thinking(signature=""), "Done."), ASK) == {"A33"}
    assert rules(ASK, assistant({"type": "redacted_thinking", "data": ""}, "Done."), ASK) == {"A33"}
    assert rules(user(thinking(), "hi")) == {"A33"}
    assert rules(ASK, assistant({"type": "thinking", "signature": "sig"}, "Done."), ASK) == {"A33"}


def test_A42_markers_have_forbidden_places() -> None:
    assert rules(user(text("hi", **MARK))) == set()
    assert rules(user(text("", **MARK))) == {"A24", "A42"}
    assert rules(ASK, assistant(thinking() | MARK, "Done."), ASK) == {"A42"}
    cited = text("So it says.", citations=[{"type": "char_location", **MARK}])
    assert rules(ASK, assistant(cited), ASK) == {"A42"}
    assert rules(ASK, tools=[{"name": "a"}, {"name": "b", "defer_loading": True, **MARK}]) == {"A42"}


def test_A50_search_results_keep_their_encrypted_content() -> None:
    def found(**fields: Any) -> set[str]:
        hit = {"type": "web_search_result", "url": "https://example.com", "title": "t", **fields}
        answer = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [hit]}
        return rules(ASK, assistant(server_use(), answer, "Found."), ASK)

    assert found(encrypted_content="enc") == set()
    assert found() == {"A50"}
    assert found(encrypted_content="") == {"A50"}


def test_A59_a_compaction_may_be_null_but_not_empty() -> None:
    assert rules(ASK, assistant({"type": "compaction", "content": None}, "Go on."), ASK) == set()
    assert rules(ASK, assistant({"type": "compaction", "content": ""}, "Go on."), ASK) == {"A59"}
    assert rules(user({"type": "compaction", "content": "Before."})) == {"A59"}
