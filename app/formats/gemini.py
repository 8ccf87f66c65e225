"""Gemini's generateContent: an item is a content, `{role, parts}`; calls, answers and texts are parts of it.

Calls often have no id, and answers find them by place: the content right after a call holds the answers to all of its calls, as many as
there were (G3, G4). Cutting goes by whole contents and clearing keeps every part, so the counts stay as the client had them.
Thought signatures are checked on the first call of each step of the current turn only, and the current turn begins at the newest user
content with something else than answers in it (G11, G12). A step is one content: it leaves whole or stays whole, signature included, so a
signature freezes nothing, and neither does a thought, which may be dropped from earlier turns (G17): contents don't carry `reasoning`.
A content with a part that we don't know is pinned, and its neighbours with it (X5).
Clients write camelCase or snake_case (G33): both are read, and what is written takes the key that was found.
Rules: G1 to G33 in the tests; source: https://ai.google.dev/gemini-api/docs/thought-signatures, googleapis/python-genai types.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from app.core.jsonspan import Edit, dump, value
from app.core.notes import is_note
from app.core.view import Call, Clearing, Facts, Result
from app.errors import NotCompactable
from app.formats.base import Part, Target, Usage
from app.formats.media import image_tokens

_PATH = re.compile(r"(?:^|/)(?:models|tunedModels|endpoints)/(?P<model>[^/]+):(?P<method>generateContent|streamGenerateContent)$")
_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall",
     "toolResponse"}
)  # fmt: skip
_ABOUT = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_SERVER_PAIRS = (("executableCode", "codeExecutionResult"), ("toolCall", "toolResponse"))
"""What the provider ran itself, mostly call and result in one content (G25, G26)."""
_SUMMARY_PROMPT = re.compile(r"(?:generate the (?:updated )?|evaluate the )<state_snapshot>")
"""gemini-cli asking for its own summary; source: google-gemini/gemini-cli packages/core/src/services/chatCompressionService.ts."""
_TOO_LONG = re.compile(r"input token count.{0,40}(?:exceeds the maximum number of tokens|model only supports)")
_LIMIT = re.compile(r"(?:tokens allowed|only supports up to)\D{0,3}(\d+)")
_STATUS = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_MEDIA_TOKENS = 258 * 5
"""Pages, sound and film whose length we don't know; source: https://ai.google.dev/gemini-api/docs/tokens (258 a page)."""


