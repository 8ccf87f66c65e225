"""Gemini's generateContent: an item is a content, `{role, parts}`; calls, answers and texts are parts of it.

Calls often have no id, and answers find them by place: the content right after a call holds the answers to all of its calls, as many as
there were (G3, G4). Cutting goes by whole contents and clearing keeps every part, so the counts stay as the client had them.
Thought signatures are checked on the first call of each step of the current turn only, and the current turn begins at the newest user
content with something else than answers in it (G11, G12). A step is one content: it leaves whole or stays whole, signature included, so a
signature freezes nothing, and neither does a thought, which may be dropped from earlier turns (G17): contents don't carry `reasoning`.
A content with a part that we don't know is pinned, and its neighbours with it (X5).
Rules: G1 to G33 in the tests; source: https://ai.google.dev/gemini-api/docs/thought-signatures, google-gemini/gemini-cli#3814.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from app.core.jsonspan import FRONT, REMOVED, Edit, dump
from app.core.notes import BARE, is_note
from app.core.view import Clearing, Facts
from app.formats import wording
from app.formats.base import Answer, CountCall, Format, Part, Target, Usage
from app.formats.gemini_parts import (
    Answers,
    calls_of,
    camel,
    canonical_parts,
    dicts,
    is_known,
    open_ends,
    parts_of,
    results_of,
    says_something,
)
from app.formats.lenient import figure, json_text

_PATH = re.compile(
    r"(?:^|/)(?P<kind>models|tunedModels|endpoints)/(?P<model>[^/]+):(?P<method>generateContent|streamGenerateContent)$"
)
_SUMMARY_PROMPT = re.compile(r"(?:generate the (?:updated )?|evaluate the )<state_snapshot>")
"""gemini-cli asking for its own summary; source: google-gemini/gemini-cli packages/core/src/services/chatCompressionService.ts."""
_VERTEX_LIMIT = re.compile(rb"input token count is \d+ but model only supports up to (\d+)")
_STATUS = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_STOPS = {
    "": "", "STOP": "", "FINISH_REASON_UNSPECIFIED": "", "MAX_TOKENS": "truncated", "MALFORMED_FUNCTION_CALL": "tool_call",
    "UNEXPECTED_TOOL_CALL": "tool_call", "TOO_MANY_TOOL_CALLS": "tool_call", "OTHER": "failed",
}  # fmt: skip
"""All others (SAFETY, RECITATION, BLOCKLIST, …) are refusals; source: https://ai.google.dev/api/generate-content#FinishReason."""


