"""Chat Completions: one message, or chunks that end in `[DONE]`.

The usage chunk comes only when the request asked for it; then every other chunk says `usage: null`.
source: github.com/openai/openai-openapi `ChatCompletionStreamOptions`, `CompletionUsage`
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import CREATED, Answer, pieces, sse


def whole(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.reply.text or None,
        "refusal": None,
        "annotations": [],
    }
    if answer.reply.thinking:
        message["reasoning_content"] = answer.reply.thinking
    if answer.reply.calls:
        message["tool_calls"] = [
            {
                "id": answer.call_id("call_", n),
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for n, call in enumerate(answer.reply.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return _frame(answer, "chat.completion", [choice]) | {"usage": usage(answer)}


def events(answer: Answer) -> Iterator[bytes]:
    yield _chunk(answer, {"role": "assistant", "content": "", "refusal": None})
    for piece in pieces(answer.reply.thinking):
        yield _chunk(answer, {"reasoning_content": piece})
    for piece in pieces(answer.reply.text):
        yield _chunk(answer, {"content": piece})
    for n, call in enumerate(answer.reply.calls):
        start = {
            "index": n,
            "id": answer.call_id("call_", n),
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        yield _chunk(answer, {"tool_calls": [start]})
        for piece in pieces(json.dumps(call.arguments)):
            yield _chunk(answer, {"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    yield _chunk(answer, {}, _finish(answer))
    if answer.with_usage:
        yield sse(_frame(answer, "chat.completion.chunk", []) | {"usage": usage(answer)})
    yield sse("[DONE]")


def usage(answer: Answer) -> dict[str, Any]:
    use = answer.usage
    return {
        "prompt_tokens": use.prompt,
        "completion_tokens": use.output,
        "total_tokens": use.prompt + use.output,
        "prompt_tokens_details": {"cached_tokens": use.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": use.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.reply.calls else "stop"


def _frame(answer: Answer, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": answer.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "choices": choices,
        "service_tier": "default",
        "system_fingerprint": "fp_strict",
    }


def _chunk(answer: Answer, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = _frame(answer, "chat.completion.chunk", [choice])
    return sse(chunk | {"usage": None} if answer.with_usage else chunk)
