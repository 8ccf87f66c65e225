"""The messages of chat completions, and what servers have added to them: what calls, what answers, what can be read.

source: https://developers.openai.com/api/docs/guides/function-calling; the content parts of Mistral, Qwen, vLLM and OpenRouter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.core.jsonspan import Path, dump
from app.core.view import Call, Result
from app.formats.base import Part
from app.formats.lenient import json_size, string
from app.formats.media import document_tokens, image_of, media_name, recording_tokens

REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
# OpenAI's content parts (C11), and those that Mistral, Qwen, vLLM and OpenRouter take besides.
KNOWN = frozenset({
    "text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url", "document_url", "thinking", "reference",
})  # fmt: skip
_MOVING = frozenset({"cache_control", "prompt_cache_breakpoint", "client_metadata"})
"""What clients put on other messages with every request."""
_PAGE, _SECOND = 1_500, 10
"""Tokens of a page of PDF (its text and a picture of it) and of a second of sound."""


def results_of(item: Mapping[str, Any]) -> Iterator[Result]:
    """The results that a message brings; all calls that it answers, where one answer stands for several."""
    tool, size = string(item.get("name")), json_size(item.get("content"))
    if item.get("role") == "function":  # found by its function's name (C15)
        yield Result(f"function {tool}", tool, ("content",), size)
        return
    many = item.get("tool_call_ids")  # SWE-agent's records
    for ident in many[:1] if isinstance(many, list) and many else [item.get("tool_call_id")]:
        yield Result(string(ident), tool, ("content",), size)
    for ident in many[1:] if isinstance(many, list) else ():
        yield Result(string(ident), tool, ("content",), 0, clearable=False)


def calls_of(item: Mapping[str, Any]) -> Iterator[Call]:
    """The calls that a message makes, the one of the old kind (C15) as well."""
    calls = item.get("tool_calls")
    for at, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            kind, key = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
            inner = call.get(kind)
            yield _call(string(call.get("id")), inner, ("tool_calls", at, kind, key))
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        yield _call(f"function {string(legacy.get('name'))}", legacy, ("function_call", "arguments"))


def _call(ident: str, inner: Any, path: Path) -> Call:
    inner = inner if isinstance(inner, dict) else {}
    given = inner.get(path[-1])
    return Call(ident, string(inner.get("name")), path, json_size(string(given)), clearable=isinstance(given, str))


def parts_of(item: Any) -> Iterator[Part]:
    """The message's readable stretches."""
    if not isinstance(item, dict):
        return
    thought = next((item[key] for key in REASONING if item.get(key)), "")  # several keys say the same
    if thought:
        yield Part("reasoning", text_of(thought))
    kind: Any = "result" if item.get("role") in ("tool", "function") else "text"
    content = item.get("content")
    if isinstance(content, list):
        for block in content:
            yield _part(block, kind)
    elif content is not None:
        yield Part(kind, text_of(content))
    if isinstance(item.get("refusal"), str):
        yield Part("text", item["refusal"])
    calls = item.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        inner = (call.get("function") or call.get("custom")) if isinstance(call, dict) else None
        if isinstance(inner, dict):
            yield Part("call", text_of(inner.get("arguments", inner.get("input"))), str(inner.get("name") or ""))
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        yield Part("call", text_of(legacy.get("arguments")), str(legacy.get("name") or ""))


def _part(block: Any, kind: Any) -> Part:
    if not isinstance(block, dict):
        return Part(kind, text_of(block))
    for key in ("text", "refusal"):
        if isinstance(block.get(key), str):
            return Part(kind, block[key])
    if block.get("type") == "thinking":
        return Part("reasoning", text_of(block.get("thinking")))
    image = block.get("image_url")
    if image is not None:
        url = image.get("url") if isinstance(image, dict) else image
        detail = string(image.get("detail")) if isinstance(image, dict) else ""
        return Part("media", media_name(url, "image"), image=image_of(url, detail))
    sound = block.get("input_audio")
    if isinstance(sound, dict):
        return Part("media", "input_audio", tokens=recording_tokens(sound.get("data"), _SECOND))
    given = block.get("file")
    data = given.get("file_data") if isinstance(given, dict) else None
    name = media_name(data, string(block.get("type")) or "file")
    return Part("media", name, tokens=document_tokens(data, _PAGE))


def canonical_message(item: Any) -> Any:
    """Without what moves, without nulls, and without reasoning, which clients take out once its turn is over (as DeepSeek's documentation
    has it); one plain text is the same as a string."""
    if not isinstance(item, dict):
        return item
    same = {key: value for key, value in _still(item).items() if key not in REASONING}
    if isinstance(same.get("content"), list):
        said = (block for block in same["content"] if kind_of(block) != "thinking")
        blocks = [_still(block) if isinstance(block, dict) else block for block in said]
        only = blocks[0] if len(blocks) == 1 else None
        alone = isinstance(only, dict) and set(only) == {"type", "text"}
        same["content"] = only["text"] if alone and only else blocks
    return same


def kind_of(part: Any) -> str:
    """A part's type; parts without one are known by their key."""
    if not isinstance(part, dict):
        return "text" if isinstance(part, str) else ""
    return string(part.get("type")) or next((key for key in KNOWN if key in part), "")


def _still(thing: Mapping[str, Any]) -> dict[str, Any]:
    """Without what moves, and without nulls: they say as much as an absent key."""
    return {key: value for key, value in thing.items() if key not in _MOVING and value is not None}


def text_of(content: Any) -> str:
    """Content as text: a string, the texts of a list, nothing, or the JSON of whatever else it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_one_text(part) for part in content)
    return dump(content).decode()


def _one_text(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    return next((part[key] for key in ("text", "thinking", "summary", "refusal") if isinstance(part.get(key), str)), "")
