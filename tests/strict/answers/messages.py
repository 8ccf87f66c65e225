"""Anthropic Messages: content blocks, whole or between `message_start` and `message_stop`, with a `ping` in between.

`input_tokens` leaves out what was read from or written to the cache.
source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import Answer, pieces, sse

Delta = dict[str, Any]


def whole(answer: Answer) -> dict[str, Any]:
    return _message(answer, _content(answer), _stop(answer), answer.usage.output)


def events(answer: Answer) -> Iterator[bytes]:
    yield _event("message_start", message=_message(answer, [], None, min(1, answer.usage.output)))
    yield _event("ping")
    for index, block in enumerate(_content(answer)):
        empty, deltas = _stream(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event(
        "message_delta",
        delta={"stop_reason": _stop(answer), "stop_sequence": None},
        usage=usage(answer, answer.usage.output),
    )
    yield _event("message_stop")


def usage(answer: Answer, output: int) -> dict[str, Any]:
    use = answer.usage
    return {
        "input_tokens": use.prompt - use.cached - use.written,
        "cache_creation_input_tokens": use.written,
        "cache_read_input_tokens": use.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": use.written if answer.cache_ttl == "5m" else 0,
            "ephemeral_1h_input_tokens": use.written if answer.cache_ttl == "1h" else 0,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }


def _content(answer: Answer) -> list[dict[str, Any]]:
    reply = answer.reply
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": answer.seal})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for n, call in enumerate(reply.calls):
        blocks.append(
            {"type": "tool_use", "id": answer.call_id("toolu_", n), "name": call.name, "input": call.arguments}
        )
    return blocks


def _stream(block: dict[str, Any]) -> tuple[dict[str, Any], list[Delta]]:
    """A block as it starts, and the deltas that fill it."""
    if block["type"] == "thinking":
        deltas: list[Delta] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        return block | {"thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if block["type"] == "text":
        return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    json_pieces = ["", *pieces(json.dumps(block["input"]))] if block["input"] else [""]
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in json_pieces]


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.reply.calls else "end_turn"


def _message(answer: Answer, content: list[dict[str, Any]], stop: str | None, output: int) -> dict[str, Any]:
    return {
        "id": answer.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage(answer, output),
    }


def _event(kind: str, **data: Any) -> bytes:
    return sse({"type": kind, **data}, kind)
