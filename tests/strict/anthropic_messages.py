"""What Anthropic's Messages API refuses in a history.

Three questions, each one walk over the messages: do roles and endings stand where they may (here), does every call meet
its result (`anthropic_pairs`), and is each block right by itself and the body as a whole (`anthropic_blocks`,
`anthropic_body`). Betas that need a header are checked by `anthropic_betas`, since headers are not in the body; signatures
by the server, since they need to be issued first. The quirk `alternating_roles` stands for gateways that do not merge
neighbouring messages of one role.
source: https://platform.claude.com/docs/en/api/messages/create, https://platform.claude.com/docs/en/api/errors
"""

from __future__ import annotations

from . import anthropic_blocks, anthropic_body, anthropic_pairs
from .violation import JSON, NO_QUIRKS, Found, Violation, claude_version, dicts

_SPEAKS_MID_WAY = ("opus-4-8", "opus-4.8", "opus-5", "fable-5", "mythos-5")
_PAUSED = frozenset({"server_tool_use", "mcp_tool_use", "compaction"})
"""Blocks that a last assistant message may hold without being a prefilled answer."""


def violations(body: JSON, *, model: str = "", quirks: frozenset[str] = NO_QUIRKS) -> list[Violation]:
    """What the provider would refuse in a Messages body (also one for `count_tokens`).

    `model` stands in for a missing `body["model"]`; rules that depend on an unknown model keep silent.
    """
    found = Found()
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        found.add("A18", "messages", "messages: at least one message is required")
        return found
    if len(messages) > 100_000:
        found.add("A18", "messages", "messages: at most 100000 messages are allowed")
    model = str(body.get("model") or model)
    thread = body.get("thread")
    continued = isinstance(thread, dict) and thread.get("type") == "continue"
    _order(messages, model, continued, found)
    if "alternating_roles" in quirks:
        _alternating(messages, found)
    waiting = anthropic_pairs.check(messages, continued, found)
    _ending(messages, body, model, found)
    _thinking_first(messages, body, found)
    asked = dicts(messages[-2].get("content")) if carries_results(messages[-1]) and len(messages) > 1 else []
    if any(map(anthropic_pairs.from_code, asked)) and not body.get("container"):
        found.add("A52", "container", "container: required to continue programmatic tool calls")
    seen = anthropic_blocks.check(messages, found)
    anthropic_body.check(body, model, seen, waiting, continued, found)
    return found


def thinks(body: JSON) -> str:
    """How the request thinks: `enabled`, `adaptive`, or empty for not at all."""
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else ""
    return str(kind) if kind in ("enabled", "adaptive") else ""


def carries_results(message: JSON) -> bool:
    return message.get("role") == "user" and any(
        block.get("type") == "tool_result" for block in dicts(message.get("content"))
    )


def _order(messages: list[JSON], model: str, continued: bool, found: Found) -> None:
    """A15, A19, A20, A23, A60: who may speak where."""
    first = messages[0]
    after_compaction = any(block.get("type") == "compaction" for block in dicts(first.get("content")))
    if first.get("role") == "assistant" and not continued and not after_compaction:
        found.add("A15", "messages.0.role", 'messages: first message must use the "user" role')
    silent = claude_version(model) is not None and not any(name in model for name in _SPEAKS_MID_WAY)
    last = len(messages) - 1
    for i, message in enumerate(messages):
        role = message.get("role")
        if role in ("user", "assistant"):
            continue
        where = f"messages.{i}.role"
        if role != "system":
            found.add("A15", where, f"{where}: Input should be 'user' or 'assistant'")
            continue
        if silent:
            found.add("A23", where, f"{where}: role 'system' is not supported on this model")
        if i == 0 and not continued:
            found.add("A19", where, f"{where}: a system message may not be the first message")
        elif i and not _may_precede_system(messages[i - 1]):
            found.add("A19", where, f"{where}: a system message must follow a user turn or a server tool result")
        if i < last and messages[i + 1].get("role") not in ("system", "assistant"):
            found.add("A19", where, f"{where}: a system message must be last or be followed by an assistant turn")


def _may_precede_system(message: JSON) -> bool:
    """A user turn, another system message of the section, or an assistant turn that ends in a server tool's result."""
    role, content = message.get("role"), message.get("content")
    if role != "assistant":
        return role in ("user", "system")
    end = content[-1] if isinstance(content, list) and content and isinstance(content[-1], dict) else {}
    return str(end.get("type")).endswith("_tool_result")


def _alternating(messages: list[JSON], found: Found) -> None:
    for i in range(1, len(messages)):
        role = messages[i].get("role")
        if role == messages[i - 1].get("role") and role in ("user", "assistant"):
            found.add("A16", f"messages.{i}.role", 'messages: roles must alternate between "user" and "assistant"')


def _ending(messages: list[JSON], body: JSON, model: str, found: Found) -> None:
    """A27, A27a, A27b, A62: a prefilled answer, a paused turn, a compaction that just happened."""
    last = messages[-1]
    if last.get("role") != "assistant":
        return
    i = len(messages) - 1
    content = last.get("content")
    blocks = dicts(content)
    text = content if isinstance(content, str) else blocks[-1].get("text") if blocks else ""
    if isinstance(text, str) and text[-1:].isspace():
        found.add("A27", f"messages.{i}", "messages: final assistant content cannot end with trailing whitespace")
    kinds = [str(block.get("type")) for block in blocks]
    if any(kind in _PAUSED or kind.endswith("_tool_result") for kind in kinds):
        return
    version = claude_version(model)
    if (version is not None and version >= (4, 6)) or thinks(body):
        found.add(
            "A27a",
            f"messages.{i}",
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        )


def _thinking_first(messages: list[JSON], body: JSON, found: Found) -> None:
    """A30: in a tool loop under manual thinking the model's turn begins with a thinking block."""
    if thinks(body) != "enabled" or not carries_results(messages[-1]):
        return
    first: int | None = None
    for i in range(len(messages) - 1, -1, -1):
        role = messages[i].get("role")
        if role == "assistant":
            first = i
        elif role == "user" and not carries_results(messages[i]):
            break
    if first is None:
        return
    blocks = dicts(messages[first].get("content"))
    kind = blocks[0].get("type") if blocks else "text"
    if kind not in ("thinking", "redacted_thinking", "compaction"):
        found.add(
            "A30",
            f"messages.{first}.content.0",
            f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block.",
        )