class Gemini:
    name: ClassVar[str] = "gemini"
    history: ClassVar[str] = "contents"
    fields: ClassVar[tuple[str, ...]] = (
        "systemInstruction", "system_instruction", "tools", "generationConfig", "generation_config", "cachedContent", "cached_content",
    )  # fmt: skip
    auth_headers: ClassVar[tuple[str, ...]] = ("x-goog-api-key", "authorization")

    def target(self, path: str) -> Target | None:
        found = _PATH.search(path)
        return Target(self.name, found["model"], found["method"].startswith("stream")) if found else None

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        """What `cachedContent` names comes before the body's contents (G22): the body alone does not say what, nor how much."""
        if fields.get("cachedContent") or fields.get("cached_content"):
            return "server_history"
        if any(_SUMMARY_PROMPT.search(part["text"]) for part in _parts(last) if isinstance(part.get("text"), str)):
            return "client_compaction"
        return ""

    def session_hint(self, fields: Mapping[str, Any]) -> str:  # noqa: ARG002  # nothing in the format says it
        return ""

    # Reading an item

    def facts(self, item: Any) -> Facts:
        role = item.get("role") or "user" if isinstance(item, dict) else ""
        if role not in ("user", "model", "function") or not isinstance(item.get("parts"), list | None):
            return Facts("user", reasoning=True, alone=True, pinned=True)
        parts = _list(item.get("parts"))
        waiting, late = _open_ends(parts)
        calls, results = (*_calls(parts), *waiting), (*_results(parts), *late)
        if role == "model":
            facts = Facts("assistant", calls, results)
        elif results or role == "function":
            facts = Facts("tool", calls, results)
        else:
            texts = [part["text"] for part in _parts(item) if isinstance(part.get("text"), str)]
            note = len(parts) == len(texts) == 1 and is_note(texts[0])
            facts = Facts("user", calls, opens_turn=any(_says_something(part) for part in parts), note=note)
        return facts if all(_known(part) for part in parts) else replace(facts, reasoning=True, alone=True, pinned=True)

    def parts(self, item: Any) -> Iterator[Part]:
        for part in _parts(item):
            known = _camel(part)
            if isinstance(known.get("text"), str):
                yield Part("reasoning" if known.get("thought") else "text", known["text"])
            for key in ("functionCall", "toolCall", "executableCode"):
                if isinstance(call := known.get(key), dict):
                    given = call.get("args", call.get("code"))
                    yield Part("call", _json_text(given), _string(call.get("name") or call.get("toolType")) or "code_execution")
            for key in ("functionResponse", "toolResponse", "codeExecutionResult"):
                if isinstance(answer := known.get(key), dict):
                    yield Part("result", _answer_text(answer.get("response", answer.get("output"))))
                    for medium in _list(answer.get("parts")):
                        yield from self.parts({"parts": [medium]})
            for key in ("inlineData", "fileData"):
                if isinstance(medium := known.get(key), dict):
                    yield _medium(_camel(medium))
            if not _known(part):
                yield Part("text", _json_text(part))

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        for key in ("systemInstruction", "system_instruction"):
            given = fields.get(key)
            yield from self.parts(given if isinstance(given, dict) else {"parts": [{"text": given}]})
        if fields.get("tools"):
            yield Part("text", _json_text(fields["tools"]))
        settings = fields.get("generationConfig") or fields.get("generation_config")
        for key, thing in settings.items() if isinstance(settings, dict) else ():
            if key.lower().endswith("schema"):
                yield Part("text", _json_text(thing))

    def canonical(self, item: Any) -> Any:
        """Without signatures and thoughts, which clients lose, and without a second answer to one call id, which they add."""
        if not isinstance(item, dict):
            return item
        same: list[Any] = []
        for part in _list(item.get("parts")):
            known = _camel(part) if isinstance(part, dict) else part
            if isinstance(known, dict):
                if known.pop("thought", False):
                    continue
                known.pop("thoughtSignature", None)
                empty = not any(known.values())
                answer = known.get("functionResponse")
                if empty or (isinstance(answer, dict) and answer.get("id") and known in same):
                    continue
            same.append(known)
        return {**{key: thing for key, thing in item.items() if thing is not None}, "role": item.get("role") or "user", "parts": same}

    # Writing

    def clear(self, item: Any, clearings: Iterable[Clearing]) -> list[Edit]:
        facts = self.facts(item)
        edits: list[Edit] = []
        for clearing in clearings:
            if clearing.inputs:
                edits.append((facts.calls[clearing.ordinal].path, dump({})))
                continue
            path = facts.results[clearing.ordinal].path
            for at, key, answer in _twins(item["parts"], path):
                # `response` stays an object (G9); media in `parts` are pointed to from what goes, and go too (G27).
                response = {"output": clearing.text}
                if "parts" in answer:
                    kept = {name: thing for name, thing in answer.items() if name != "parts"}
                    edits.append((("parts", at, key), dump(kept | {"response": response})))
                else:
                    edits.append((("parts", at, key, "response"), dump(response)))
        return edits

    def lead(self, item: Any, text: str) -> list[Edit]:
        return [(("parts",), dump([{"text": text}, *_list(item.get("parts"))]))]

    def note(self, text: str) -> bytes:
        return dump({"role": "user", "parts": [{"text": text}]})

    # Answers

    def usage(self, event: Any) -> Usage | None:
        """`promptTokenCount` holds what was cached; thoughts are apart from candidates (U11). A whole array stream is read by its last."""
        if isinstance(event, list):
            return next((usage for one in reversed(event) if (usage := self.usage(one))), None)
        told = _camel(event).get("usageMetadata") if isinstance(event, dict) else None
        if not isinstance(told, dict):
            return None
        told = _camel(told)
        output = _int(told.get("candidatesTokenCount")) + _int(told.get("thoughtsTokenCount"))
        return Usage(_int(told.get("promptTokenCount")), output, _int(told.get("cachedContentTokenCount")))

    def merge(self, earlier: Usage, later: Usage) -> Usage:  # noqa: ARG002  # the last report is the whole (U12)
        return later

    def overflow(self, status: int, body: bytes) -> int | None:
        """E8, also in the array of a stream that is no event stream, and in Vertex' words."""
        if status != 400:
            return None
        try:
            answer = value(body)
        except NotCompactable:
            return None
        answer = answer[0] if isinstance(answer, list) and answer else answer
        fault = answer.get("error") if isinstance(answer, dict) else None
        message = _string(fault.get("message")) if isinstance(fault, dict) else ""
        if not _TOO_LONG.search(message):
            return None
        named = _LIMIT.search(message)
        return int(named[1]) if named else 0

    def error(self, status: int, code: str, message: str) -> bytes:
        """Google's shape: `code` is the HTTP status there, ours is the `reason` of an ErrorInfo; source: https://google.aip.dev/193."""
        name = _STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "compactd"}
        return dump({"error": {"code": status, "message": message, "status": name, "details": [info]}})