class Gemini(Format):
    name: ClassVar[str] = "gemini"
    history: ClassVar[str] = "contents"
    fields: ClassVar[tuple[str, ...]] = (
        "systemInstruction", "system_instruction", "tools", "generationConfig", "generation_config", "cachedContent", "cached_content",
        "safetySettings", "safety_settings",
    )  # fmt: skip
    counted: ClassVar[tuple[str, ...]] = (
        "systemInstruction", "system_instruction", "tools", "generationConfig", "generation_config",
    )  # fmt: skip
    auth_header: ClassVar[str] = "x-goog-api-key"
    terminal: ClassVar[tuple[bytes, ...]] = (b'"finishReason"',)
    # A blank line: Google's clients take a comment for an error, or lose the event after it. source: maximhq/bifrost#6240, #6804
    keepalive: ClassVar[bytes] = b"\n\n"

    def target(self, path: str) -> Target | None:
        found = _PATH.search(path)
        return Target(self.name, found["model"], found["method"].startswith("stream")) if found else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        """What `cachedContent` names comes before the body's contents (G22): the body alone does not say what, nor how much."""
        if fields.get("cachedContent") or fields.get("cached_content"):
            return "server_history"
        texts = [
            part["text"] for part in dicts(last.get("parts") if isinstance(last, dict) else None) if _is_text(part)
        ]
        if any(_SUMMARY_PROMPT.search(text) or wording.asks_for_summary("", text) for text in texts):
            return "client_compaction"
        return ""

    # Reading an item

    def facts(self, item: Any) -> Facts:
        role = item.get("role") or "user" if isinstance(item, dict) else ""
        if role not in ("user", "model", "function") or not isinstance(item.get("parts"), list | None):
            return Facts("user", reasoning=True, alone=True, pinned=True)
        parts = item.get("parts") or []
        waiting, late = open_ends(parts)
        calls, results = (*calls_of(parts), *waiting), (*results_of(parts), *late)
        if role == "model":
            facts = Facts("assistant", calls, results)
        elif results or role == "function":
            facts = Facts("tool", calls, results)
        else:
            note = len(parts) == 1 and _is_text(parts[0]) and is_note(parts[0]["text"])
            facts = Facts("user", calls, opens_turn=any(says_something(part) for part in parts), note=note)
        return (
            facts if all(is_known(part) for part in parts) else replace(facts, reasoning=True, alone=True, pinned=True)
        )

    def parts(self, item: Any) -> Iterator[Part]:
        parts = item.get("parts") if isinstance(item, dict) else None
        return parts_of(parts if isinstance(parts, list) else ())

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        for key in ("systemInstruction", "system_instruction"):
            given = fields.get(key)
            yield from self.parts(given if isinstance(given, dict) else {"parts": [{"text": given}]})
        if fields.get("tools"):
            yield Part("text", json_text(fields["tools"]))
        settings = fields.get("generationConfig") or fields.get("generation_config")
        for key, thing in settings.items() if isinstance(settings, dict) else ():
            if key.lower().endswith("schema"):
                yield Part("text", json_text(thing))

    def canonical(self, item: Any) -> Any:
        if not isinstance(item, dict) or not isinstance(item.get("parts"), list | None):
            return item
        same = {key: thing for key, thing in item.items() if thing is not None}
        return {**same, "role": item.get("role") or "user", "parts": canonical_parts(item.get("parts") or [])}

    # Writing. Calls are never taken out alone: two model contents in a row are refused by older models (G7).

    def clear(self, item: Any, clearings: Sequence[Clearing]) -> list[Edit]:
        facts, answers = self.facts(item), Answers(item["parts"] if clearings else [])
        edits: list[Edit] = []
        for clearing in clearings:
            if clearing.inputs:
                edits.append((facts.calls[clearing.ordinal].path, dump({})))
                continue
            response = {"output": clearing.text}  # an object it stays (G9)
            for at, key, answer in answers.at(facts.results[clearing.ordinal].path):
                if "parts" in answer:  # media that `response` points to: they go with it (G27)
                    kept = {name: thing for name, thing in answer.items() if name != "parts"}
                    edits.append((("parts", at, key), dump(kept | {"response": response})))
                else:
                    edits.append((("parts", at, key, "response"), dump(response)))
        return edits

    def lead(self, item: Any, text: str) -> list[Edit]:
        part = dump({"text": text})
        return [(("parts", FRONT), part) if item.get("parts") else (("parts",), b"[" + part + b"]")]

    def without_reasoning(self, item: Any) -> list[Edit]:
        """Summaries of thoughts (G17). Signatures stay: what they are worth to the model nobody says."""
        parts = item.get("parts") or []
        gone = [
            at for at, part in enumerate(parts) if isinstance(part, dict) and part.get("thought") and _is_text(part)
        ]
        edits: list[Edit] = [(("parts", at), REMOVED) for at in gone]
        if gone and len(gone) == len(parts):  # a content may not end up empty (G19)
            edits.append((("parts", FRONT), dump({"text": BARE})))
        return edits

    def note(self, text: str) -> bytes:
        return dump({"role": "user", "parts": [{"text": text}]})

    # Answers

    def usage(self, event: Any) -> Usage | None:
        """`promptTokenCount` holds what was cached; thoughts are apart from candidates (U11). An array is a whole stream."""
        if isinstance(event, list):
            return next((usage for one in reversed(event) if (usage := self.usage(one))), None)
        told = camel(event).get("usageMetadata") if isinstance(event, dict) else None
        if not isinstance(told, dict):
            return None
        told = camel(told)
        output = figure(told.get("candidatesTokenCount")) + figure(told.get("thoughtsTokenCount"))
        return Usage(figure(told.get("promptTokenCount")), output, figure(told.get("cachedContentTokenCount")))

    def overflow(self, status: int, body: bytes) -> int | None:
        """E8, also in the array of a stream that is no event stream; Vertex has words of its own."""
        vertex = _VERTEX_LIMIT.search(body) if status == 400 else None
        return int(vertex[1]) if vertex else wording.overflow(status, body)

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        """The model and the method are in the path (G30). The client's safety settings go along: what it may say, a summary may repeat."""
        body: dict[str, Any] = {
            "contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"maxOutputTokens": max_tokens},
        }  # fmt: skip
        safety = fields.get("safetySettings") or fields.get("safety_settings")
        if safety:
            body["safetySettings"] = safety
        model = model.removeprefix("models/")
        found = _PATH.search(unquote(path))
        if found is None:
            way = f"/v1beta/models/{model}"
        elif found["model"] == model:
            way = found.string[: found.end("model")]
        else:
            way = f"{found.string[: found.start('kind')]}models/{model}"
        return quote(f"{way}:generateContent", safe="/:@").encode(), dump(body)

    def answer(self, body: Any) -> Answer:
        told = camel(body) if isinstance(body, dict) else {}
        candidate = camel(next(iter(dicts(told.get("candidates"))), {}))
        content = candidate.get("content")
        said = (
            [*parts_of(part for part in dicts(content.get("parts")) if is_known(part))]
            if isinstance(content, dict)
            else []
        )
        text = "".join(part.text for part in said if part.kind == "text")
        feedback = told.get("promptFeedback")
        if isinstance(feedback, dict) and camel(feedback).get("blockReason"):
            problem = "refused"
        elif any(part.kind == "call" for part in said):
            problem = "tool_call"
        else:
            problem = _STOPS.get(str(candidate.get("finishReason") or ""), "refused")
        if not problem and not text.strip() and said:
            problem = "reasoning_only"
        return Answer(text, problem, self.usage(told) or Usage())

    def counting(self, model: str, path: str) -> CountCall | None:
        """T6. Vertex has its own shape: the fields at top level."""
        way, colon, _ = path.rpartition(":")
        if not colon:
            return None
        way = f"{way}:countTokens"
        if "/publishers/" in path or "/projects/" in path:
            keys = (
                "contents",
                "systemInstruction",
                "system_instruction",
                "tools",
                "generationConfig",
                "generation_config",
            )
            return CountCall(way.encode("latin-1"), "totalTokens", keys)
        named = model if "/" in model else f"models/{model}"
        return CountCall(way.encode("latin-1"), "totalTokens", under="generateContentRequest", model=named)

    def error(self, status: int, code: str, message: str) -> bytes:
        """Google's shape: `code` is the HTTP status there, ours is the `reason` of an ErrorInfo; source: https://google.aip.dev/193."""
        name = _STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "compactd"}
        return dump({"error": {"code": status, "message": message, "status": name, "details": [info]}})


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)
