"""The parts of a Gemini content: which ones call, which ones answer, what can be read in them.

Clients write camelCase or snake_case (G33). Reading takes both; a path into an item takes the key that stands there.
source: googleapis/python-genai google/genai/types.py, https://ai.google.dev/gemini-api/docs/function-calling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from app.core.jsonspan import Path, dump
from app.core.view import Call, Result
from app.formats.base import Part
from app.formats.lenient import json_size, json_text, string
from app.formats.media import FILM_RATE, SOUND_RATE, document_tokens, image_of, recording_tokens

_CALLS = ("functionCall", "toolCall", "executableCode")
_ANSWERS = ("functionResponse", "toolResponse", "codeExecutionResult")
_MEDIA = ("inlineData", "fileData")
_DATA = frozenset({"text", *_CALLS, *_ANSWERS, *_MEDIA})
_ABOUT = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_PAGE, _SOUND, _FILM = 560, 32, 300
"""Tokens of a page (258 before Gemini 3), of a second of sound, of a second of film with its sound; source:
https://ai.google.dev/gemini-api/docs/tokens, …/media-resolution"""


def dicts(parts: Any) -> list[dict[str, Any]]:
    """The parts that are objects; none if this is no list."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def calls_of(parts: list[Any]) -> Iterator[Call]:
    """Calls of the client's functions. What a signature covers is Google's secret: a signed call keeps its arguments."""
    for at, part in enumerate(parts):
        for key in _spelled(part, "functionCall"):
            call = part[key]
            signed = any(part.get(name) for name in ("thoughtSignature", "thought_signature"))
            size = json_size(call.get("args"))
            yield Call(
                string(call.get("id")),
                string(call.get("name")),
                ("parts", at, key, "args"),
                size,
                bool(size) and not signed,
            )


def results_of(parts: list[Any]) -> Iterator[Result]:
    """Answers to them. A second one to the same id (gemini-cli sends them after a resume) belongs to the first."""
    seen: set[str] = set()
    for at, part in enumerate(parts):
        for key in _spelled(part, "functionResponse"):
            answer = part[key]
            ident = string(answer.get("id"))
            if ident not in seen:
                size = json_size(answer.get("response")) + json_size(answer.get("parts"))
                yield Result(ident, string(answer.get("name")), ("parts", at, key, "response"), size)
            seen |= {ident} - {""}


class Answers:
    """Where answers stand, by the id of their call."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self._places: dict[str, list[tuple[int, str]]] = {}
        for at, part in enumerate(parts):
            for key in _spelled(part, "functionResponse"):
                self._places.setdefault(string(part[key].get("id")), []).append((at, key))

    def at(self, path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """(index, key, answer) of the answer that a result's path leads to, and of later ones to the same id."""
        first = int(path[1]), str(path[2])
        ident = string(self._parts[first[0]][first[1]].get("id"))
        for at, key in self._places[ident] if ident else [first]:
            yield at, key, self._parts[at][key]


def open_ends(parts: list[Any]) -> tuple[list[Call], list[Result]]:
    """What the provider ran itself has call and result in one content (G25, G26); these stand in different ones."""
    calls: list[Call] = []
    results: list[Result] = []
    for called, answered in zip(_CALLS[1:], _ANSWERS[1:], strict=True):
        waiting: list[Call] = []
        for part in parts:
            waiting += [
                Call(string(part[key].get("id")), called, (), 0, clearable=False) for key in _spelled(part, called)
            ]
            for key in _spelled(part, answered):
                if waiting:
                    waiting.pop(0)
                else:
                    results.append(Result(string(part[key].get("id")), called, (), 0, clearable=False))
        calls += waiting
    return calls, results


def parts_of(parts: Iterable[Any]) -> Iterator[Part]:
    """The readable stretches."""
    for part in parts:
        known = camel(part) if isinstance(part, dict) else {}
        if isinstance(text := known.get("text"), str):
            yield Part("reasoning" if known.get("thought") else "text", text)
        for key in _CALLS:
            if isinstance(call := known.get(key), dict):
                given = call.get("args", call.get("code"))
                yield Part(
                    "call", json_text(given), string(call.get("name") or call.get("toolType")) or "code_execution"
                )
        for key in _ANSWERS:
            if isinstance(answer := known.get(key), dict):
                yield Part("result", _answer_text(answer.get("response", answer.get("output"))))
                yield from parts_of(dicts(answer.get("parts")))
        for key in _MEDIA:
            if isinstance(medium := known.get(key), dict):
                yield _medium(camel(medium), known.get("mediaResolution"))
        if not is_known(part):
            yield Part("text", json_text(part))


def is_known(part: Any) -> bool:
    """Is this a part whose meaning we know, or an empty one?"""
    keys = set(camel(part)) if isinstance(part, dict) else {""}
    return bool(keys & _DATA) or keys <= _ABOUT


def says_something(part: Any) -> bool:
    return isinstance(part, dict) and any(
        inner for key, inner in part.items() if key not in ("thoughtSignature", "thought_signature")
    )


def canonical_parts(parts: list[Any]) -> list[Any]:
    """Without signatures and thoughts, which clients lose, and without a second copy of an answer to one call, which they add."""
    same: list[Any] = []
    answers: set[bytes] = set()
    for part in parts:
        known = camel(part) if isinstance(part, dict) else part
        if isinstance(known, dict):
            thought = known.pop("thought", False)
            known.pop("thoughtSignature", None)
            answer = known.get("functionResponse")
            if thought or not any(known.values()):
                continue
            if isinstance(answer, dict) and answer.get("id"):
                text = dump(known, ordered=True)
                if text in answers:
                    continue
                answers.add(text)
        same.append(known)
    return same


def camel(thing: Mapping[str, Any]) -> dict[str, Any]:
    """With its keys in camelCase and without nulls."""
    return {_camel_key(key): inner for key, inner in thing.items() if inner is not None}


def _camel_key(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


@cache
def _snake_key(key: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key)


def _spelled(part: Any, key: str) -> Iterator[str]:
    """The key as the client spells it, if an object stands there."""
    for name in (key, _snake_key(key)) if isinstance(part, dict) else ():
        if isinstance(part.get(name), dict):
            yield name


def _medium(data: Mapping[str, Any], resolution: Any) -> Part:
    kind, content = string(data.get("mimeType")) or "file", data.get("data")
    what = kind.partition("/")[0]
    if what == "image":
        level = resolution.get("level") if isinstance(resolution, dict) else resolution
        return Part("media", kind, image=image_of(content, string(level)))
    if what in ("audio", "video"):
        second, rate = (_SOUND, SOUND_RATE) if what == "audio" else (_FILM, FILM_RATE)
        return Part("media", kind, tokens=recording_tokens(content, second, rate))
    return Part("media", kind, tokens=document_tokens(content, _PAGE))


def _answer_text(answer: Any) -> str:
    """What the model reads of an answer: most clients wrap one text in an object."""
    texts = list(answer.values()) if isinstance(answer, dict) else [answer]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else json_text(answer)
