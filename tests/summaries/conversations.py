"""Conversations in neutral items, for the tests of summaries."""

from __future__ import annotations

from app.core import tokens
from app.core.transcript import Part, Seen
from app.core.view import Facts
from app.summaries.recap import recap

tokens.preload("o200k_base")


def count(text: str) -> int:
    return tokens.count(text, "o200k_base")


def user(text: str) -> Seen:
    return Seen(Facts("user", opens_turn=True), (Part("text", text),), 0)


def assistant(text: str, *calls: tuple[str, str]) -> Seen:
    parts = [Part("text", text)] if text else []
    return Seen(Facts("assistant"), (*parts, *(Part("call", arguments, name) for name, arguments in calls)), 0)


def result(text: str) -> Seen:
    return Seen(Facts("tool"), (Part("result", text),), 0)


def note(summary: str, number: int = 1, carried: tuple[str, ...] = ()) -> Seen:
    """A recap of ours, as a later compaction meets it."""
    text = recap(summary, number, "http://127.0.0.1:8787/compactd/archives/a/b", carried)
    return Seen(Facts("user", opens_turn=True, note=True), (Part("text", text),), -1)


def chatter(number: int, lines: int = 60) -> str:
    """Tool output that says a lot and holds nothing."""
    return "\n".join(
        f"step {number} line {line}: everything went well and nothing of note was seen here at all"
        for line in range(lines)
    )