def _calls(parts: list[Any]) -> Iterator[Call]:
    for at, part in enumerate(parts):
        for key in _spelled(part, "functionCall"):
            call = part[key]
            # What its signature covers is Google's secret: such a call keeps its arguments.
            signed = any(part.get(name) for name in _spelled(part, "thoughtSignature"))
            size = _size(call.get("args"))
            yield Call(_string(call.get("id")), _string(call.get("name")), ("parts", at, key, "args"), size, bool(size) and not signed)


def _results(parts: list[Any]) -> Iterator[Result]:
    """One for each answer; a second one to the same id (gemini-cli sends them after a resume) belongs to the first."""
    seen: set[str] = set()
    for at, part in enumerate(parts):
        for key in _spelled(part, "functionResponse"):
            answer = part[key]
            ident = _string(answer.get("id"))
            if ident not in seen:
                size = _size(answer.get("response")) + _size(answer.get("parts"))
                yield Result(ident, _string(answer.get("name")), ("parts", at, key, "response"), size)
            seen |= {ident} - {""}


def _twins(parts: list[Any], path: tuple[str | int, ...]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(index, key, answer) of the answer that a result's path leads to, and of later ones to the same id."""
    first, key = int(path[1]), str(path[2])
    ident = parts[first][key].get("id")
    yield first, key, parts[first][key]
    for at in range(first + 1, len(parts)) if ident else ():
        for again in _spelled(parts[at], "functionResponse"):
            if parts[at][again].get("id") == ident:
                yield at, again, parts[at][again]


def _open_ends(parts: list[Any]) -> tuple[list[Call], list[Result]]:
    """Calls that the provider answers itself, as far as call and result stand in different contents."""
    calls: list[Call] = []
    results: list[Result] = []
    for called, answered in _SERVER_PAIRS:
        waiting: list[Call] = []
        for part in parts:
            for key in _spelled(part, called):
                waiting.append(Call(_string(part[key].get("id")), called, (), 0, clearable=False))
            for key in _spelled(part, answered):
                if waiting:
                    waiting.pop(0)
                else:
                    results.append(Result(_string(part[key].get("id")), called, (), 0, clearable=False))
        calls += waiting
    return calls, results


def _spelled(part: Any, key: str) -> Iterator[str]:
    """The key as the client spells it, if it is there and holds what it should."""
    for name in (key, _snake(key)) if isinstance(part, dict) else ():
        if isinstance(part.get(name), str if key == "thoughtSignature" else dict):
            yield name


def _camel(thing: Mapping[str, Any]) -> dict[str, Any]:
    return {_camel_key(key): inner for key, inner in thing.items() if inner is not None}


@cache
def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key)


def _camel_key(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _known(part: Any) -> bool:
    keys = set(_camel(part)) if isinstance(part, dict) else {""}
    return bool(keys & _DATA) or keys <= _ABOUT


def _says_something(part: Any) -> bool:
    return isinstance(part, dict) and any(part.get(key) for key in part if key not in ("thoughtSignature", "thought_signature"))


def _medium(data: Mapping[str, Any]) -> Part:
    kind = _string(data.get("mimeType")) or "file"
    return Part("media", kind, tokens=image_tokens("gemini", data.get("data")) if kind.startswith("image/") else _MEDIA_TOKENS)


def _parts(item: Any) -> list[dict[str, Any]]:
    return [part for part in _list(item.get("parts")) if isinstance(part, dict)] if isinstance(item, dict) else []


def _answer_text(answer: Any) -> str:
    """What the model reads of an answer: most clients wrap one text in an object."""
    texts = list(answer.values()) if isinstance(answer, dict) else [answer]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else _json_text(answer)


def _json_text(thing: Any) -> str:
    return thing if isinstance(thing, str) else "" if thing is None else dump(thing).decode()


def _size(thing: Any) -> int:
    return len(_json_text(thing).encode("utf-8", "replace"))


def _string(thing: Any) -> str:
    return thing if isinstance(thing, str) else ""


def _list(thing: Any) -> list[Any]:
    return thing if isinstance(thing, list) else []


def _int(thing: Any) -> int:
    return thing if isinstance(thing, int) and thing > 0 else 0
