"""Each rule that one Responses item can break alone, kept and broken."""

from __future__ import annotations

from typing import Any

import pytest

from .samples import function_call, items, output, reasoning, said
from .samples import rules as rules_of

ASK = {"role": "user", "content": "Read it."}
SHOT = {"type": "computer_call", "call_id": "call_1", "pending_safety_checks": [], "action": {}}
PATCH = {"type": "apply_patch_call", "call_id": "call_1", "operation": {}, "status": "completed"}
SHELL = {"type": "shell_call", "call_id": "call_1", "action": {}}


def rules(*entries: Any, quirks: frozenset[str] = frozenset(), **more: Any) -> set[str]:
    return rules_of("openai-responses", items(*entries, **more), quirks=quirks)


def test_R13_encrypted_content_is_not_emptied() -> None:
    assert rules(ASK, reasoning(), said()) == set()
    assert rules(ASK, reasoning(encrypted_content=""), said()) == {"R13"}


def test_R14_unstored_reasoning_needs_its_encrypted_content() -> None:
    assert rules(ASK, reasoning(), said(), store=False) == set()
    assert rules(ASK, reasoning(encrypted_content=None), said()) == set()
    assert rules(ASK, reasoning(encrypted_content=None), said(), store=False) == {"R14"}


def test_R15_reasoning_has_a_summary() -> None:
    item = reasoning()
    del item["summary"]
    assert rules(ASK, item, said()) == {"R15"}


def test_R16_reasoning_has_no_content() -> None:
    assert rules(ASK, reasoning(content=None), said()) == set()
    assert rules(ASK, reasoning(content=[]), said()) == set()
    assert rules(ASK, reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]), said()) == {"R16"}


def test_Q9_some_gateways_want_reasoning_text_before_each_call() -> None:
    quirks = frozenset({"deepseek_reasoning"})
    shown = reasoning(content=[{"type": "reasoning_text", "text": "Hm."}])
    assert rules(ASK, shown, function_call(), output(), quirks=quirks) == set()
    assert rules(ASK, function_call(), output(), quirks=quirks) == {"Q9"}
    assert rules(ASK, reasoning(), function_call(), output(), quirks=quirks) == {"Q9"}


def test_R18_phase_is_the_assistants() -> None:
    assert rules(ASK, said(phase="commentary")) == set()
    assert rules(ASK | {"phase": "commentary"}) == {"R18"}


def test_R19_ids_have_at_most_64_characters() -> None:
    assert rules(ASK, said(id="msg_" + "a" * 60)) == set()
    assert rules(ASK, said(id="msg_" + "a" * 61)) == {"R19"}


def test_R20_ids_begin_with_the_prefix_of_their_type() -> None:
    assert rules(ASK, function_call(id="fc_1"), output(id="fco_1")) == set()
    assert rules(ASK, function_call(id="call_1"), output()) == {"R20"}
    assert rules(ASK, said(id="chatcmpl-1")) == {"R20"}
    assert rules(ASK | {"id": "note_1"}) == {"R20"}


def test_R21_no_id_twice() -> None:
    assert rules(ASK, said(id="msg_1"), said(id="msg_2")) == set()
    assert rules(ASK, said(id="msg_1"), said(id="msg_1")) == {"R21"}
    assert rules(ASK, said(id="msg_1"), {"type": "item_reference", "id": "msg_1"}) == {"R21"}


def test_R22_call_ids_have_1_to_64_characters() -> None:
    assert rules(ASK, function_call("a" * 64), output("a" * 64)) == set()
    assert rules(ASK, function_call("a" * 65), output("a" * 65)) == {"R22"}


def test_R23_a_reference_needs_the_store() -> None:
    assert rules(ASK, {"id": "msg_1"}) == set()
    assert rules(ASK, {"type": "item_reference", "id": "msg_1"}, store=False) == {"R23"}


@pytest.mark.parametrize(
    ("item", "key"),
    [
        (function_call(), "name"),
        (function_call(), "arguments"),
        ({"type": "custom_tool_call", "call_id": "call_1", "name": "sh", "input": "ls"}, "input"),
        (SHOT, "pending_safety_checks"),
        (SHELL, "action"),
        (PATCH, "operation"),
        ({"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "outputs": None}, "container_id"),
        ({"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "outputs": None}, "outputs"),
        ({"type": "program", "id": "p", "call_id": "c", "code": "x", "fingerprint": "f"}, "fingerprint"),
    ],
)
def test_R24_kept_items_keep_their_fields(item: Any, key: str) -> None:
    assert "R24" not in rules(ASK, item)
    assert "R24" in rules(ASK, {name: value for name, value in item.items() if name != key})


def test_R24_a_message_has_content() -> None:
    assert rules({"role": "user", "content": ""}) == set()
    assert rules({"role": "user"}) == {"R24"}
    assert rules(ASK, {"type": "message", "role": "assistant", "content": None}) == {"R24"}


def test_R25_a_message_needs_no_type() -> None:
    assert rules({"role": "developer", "content": "Be brief."}, ASK, {"role": "assistant", "content": "Fine."}) == set()


def test_R26_parts_fit_their_role() -> None:
    assert rules({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}) == set()
    assert rules({"role": "user", "content": [{"type": "output_text", "text": "hi"}]}) == {"R26"}
    assert rules(ASK, {"role": "assistant", "content": [{"type": "input_text", "text": "hi"}]}) == {"R26"}


def test_R33_a_compaction_item_is_opaque() -> None:
    assert rules({"type": "compaction", "encrypted_content": "enc"}, ASK) == set()
    assert rules({"type": "compaction", "encrypted_content": ""}, ASK) == {"R33"}
    assert rules({"type": "compaction"}, ASK) == {"R33"}


def test_R37_a_trigger_is_last() -> None:
    assert rules(ASK, {"type": "compaction_trigger"}) == set()
    assert rules(ASK, {"type": "compaction_trigger"}, ASK) == {"R37"}


def test_R40_a_screenshot_stays_a_screenshot() -> None:
    shown = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
    assert rules(ASK, SHOT, output(value=shown, kind="computer_call")) == set()
    assert rules(ASK, SHOT, output(value="cleared", kind="computer_call")) == {"R40"}
    assert rules(ASK, SHOT, output(value={"type": "computer_screenshot"}, kind="computer_call")) == {"R40"}


def test_R41_outputs_have_the_shape_of_their_type() -> None:
    parts = [{"type": "input_text", "text": "done"}]
    assert rules(ASK, function_call(), output(value=parts)) == set()
    assert rules(ASK, function_call(), output(value={"text": "done"})) == {"R41"}
    assert rules(ASK, function_call(), output(value=[{"type": "output_text", "text": "x"}])) == {"R41"}
    assert rules(ASK, SHELL, output(value="cleared", kind="shell_call")) == {"R41"}
    assert rules(ASK, PATCH, output(value="cleared", kind="apply_patch_call")) == {"R41"}  # no status


def test_R45_a_breakpoint_stands_on_an_input_part() -> None:
    marked = {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {}}
    assert rules({"role": "user", "content": [marked]}, model="gpt-5.6") == set()
    assert rules({"role": "user", "content": [marked]}, model="gpt-5.1") == {"R45"}
    spoken = {"type": "output_text", "text": "hi", "prompt_cache_breakpoint": {}}
    assert rules({"role": "assistant", "content": [spoken]}, model="gpt-5.6") == {"R45"}
