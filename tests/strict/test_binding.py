"""Signatures bound to their prefix, and remembered reasoning."""

from __future__ import annotations

from typing import Any

from .anthropic_betas import BINDING_CONTROLS
from .binding import Reasoning, check, sign
from .samples import anthropic, assistant, items, reasoning, said, text, thinking, user

ASK = user("Read it.")
DROP: dict[str, Any] = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
NONE: frozenset[str] = frozenset()


def continued(words: str = "Hm.", **more: Any) -> dict[str, Any]:
    """A body that sends back thinking made for `ASK` alone."""
    signature = sign(anthropic(ASK), "Hm.")
    return anthropic(ASK, assistant(thinking(words, signature), "Done."), user("And?"), **more)


def rules(body: dict[str, Any], betas: frozenset[str] = NONE) -> list[str]:
    return [violation.rule for violation in check(body, betas)[0]]


def test_AB1_a_block_is_bound_to_its_prefix() -> None:
    assert rules(continued()) == []
    body = continued()
    body["messages"][0] = user("Read that.")
    assert rules(body) == ["AB1"]
    assert rules(continued(system="Be brief.")) == ["AB1"]
    assert rules(continued(tools=[])) == ["AB1"]


def test_AB1_markers_and_the_two_forms_of_text_change_nothing() -> None:
    body = continued()
    body["messages"][0] = user(text("Read it.", cache_control={"type": "ephemeral"}))
    assert rules(body) == []


def test_AB2_a_request_may_ask_for_the_block_to_be_dropped() -> None:
    body = continued(system="Be brief.", **DROP)
    assert check(body, frozenset({BINDING_CONTROLS})) == ([], 1)
    assert rules(body) == ["AB1"]  # the field alone is not enough


def test_AB5_what_comes_after_changes_nothing() -> None:
    body = continued()
    body["messages"].append(assistant("Yes."))
    assert rules(body) == []


def test_A28_A33_words_can_not_be_changed() -> None:
    assert rules(continued("Hmm.")) == ["A28"]
    body = continued("Hmm.")
    body["messages"] += [assistant("Yes."), ASK]
    assert rules(body) == ["A33"]


def test_a_foreign_signature_is_left_alone() -> None:
    assert rules(anthropic(ASK, assistant(thinking(signature="foreign"), "Done."), ASK)) == []


def test_R10_R13_reasoning_is_remembered() -> None:
    memory = Reasoning()
    memory.issued([reasoning("rs_1", encrypted_content="enc"), said(id="msg_1"), said(id="msg_2")])
    assert memory.came_with == {"msg_1": "rs_1"}
    assert memory.check(items(ASK, reasoning("rs_1", encrypted_content="enc"), said())) == []
    changed = memory.check(items(ASK, reasoning("rs_1", encrypted_content="other"), said()))
    assert [violation.rule for violation in changed] == ["R13"]
