"""Responses: output items, whole or built up event by event between `response.created` and `response.completed`.

Every event names its type twice, in `event:` and in the data, and carries a running `sequence_number`; there is no `[DONE]`.
source: https://developers.openai.com/api/docs/guides/streaming-responses
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from . import CREATED, Answer, pieces, sse

Event = tuple[str, dict[str, Any]]


def whole(answer: Answer) -> dict[str, Any]:
    return _response(answer, "completed", output(answer))


def compacted(answer: Answer, user_items: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of `POST /v1/responses/compact`: the user's messages, then one opaque item for the rest."""
    item = {"id": answer.id("cmp_"), "type": "compaction", "encrypted_content": answer.seal}
    return {
        "id": answer.id("resp_"),
        "object": "response.compaction",
        "created_at": CREATED,
        "output": [*user_items, item],
        "usage": usage(answer),
    }


def output(answer: Answer) -> list[dict[str, Any]]:
    reply = answer.reply
    items: list[dict[str, Any]] = []
    if reply.thinking:
        items.append(
            {
                "id": answer.id("rs_"),
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": reply.thinking}],
                "encrypted_content": answer.seal,
            }
        )
    if reply.text or not reply.calls:
        items.append(_message(answer, "completed", [_text(reply.text)]))
    items.extend(_call(answer, n, "completed", json.dumps(call.arguments)) for n, call in enumerate(reply.calls))
    return items


def events(answer: Answer) -> Iterator[bytes]:
    number = count()
    for kind, data in _events(answer):
        yield sse({"type": kind, "sequence_number": next(number), **data}, kind)


def failed(answer: Answer, body: dict[str, Any]) -> Iterator[bytes]:
    """A stream that starts well and then fails: how an overflow can come inside a 200 (E2)."""
    started = _response(answer, "in_progress", [])
    why = {"code": body["error"]["code"], "message": body["error"]["message"]}
    yield sse({"type": "response.created", "sequence_number": 0, "response": started}, "response.created")
    over = {**_response(answer, "failed", []), "error": why}
    yield sse({"type": "response.failed", "sequence_number": 1, "response": over}, "response.failed")


def usage(answer: Answer) -> dict[str, Any]:
    use = answer.usage
    return {
        "input_tokens": use.prompt,
        "input_tokens_details": {"cached_tokens": use.cached, "cache_write_tokens": 0},
        "output_tokens": use.output,
        "output_tokens_details": {"reasoning_tokens": use.reasoning},
        "total_tokens": use.prompt + use.output,
    }


def _events(answer: Answer) -> Iterator[Event]:
    started = _response(answer, "in_progress", [])
    yield "response.created", {"response": started}
    yield "response.in_progress", {"response": started}
    items = output(answer)
    for index, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "reasoning":
            yield from _reasoning_events(item, place)
        elif item["type"] == "message":
            yield from _message_events(answer, item, place)
        else:
            n = index - sum(other["type"] != "function_call" for other in items)
            yield from _call_events(answer, n, item, place)
    yield "response.completed", {"response": _response(answer, "completed", items)}


def _reasoning_events(item: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    summary = {**place, "summary_index": 0}
    text = item["summary"][0]["text"]
    yield "response.output_item.added", {"output_index": place["output_index"], "item": item | {"summary": []}}
    yield "response.reasoning_summary_part.added", {**summary, "part": {"type": "summary_text", "text": ""}}
    for piece in pieces(text):
        yield "response.reasoning_summary_text.delta", {**summary, "delta": piece}
    yield "response.reasoning_summary_text.done", {**summary, "text": text}
    yield "response.reasoning_summary_part.done", {**summary, "part": item["summary"][0]}
    yield "response.output_item.done", {"output_index": place["output_index"], "item": item}


def _message_events(answer: Answer, item: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    index = place["output_index"]
    part = {**place, "content_index": 0}
    text = item["content"][0]["text"]
    yield "response.output_item.added", {"output_index": index, "item": _message(answer, "in_progress", [])}
    yield "response.content_part.added", {**part, "part": _text("")}
    for piece in pieces(text):
        yield "response.output_text.delta", {**part, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**part, "text": text, "logprobs": []}
    yield "response.content_part.done", {**part, "part": item["content"][0]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _call_events(answer: Answer, n: int, item: dict[str, Any], place: dict[str, Any]) -> Iterator[Event]:
    index = place["output_index"]
    yield "response.output_item.added", {"output_index": index, "item": _call(answer, n, "in_progress", "")}
    for piece in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", {**place, "delta": piece}
    yield "response.function_call_arguments.done", {**place, "name": item["name"], "arguments": item["arguments"]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(answer: Answer, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": answer.id("msg_"), "type": "message", "status": status, "role": "assistant", "content": content}


def _call(answer: Answer, n: int, status: str, arguments: str) -> dict[str, Any]:
    return {
        "id": answer.id("fc_", n),
        "type": "function_call",
        "status": status,
        "call_id": answer.call_id("call_", n),
        "name": answer.reply.calls[n].name,
        "arguments": arguments,
    }


def _response(answer: Answer, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": answer.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage(answer) if status == "completed" else None,
        "user": None,
        "metadata": {},
    }
