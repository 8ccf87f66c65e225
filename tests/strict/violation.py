"""What a rule says when it is broken, and the few small questions that all rules ask.

A violation names its rule by the id of the project's list of wire rules (A1, C2, R9, G3 ...), the place by a dotted path
into the body, and speaks with the provider's own words where those are known. Messages are only built once a rule is
broken: `violations` is called very often on bodies that are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

JSON = dict[str, Any]
NO_QUIRKS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `where` is a dotted path such as `messages.3.content.0`; empty for the body as a whole."""

    rule: str
    where: str
    message: str


class Found(list[Violation]):
    """The violations found so far."""

    def add(self, rule: str, where: str, message: str) -> None:
        self.append(Violation(rule, where, message))


def dicts(value: object) -> list[JSON]:
    """The objects in a list; none if it is no list (a string as content, a missing key)."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def quoted(ids: Iterable[object]) -> str:
    return ", ".join(str(one) for one in ids)


_CLAUDE = re.compile(r"claude-(?:[a-z]+-)*(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_GEMINI = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?")
_GPT = re.compile(r"gpt-(\d{1,2})(?:\.(\d{1,2}))?")


def _version(pattern: re.Pattern[str], model: str) -> tuple[int, int] | None:
    match = pattern.search(model)
    return (int(match[1]), int(match[2] or 0)) if match else None


@lru_cache(maxsize=512)
def claude_version(model: str) -> tuple[int, int] | None:
    """(4, 5) for `claude-sonnet-4-5-20250929`; None for a model that names no version."""
    return _version(_CLAUDE, model)


@lru_cache(maxsize=512)
def gemini_version(model: str) -> tuple[int, int] | None:
    return _version(_GEMINI, model)


@lru_cache(maxsize=512)
def gpt_version(model: str) -> tuple[int, int] | None:
    return _version(_GPT, model)


def mentions_json(value: object) -> bool:
    """Whether the word "json" stands in any text of a value, in any case."""
    if isinstance(value, str):
        return "json" in value.lower()
    if isinstance(value, list):
        return any(mentions_json(entry) for entry in value)
    if isinstance(value, dict):
        return any(mentions_json(entry) for entry in value.values())
    return False
