"""OpenAI chat completions, and the many servers that speak it.

An item is a message. Calls sit in the assistant message, each result in a message of its own right after it. Whatever a server
adds to a message (reasoning_content, extra_content, annotations, …) stays on kept messages untouched, because nothing is rewritten.
Rules: C1 to C29 and Q1 to Q26 in the tests; source: https://developers.openai.com/api/docs/guides/function-calling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from app.core.jsonspan import FRONT, REMOVED, Edit, Path, dump
from app.core.notes import BARE, is_note
from app.core.view import Call, Clearing, Facts, Result, Role
from app.formats import wording
from app.formats.base import Answer, Binding, CountCall, Part, Target, Usage
from app.formats.media import document_tokens, image_of, media_name, recording_tokens

_PATH = re.compile(r"/chat/completions/?$")
_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
# OpenAI's content parts (C11), and those that Mistral, Qwen, vLLM and OpenRouter take besides.
_KNOWN = frozenset({
    "text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url", "document_url", "thinking", "reference",
})  # fmt: skip
_MOVING = frozenset({"cache_control", "prompt_cache_breakpoint", "client_metadata"})
"""What clients put on other messages with every request."""
_STOPS = {"length": "truncated", "model_length": "truncated", "content_filter": "refused", "error": "failed"}
_DEPLOYMENT = re.compile(r"(?<=/deployments/)[^/]+")
_THOUGHT = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
"""How servers without a reasoning parser show what a model thought first."""
_PAGE, _SECOND = 1_500, 10
"""Tokens of a page of PDF (its text and a picture of it) and of a second of sound."""
"""A file counts so many tokens for each so many bytes: about a page."""


class OpenAIChat:
    name: ClassVar[str] = "openai-chat"
    history: ClassVar[str] = "messages"
    fields: ClassVar[tuple[str, ...]] = (
        "model", "stream", "tools", "functions", "response_format", "prediction", "prompt_cache_key", "user", "metadata",
    )  # fmt: skip
    counted: ClassVar[tuple[str, ...]] = ("tools", "functions", "response_format", "prediction")
    auth_header: ClassVar[str] = "authorization"
    terminal: ClassVar[tuple[bytes, ...]] = (b"[DONE]",)
    # A comment, without a blank line behind it: some clients take that for an event. source: theopenco/llmgateway#2334
    keepalive: ClassVar[bytes] = b": compacting\n"

    def target(self, path: str) -> Target | None:
        return Target(self.name) if _PATH.search(path) else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:  # noqa: ARG002  # nothing in chat keeps history elsewhere
        asked = isinstance(last, dict) and last.get("role") == "user"
        return "client_compaction" if asked and wording.asks_for_summary("", _text(last.get("content"))) else ""

    def session_hint(self, fields: Mapping[str, Any]) -> str:
        return _string(fields.get("prompt_cache_key"))

    # Reading an item

    def facts(self, item: Any) -> Facts:
        role = _ROLES.get(_string(item.get("role"))) if isinstance(item, dict) else None
        if role is None:
            return Facts("user", pinned=True)
        if role == "system":
            return Facts("system", stays=True)
        if role == "tool":
            return Facts("tool", results=tuple(self._results(item)))
        content = item.get("content")
        kinds = {_kind(part) for part in content} if isinstance(content, list) else set()
        pinned = not kinds <= _KNOWN
        if role == "assistant":
            reasoning = any(item.get(key) for key in _REASONING) or "thinking" in kinds
            # What the model said aloud is kept by the provider, under an id (C14).
            return Facts(
                "assistant", tuple(self._calls(item)), reasoning=reasoning, pinned=pinned or bool(item.get("audio"))
            )
        note = isinstance(content, str) and is_note(content)
        return Facts("user", opens_turn=True, pinned=pinned, note=note)

    def _results(self, item: Mapping[str, Any]) -> Iterator[Result]:
        content, tool = item.get("content"), _string(item.get("name"))
        size = len(dump(content)) if isinstance(content, list | dict) else _bytes(_string(content))
        if item.get("role") == "function":  # found by its function's name (C15)
            yield Result(f"function {tool}", tool, ("content",), size)
            return
        many = item.get("tool_call_ids")  # SWE-agent's records
        for ident in many[:1] if isinstance(many, list) and many else [item.get("tool_call_id")]:
            yield Result(_string(ident), tool, ("content",), size)
        for ident in many[1:] if isinstance(many, list) else ():
            yield Result(_string(ident), tool, ("content",), 0, clearable=False)

    def _calls(self, item: Mapping[str, Any]) -> Iterator[Call]:
        calls = item.get("tool_calls")
        for at, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                kind, key = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
                inner = call.get(kind)
                yield _call(_string(call.get("id")), inner, ("tool_calls", at, kind, key))
        legacy = item.get("function_call")
        if isinstance(legacy, dict):
            yield _call(f"function {_string(legacy.get('name'))}", legacy, ("function_call", "arguments"))

    def parts(self, item: Any) -> Iterator[Part]:
        if not isinstance(item, dict):
            return
        thought = next((item[key] for key in _REASONING if item.get(key)), "")  # several keys say the same
        if thought:
            yield Part("reasoning", _text(thought))
        kind: Any = "result" if item.get("role") in ("tool", "function") else "text"
        content = item.get("content")
        if isinstance(content, list):
            for block in content:
                yield self._part(block, kind)
        elif content is not None:
            yield Part(kind, _text(content))
        if isinstance(item.get("refusal"), str):
            yield Part("text", item["refusal"])
        calls = item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            inner = (call.get("function") or call.get("custom")) if isinstance(call, dict) else None
            if isinstance(inner, dict):
                yield Part("call", _text(inner.get("arguments", inner.get("input"))), str(inner.get("name") or ""))
        legacy = item.get("function_call")
        if isinstance(legacy, dict):
            yield Part("call", _text(legacy.get("arguments")), str(legacy.get("name") or ""))

    def _part(self, block: Any, kind: Any) -> Part:
        if not isinstance(block, dict):
            return Part(kind, _text(block))
        for key in ("text", "refusal"):
            if isinstance(block.get(key), str):
                return Part(kind, block[key])
        if block.get("type") == "thinking":
            return Part("reasoning", _text(block.get("thinking")))
        image = block.get("image_url")
        if image is not None:
            url = image.get("url") if isinstance(image, dict) else image
            detail = _string(image.get("detail")) if isinstance(image, dict) else ""
            return Part("media", media_name(url, "image"), image=image_of(url, detail))
        sound = block.get("input_audio")
        if isinstance(sound, dict):
            return Part("media", "input_audio", tokens=recording_tokens(sound.get("data"), _SECOND))
        given = block.get("file")
        data = given.get("file_data") if isinstance(given, dict) else None
        name = media_name(data, _string(block.get("type")) or "file")
        return Part("media", name, tokens=document_tokens(data, _PAGE))

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        for key in ("tools", "functions", "response_format"):
            if fields.get(key):
                yield Part("text", dump(fields[key]).decode())
        predicted = fields.get("prediction")
        if isinstance(predicted, dict):
            yield Part("text", _text(predicted.get("content")))

    def canonical(self, item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        same = _still(item)
        if isinstance(same.get("content"), list):
            blocks = [_still(block) if isinstance(block, dict) else block for block in same["content"]]
            only = blocks[0] if len(blocks) == 1 else None
            alone = isinstance(only, dict) and set(only) == {"type", "text"}
            same["content"] = only["text"] if alone and only else blocks
        return same

    # Writing

    def clear(self, item: Any, clearings: Iterable[Clearing]) -> list[Edit]:
        facts = self.facts(item)
        edits: list[Edit] = []
        for clearing in clearings:
            if clearing.inputs:
                path = facts.calls[clearing.ordinal].path
                # `arguments` is a JSON text of an object (C8); a custom tool's input is free text (C16).
                edits.append((path, dump(clearing.text) if path[-1] == "input" else dump("{}")))
            else:
                edits.append((facts.results[clearing.ordinal].path, dump(clearing.text)))
        return edits

    def lead(self, item: Any, text: str) -> list[Edit]:
        content = item.get("content")
        if not isinstance(content, list):
            return [(("content",), dump(f"{text}\n\n{_text(content)}"))]
        first = content[0] if content else None
        if isinstance(first, dict) and isinstance(first.get("text"), str):
            return [(("content", 0, "text"), dump(f"{text}\n\n{first['text']}"))]
        return [(("content", FRONT), dump({"type": "text", "text": text}))]

    def without_reasoning(self, item: Any) -> list[Edit]:
        edits: list[Edit] = [((key,), REMOVED) for key in _REASONING if key in item]
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        gone = [at for at, block in enumerate(blocks) if _kind(block) == "thinking"]
        if gone and len(gone) == len(blocks):
            return [*edits, (("content",), dump(BARE))]
        return [*edits, *((("content", at), REMOVED) for at in gone)]

    def without_calls(self, item: Any) -> list[Edit] | None:
        return [((key,), REMOVED) for key in ("tool_calls", "function_call") if key in item]

    def binding(self, fields: Mapping[str, Any]) -> Binding:  # noqa: ARG002
        return Binding("impossible")

    def note(self, text: str) -> bytes:
        return dump({"role": "user", "content": text})

    def obliges(self, fields: Mapping[str, Any]) -> str:
        """C29."""
        wanted = fields.get("response_format")
        return "JSON" if isinstance(wanted, dict) and wanted.get("type") == "json_object" else ""

    # Answers

    def usage(self, event: Any) -> Usage | None:
        told = next(_usages(event), None) if isinstance(event, dict) else None
        if told is None:
            return None
        details = told.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        cached = details.get("cached_tokens") or told.get("prompt_cache_hit_tokens") or told.get("cached_tokens")
        return Usage(
            _int(told.get("prompt_tokens")),
            _int(told.get("completion_tokens")),
            _int(cached),
            _int(details.get("cache_write_tokens")),
        )

    def merge(self, earlier: Usage, later: Usage) -> Usage:
        return Usage(
            later.input or earlier.input, later.output or earlier.output,
            later.cache_read or earlier.cache_read, later.cache_write or earlier.cache_write,
        )  # fmt: skip

    def overflow(self, status: int, body: bytes) -> int | None:
        return wording.overflow(status, body)

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        body = {"model": model, "messages": [{"role": "user", "content": text}], limit: max_tokens}
        if not model:
            del body["model"]  # Azure's path says it
        elif model != fields.get("model"):
            path = _DEPLOYMENT.sub(quote(model, safe=""), path)
        return (path or "/v1/chat/completions").encode("latin-1"), dump(body)

    def answer(self, body: Any) -> Answer:
        choices = body.get("choices") if isinstance(body, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        said = [*self.parts({key: message.get(key) for key in ("content", *_REASONING)})]
        whole = "\n".join(part.text for part in said if part.kind == "text")
        thought = _THOUGHT.match(whole)
        text = whole[thought.end() :] if thought else whole
        if message.get("tool_calls") or message.get("function_call"):
            problem = "tool_call"
        elif message.get("refusal"):
            problem = "refused"
        else:
            problem = _STOPS.get(_string(choice.get("finish_reason")), "")
        if not problem and not text.strip() and (thought or any(part.kind == "reasoning" for part in said)):
            problem = "reasoning_only"
        return Answer(text, problem, self.usage(body) or Usage())

    def refused(self, fields: Mapping[str, Any], quirks: Collection[str]) -> Binding | None:  # noqa: ARG002
        return None

    def counting(self, model: str, path: str) -> CountCall | None:  # noqa: ARG002  # there is none (T5)
        return None

    def lesson(self, status: int, body: bytes) -> str:  # noqa: ARG002
        return ""

    def error(self, status: int, code: str, message: str) -> bytes:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return dump({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def stream_error(self, status: int, code: str, message: str) -> bytes:
        return b"data: " + self.error(status, code, message) + b"\n\n"


def _call(ident: str, inner: Any, path: Path) -> Call:
    inner = inner if isinstance(inner, dict) else {}
    given = inner.get(path[-1])
    return Call(ident, _string(inner.get("name")), path, _bytes(_string(given)), clearable=isinstance(given, str))


def _kind(part: Any) -> str:
    """A part's type; parts without one are known by their key."""
    if not isinstance(part, dict):
        return "text" if isinstance(part, str) else ""
    return _string(part.get("type")) or next((key for key in _KNOWN if key in part), "")


def _usages(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Where servers put it: at the top (null in most chunks of a stream), Groq in `x_groq`, Moonshot in the last choice."""
    choices = event.get("choices")
    for holder in (event, event.get("x_groq"), *(choices if isinstance(choices, list) else ())):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            yield holder["usage"]


def _still(thing: Mapping[str, Any]) -> dict[str, Any]:
    """Without what moves, and without nulls: they say as much as an absent key."""
    return {key: value for key, value in thing.items() if key not in _MOVING and value is not None}


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _text(content: Any) -> str:
    """Content as text: a string, the texts of a list, nothing, or the JSON of whatever else it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text_of(part) for part in content)
    return dump(content).decode()


def _text_of(part: Any) -> str:
    if not isinstance(part, dict):
        return _text(part)
    return next((part[key] for key in ("text", "thinking", "summary", "refusal") if isinstance(part.get(key), str)), "")
