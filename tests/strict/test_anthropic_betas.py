"""What a body may only use with the right beta header."""

from __future__ import annotations

from typing import Any

import pytest

from .anthropic_betas import betas, violations
from .samples import anthropic, assistant, user

ASK = user("Read it.")


def test_A64_the_header_is_a_list_that_may_repeat() -> None:
    headers = [("anthropic-beta", "a, b"), ("x-api-key", "k"), ("Anthropic-Beta", "c")]
    assert betas(headers) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("rule", "value", "body"),
    [
        ("A63", "context-management-2025-06-27", anthropic(ASK, context_management={"edits": []})),
        (
            "A59",
            "compact-2026-01-12",
            anthropic(ASK, context_management={"edits": [{"type": "compact_20260112"}]}),
        ),
        ("A59", "compact-2026-01-12", anthropic(assistant({"type": "compaction", "content": "x"}), ASK)),
        ("A55", "mcp-client-2025-11-20", anthropic(ASK, mcp_servers=[{"name": "s"}])),
        (
            "A22",
            "mid-conversation-tool-changes-2026-07-01",
            anthropic(ASK, {"role": "system", "content": [{"type": "tool_addition", "tool": {}}]}),
        ),
        (
            "AB2",
            "thinking-binding-controls-2026-08-01",
            anthropic(ASK, thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        ),
    ],
)
def test_A64_a_beta_needs_its_header(rule: str, value: str, body: dict[str, Any]) -> None:
    assert violations(body, frozenset({value})) == []
    assert [violation.rule for violation in violations(body, frozenset({"other"}))] == [rule]


def test_A64_a_plain_body_needs_none() -> None:
    assert violations(anthropic(ASK), frozenset()) == []
