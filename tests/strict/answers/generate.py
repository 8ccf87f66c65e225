"""Gemini: candidates, whole or as chunks that are responses themselves, as server-sent events or as one JSON array.

The prompt's count includes cached tokens; thoughts are counted apart. A signature stands on the first call, or on the last
text part if there is no call.
source: https://ai.google.dev/gemini-api/docs/thought-signatures, https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import Answer, pieces


def whole(answer: Answer) -> dict[str, Any]:
    return _response(answer, _parts(answer, [answer.reply.text] if answer.reply.text else []), "STOP")


def chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    parts = _parts(answer, list(pieces(answer.reply.text)))
    for part in parts[:-1]:
        yield _response(answer, [part], None)
    yield _response(answer, parts[-1:], "STOP")


def events(answer: Answer) -> Iterator[bytes]:
    for chunk in chunks(answer):
        yield b"data: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\r\n\r\n"


def array(answer: Answer) -> Iterator[bytes]:
    """The stream without `alt=sse`: one JSON array that grows."""
    before = b"["
    for chunk in chunks(answer):
        yield before + json.dumps(chunk, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
        before = b"\n,\r\n"
    yield b"]" if before != b"[" else b"[]"


def usage(answer: Answer) -> dict[str, Any]:
    use = answer.usage
    spoken = use.output - use.reasoning
    counts = {
        "promptTokenCount": use.prompt,
        "candidatesTokenCount": spoken,
        "totalTokenCount": use.prompt + use.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": use.prompt}],
    }
    if use.cached:
        counts["cachedContentTokenCount"] = use.cached
        counts["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": use.cached}]
    if use.reasoning:
        counts["thoughtsTokenCount"] = use.reasoning
    return counts


def _parts(answer: Answer, texts: list[str]) -> list[dict[str, Any]]:
    reply = answer.reply
    parts: list[dict[str, Any]] = []
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    parts.extend({"text": text} for text in texts)
    calls: list[dict[str, Any]] = [
        {"functionCall": {"name": call.name, "args": call.arguments} | ({"id": call.id} if call.id else {})}
        for call in reply.calls
    ]
    signed = calls[0] if calls else parts[-1] if texts else None
    if signed is not None and answer.seal:
        signed["thoughtSignature"] = answer.seal
    return parts + calls


def _response(answer: Answer, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": usage(answer),
        "modelVersion": answer.model,
        "responseId": answer.id(""),
    }
