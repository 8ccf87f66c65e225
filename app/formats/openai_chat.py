"""OpenAI chat completions, and the many servers that speak it.

An item is a message. Calls sit in the assistant message, each result in a message of its own right after it. Whatever a server
adds to a message (reasoning_content, extra_content, annotations, …) stays on kept messages untouched, because nothing is rewritten.
Rules: C1 to C29 and Q1 to Q26 in the tests; source: https://developers.openai.com/api/docs/guides/function-calling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from app.core.jsonspan import FRONT, REMOVED, Edit, dump
from app.core.notes import BARE, is_note
from app.core.view import Facts, Role
from app.formats import wording
from app.formats.base import Answer, Format, Part, Target, Usage
from app.formats.chat_messages import (
    KNOWN,
    REASONING,
    calls_of,
    canonical_message,
    kind_of,
    parts_of,
    results_of,
    text_of,
)
from app.formats.lenient import figure, string

_PATH = re.compile(r"/chat/completions/?$")
_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_STOPS = {"length": "truncated", "model_length": "truncated", "content_filter": "refused", "error": "failed"}
_DEPLOYMENT = re.compile(r"(?<=/deployments/)[^/]+")
_THOUGHT = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
"""How servers without a reasoning parser show what a model thought first."""


class OpenAIChat(Format):
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
        """Azure's path names the deployment, which stands for the model where the body names none."""
        return Target(self.name, _deployment(path)) if _PATH.search(path) else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        asked = isinstance(last, dict) and last.get("role") == "user"
        return "client_compaction" if asked and wording.asks_for_summary("", text_of(last.get("content"))) else ""

    def session_hint(self, fields: Mapping[str, Any]) -> str:
        return string(fields.get("prompt_cache_key"))

    # Reading an item

    def facts(self, item: Any) -> Facts:
        role = _ROLES.get(string(item.get("role"))) if isinstance(item, dict) else None
        if role is None:
            return Facts("user", pinned=True)
        if role == "system":
            return Facts("system", stays=True)
        if role == "tool":
            return Facts("tool", results=tuple(results_of(item)))
        content = item.get("content")
        kinds = {kind_of(part) for part in content} if isinstance(content, list) else set()
        pinned = not kinds <= KNOWN
        if role == "assistant":
            reasoning = any(item.get(key) for key in REASONING) or "thinking" in kinds
            # What the model said aloud is kept by the provider, under an id (C14).
            return Facts(
                "assistant", tuple(calls_of(item)), reasoning=reasoning, pinned=pinned or bool(item.get("audio"))
            )
        note = isinstance(content, str) and is_note(content)
        return Facts("user", opens_turn=True, pinned=pinned, note=note)

    def parts(self, item: Any) -> Iterator[Part]:
        return parts_of(item)

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        for key in ("tools", "functions", "response_format"):
            if fields.get(key):
                yield Part("text", dump(fields[key]).decode())
        predicted = fields.get("prediction")
        if isinstance(predicted, dict):
            yield Part("text", text_of(predicted.get("content")))

    def canonical(self, item: Any) -> Any:
        return canonical_message(item)

    # Writing

    def lead(self, item: Any, text: str) -> list[Edit]:
        content = item.get("content")
        if not isinstance(content, list):
            return [(("content",), dump(f"{text}\n\n{text_of(content)}"))]
        first = content[0] if content else None
        if isinstance(first, dict) and isinstance(first.get("text"), str):
            return [(("content", 0, "text"), dump(f"{text}\n\n{first['text']}"))]
        return [(("content", FRONT), dump({"type": "text", "text": text}))]

    def without_reasoning(self, item: Any) -> list[Edit]:
        edits: list[Edit] = [((key,), REMOVED) for key in REASONING if key in item]
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        gone = [at for at, block in enumerate(blocks) if kind_of(block) == "thinking"]
        if gone and len(gone) == len(blocks):
            return [*edits, (("content",), dump(BARE))]
        return [*edits, *((("content", at), REMOVED) for at in gone)]

    def without_calls(self, item: Any) -> list[Edit] | None:
        return [((key,), REMOVED) for key in ("tool_calls", "function_call") if key in item]

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
            figure(told.get("prompt_tokens")),
            figure(told.get("completion_tokens")),
            figure(cached),
            figure(details.get("cache_write_tokens")),
        )

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        body = {"model": model, "messages": [{"role": "user", "content": text}], limit: max_tokens}
        if not model or (model == _deployment(unquote(path)) and not fields.get("model")):
            del body["model"]  # Azure's path says it
        elif model != fields.get("model"):
            path = _DEPLOYMENT.sub(quote(model, safe=""), path)
        return (path or "/v1/chat/completions").encode("latin-1"), dump(body)

    def answer(self, body: Any) -> Answer:
        choices = body.get("choices") if isinstance(body, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        said = [*self.parts({key: message.get(key) for key in ("content", *REASONING)})]
        whole = "\n".join(part.text for part in said if part.kind == "text")
        thought = _THOUGHT.match(whole)
        text = whole[thought.end() :] if thought else whole
        if message.get("tool_calls") or message.get("function_call"):
            problem = "tool_call"
        elif message.get("refusal"):
            problem = "refused"
        else:
            problem = _STOPS.get(string(choice.get("finish_reason")), "")
        if not problem and not text.strip() and (thought or any(part.kind == "reasoning" for part in said)):
            problem = "reasoning_only"
        return Answer(text, problem, self.usage(body) or Usage())


def _deployment(path: str) -> str:
    found = _DEPLOYMENT.search(path)
    return found[0] if found else ""


def _usages(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Where servers put it: at the top (null in most chunks of a stream), Groq in `x_groq`, Moonshot in the last choice."""
    choices = event.get("choices")
    for holder in (event, event.get("x_groq"), *(choices if isinstance(choices, list) else ())):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            yield holder["usage"]
