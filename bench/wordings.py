"""A conversation of one wire format written in another, for measuring: texts, calls and results, nothing else.

Not for traffic: what only one format knows (reasoning, media, cache marks) is left out, which is why compactd itself never converts. What
is broken is mended on the way: every call gets a result, a result without a call is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.transcript import Part
from app.core.view import Facts
from app.formats import FORMATS

Item = dict[str, Any]


@dataclass
class Call:
    """A call with its result; ids are our own, since formats are particular about them."""

    id: str
    tool: str
    given: Item
    theirs: str
    result: str = "none"
    answered: bool = False


@dataclass
class Said:
    """One step of the model: its text, and its calls with their results."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)


def rewritten(own: str, items: Sequence[Any], other: str) -> tuple[list[Item], list[int]]:
    """The items in another format's words, and how many of these stand for the first n of the given ones, for each n. System prompts are
    left out: see `instructed`."""
    form, write = FORMATS[own], WRITERS[other]
    seen = [(form.facts(item), [*form.parts(item)]) for item in items]
    written: list[Item] = []
    bounds = [0]
    said: Said | None = None
    number = 0
    for at, (facts, parts) in enumerate(seen):
        text = "\n".join(part.text for part in parts if part.kind == "text" and part.text)
        if facts.role == "assistant":
            said = said or Said()
            said.text = "\n".join(filter(None, (said.text, text)))
            for call, given in zip(facts.calls, _given(parts), strict=False):
                number += 1
                said.calls.append(Call(f"call_{number}", call.tool or "tool", given, call.id))
            going_on = at + 1 < len(seen) and (seen[at + 1][0].results or seen[at + 1][0].role == "assistant")
        else:
            if said is not None and facts.results:
                _answer(said, facts, [part.text for part in parts if part.kind == "result"])
            going_on = bool(facts.results) and at + 1 < len(seen) and bool(seen[at + 1][0].results)
        if not going_on and said is not None:
            if not written:
                written += write.user("-")
            written += write.model(said)
            said = None
        if facts.role in ("user", "tool") and text:
            written += write.user(text)
        bounds.append(len(written))
    return written, bounds


def instructed(own: str, items: Sequence[Any], other: str) -> Item:
    """The system prompts among the items, as the top-level field that another format has for them."""
    form = FORMATS[own]
    told = [part.text for item in items if form.facts(item).role == "system" for part in form.parts(item)]
    if not told or other == "openai-chat":
        return {}
    text = "\n".join(told)
    if other == "gemini":
        return {"systemInstruction": {"parts": [{"text": text}]}}
    return {"instructions" if other == "openai-responses" else "system": text}


def _answer(said: Said, facts: Facts, texts: list[str]) -> None:
    """Results go to the calls that they name, else to the first that has none."""
    for at, result in enumerate(facts.results):
        open_calls = [call for call in said.calls if not call.answered]
        call = next((call for call in open_calls if result.id and call.theirs == result.id), None)
        call = call or next(iter(open_calls), None)
        if call is not None:
            # Where one result has several texts they can't be told apart by their number.
            whole = "\n".join(texts) if len(facts.results) == 1 else texts[at] if at < len(texts) else ""
            call.result, call.answered = whole or "none", True


def _given(parts: Sequence[Part]) -> Iterator[Item]:
    """The arguments of the calls, in order."""
    for part in parts:
        if part.kind == "call":
            try:
                given = json.loads(part.text or "{}")
            except ValueError:
                given = part.text
            yield given if isinstance(given, dict) else {"input": given}


class Chat:
    def user(self, text: str) -> list[Item]:
        return [{"role": "user", "content": text}]

    def model(self, said: Said) -> list[Item]:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.given)}}
            for call in said.calls
        ]
        message: Item = {"role": "assistant", "content": said.text or (None if calls else "-")}
        results = [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in said.calls]
        return [message | ({"tool_calls": calls} if calls else {}), *results]


class Responses:
    def user(self, text: str) -> list[Item]:
        return [{"role": "user", "content": text}]

    def model(self, said: Said) -> list[Item]:
        text = said.text or ("" if said.calls else "-")
        block = {"type": "output_text", "text": text, "annotations": []}
        message = [{"type": "message", "role": "assistant", "content": [block]}] if text else []
        calls = [
            {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": json.dumps(call.given)}
            for call in said.calls
        ]
        results = [{"type": "function_call_output", "call_id": call.id, "output": call.result} for call in said.calls]
        return [*message, *calls, *results]


class Messages:
    def user(self, text: str) -> list[Item]:
        return [{"role": "user", "content": text}]

    def model(self, said: Said) -> list[Item]:
        text = said.text if said.text.strip() else "" if said.calls else "-"
        blocks: list[Item] = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.given} for call in said.calls]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": call.result} for call in said.calls]
        message = {"role": "assistant", "content": blocks}
        return [message, {"role": "user", "content": results}] if results else [message]


class Gemini:
    def user(self, text: str) -> list[Item]:
        return [{"role": "user", "parts": [{"text": text}]}]

    def model(self, said: Said) -> list[Item]:
        text = said.text or ("" if said.calls else "-")
        parts: list[Item] = [{"text": text}] if text else []
        parts += [{"functionCall": {"name": call.tool, "args": call.given}} for call in said.calls]
        results = [
            {"functionResponse": {"name": call.tool, "response": {"output": call.result}}} for call in said.calls
        ]
        content = {"role": "model", "parts": parts}
        return [content, {"role": "user", "parts": results}] if results else [content]


WRITERS: dict[str, Any] = {
    "openai-chat": Chat(), "openai-responses": Responses(), "anthropic-messages": Messages(), "gemini": Gemini(),
}  # fmt: skip
