"""Rules of the servers that speak the chat format but refuse more than OpenAI does.

Each quirk is one server family, or one habit that several share: `alternating_roles`, `mistral_order`, `mistral_ids`,
`deepseek_reasoning`, `refuses_reasoning`, `thought_signatures`. (`json_arguments` is checked with the calls.)
source: mistralai/mistral-common `protocol/instruct/validator.py`, https://api-docs.deepseek.com/guides/thinking_mode,
vllm-project/vllm#6862, suitenumerique/conversations#197, pipecat-ai/pipecat-flows#178
"""

from __future__ import annotations

import re

from .violation import JSON, Found

_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")


def check(messages: list[JSON], quirks: frozenset[str], found: Found) -> None:
    if "alternating_roles" in quirks:
        _alternating(messages, found)
    if "mistral_order" in quirks:
        _mistral(messages, found)
    if "mistral_ids" in quirks:
        _mistral_ids(messages, found)
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        reasoning = message.get("reasoning_content")
        if "deepseek_reasoning" in quirks and message.get("tool_calls") and not reasoning:
            found.add(
                "Q6", f"messages.{i}", "The reasoning_content in the thinking mode must be passed back to the API."
            )
        if "refuses_reasoning" in quirks and "reasoning_content" in message:
            found.add("Q10", f"messages.{i}", "property 'reasoning_content' is unsupported")
    if "thought_signatures" in quirks:
        _signatures(messages, found)


def _alternating(messages: list[JSON], found: Found) -> None:
    """Q15, Q17: one system message at the start; questions and final answers take turns (tool traffic does not count)."""
    before: object = None
    asked = False
    for i, message in enumerate(messages):
        role = message.get("role")
        if role in ("system", "developer"):
            if i:
                found.add("Q15", f"messages.{i}", "System message must be at the beginning.")
            continue
        asked = asked or role == "user"
        if role not in ("user", "assistant") or message.get("tool_calls"):
            continue
        if role == before or (before is None and role == "assistant"):
            found.add("Q15", f"messages.{i}", "Conversation roles must alternate user/assistant/user/assistant/...")
        before = role
    if not asked:
        found.add("Q17", "messages", "No user query found in messages.")


def _mistral(messages: list[JSON], found: Found) -> None:
    """Q1, Q2, Q3, Q5, Q26. An order that is refused has the code 3230 there."""
    before: object = None
    waiting: list[object] = []
    called = answers = 0
    for i, message in enumerate(messages):
        role = message.get("role")
        where = f"messages.{i}"
        if before is None and role not in ("system", "user"):
            found.add("Q3", where, f"Expected first message to be a user or system message, but got {role}")
        elif role == "user" and before == "tool":
            found.add("Q2", where, "Unexpected role 'user' after role 'tool'")
        elif role == "system" and before in ("assistant", "tool"):
            found.add("Q26", where, f"Unexpected role 'system' after role '{before}'")
        elif role == "tool" and before in ("user", "system"):
            found.add("Q26", where, f"Unexpected role 'tool' after role '{before}'")
        if role == "tool":
            answers += 1
            if message.get("tool_call_id") in waiting:
                waiting.remove(message.get("tool_call_id"))
            else:
                found.add("Q1", where, f"Unexpected tool call id {message.get('tool_call_id')} in tool results.")
        elif called != answers:
            found.add("Q1", where, "Not the same number of function calls and responses")
        if role == "assistant":
            calls = message.get("tool_calls") or []
            waiting = [call.get("id") for call in calls]
            called, answers = len(calls), 0
            if not calls and not message.get("content"):
                found.add("Q5", where, "Assistant message must have either content or tool_calls, but not none.")
            if message.get("prefix") and i < len(messages) - 1:
                found.add("Q3", where, "Assistant message with prefix True must be last message.")
        elif role != "tool":
            called = answers = 0
            if role == "system" and not message.get("content"):
                found.add("Q5", where, "System message content may not be empty.")
        before = role
    last = messages[-1]
    if called != answers:
        found.add("Q1", "messages", "Not the same number of function calls and responses")
    if last.get("role") not in ("user", "tool") and not (last.get("role") == "assistant" and last.get("prefix")):
        found.add(
            "Q3",
            f"messages.{len(messages) - 1}",
            f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {last.get('role')}",
        )


def _mistral_ids(messages: list[JSON], found: Found) -> None:
    for i, message in enumerate(messages):
        for call_id in [call.get("id") for call in message.get("tool_calls") or []] + (
            [message.get("tool_call_id")] if message.get("role") == "tool" else []
        ):
            if not isinstance(call_id, str) or not _MISTRAL_ID.fullmatch(call_id):
                found.add(
                    "Q4", f"messages.{i}", f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
                )


def _signatures(messages: list[JSON], found: Found) -> None:
    """C28: in the current turn the first call of every step carries Gemini's signature."""
    start = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    for i in range(start + 1, len(messages)):
        calls = messages[i].get("tool_calls")
        if not calls:
            continue
        extra = calls[0].get("extra_content")
        google = extra.get("google") if isinstance(extra, dict) else None
        if not (isinstance(google, dict) and google.get("thought_signature")):
            found.add("C28", f"messages.{i}.tool_calls.0", "Function call is missing a thought_signature")
