"""What a conversation later needs of its past, and how much of that a forwarded request still holds.

Future-reference recall: the assistant's real items after a cut are the judge. Whatever distinctive string they hold that stood in the
history
before the cut was needed; recall is the share of those that still stands in the request that was forwarded instead of that history.
In-context
recall asks for more: at one of the places where the string stood, at least half of its neighbouring words (three on each side) must stand
near it in the forwarded request too, so that a bare list of values does not pass for memory.

Which strings are distinctive is told by their characters and by the tokenizer, not by a word list, so it holds for every language:

- the assistant's text and call arguments are broken at white space, quotes, brackets, commas and sentence marks; of each run the longest
  piece counts that stood in the history: the whole, else its parts between colons, else between slashes, else between other joints
- a piece counts if it is a URL, a path, a number of three digits or more, an identifier (letters and digits mixed, or joined inside by
one of
  _ . - : @ # &, or in camel case), or a rare word: letters only, four or more, which the tokenizer knows neither as it is nor in lower case
  as a single token. Common words of whatever language are single tokens
- line numbers that file listings put before lines are no numbers of the conversation
- `rare`: it stood at most three times in the history. What is said everywhere survives any cut; these are what a compaction can lose

Each string counts once for each request.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from app.core import tokens
from app.core.transcript import Part

ENCODING = "o200k_base"
RARE = 3
NEIGHBOURS, NEAR, PLACES = 3, 200, 40
"""Words on each side, characters within which they have to stand, places of one string that are looked at (first and last ones)."""

_RUN = re.compile(r"[^\s\"'`<>()\[\]{},;|*!?=…“”‘’«»「」『』（）、。，；：！？]+")
_EDGES = ".:-_/\\#@&%$+~^"
_JOINTS = (re.compile("[:#&]"), re.compile(r"[/\\]"), re.compile(r"[.@%$+~^]"), re.compile("-"))
_LISTED = re.compile(r"^ *\d+(?:→|\t)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_CAMEL = re.compile(r"[a-z][A-Z]")


@dataclass(frozen=True, slots=True)
class Score:
    """Of `needed` strings, how many stand in the forwarded request, and how many in their context."""

    needed: int
    kept: int
    in_context: int

    def __add__(self, other: Score) -> Score:
        return Score(self.needed + other.needed, self.kept + other.kept, self.in_context + other.in_context)


def readable(parts: Iterable[Part]) -> str:
    """An item as text; a call's arguments as their values read, without JSON's escapes. Reasoning is left out: no provider lets one read it
    later."""
    said = []
    for part in parts:
        if part.kind == "call":
            said.append("\n".join([part.name, *_leaves(part.text)]))
        elif part.kind in ("text", "result"):
            said.append(_LISTED.sub("", part.text))
    return "\n".join(said)


def _leaves(text: str) -> Iterator[str]:
    try:
        yield from _told(json.loads(text))
    except (ValueError, RecursionError):
        yield text


def _told(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (f"{key}: {line}" for line in _told(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _told(inner)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def kind_of(piece: str) -> str:
    """`url`, `path`, `number`, `identifier`, `word`; "" if it is not distinctive."""
    digits = sum(map(str.isdigit, piece))
    if len(piece) < 3:
        return ""
    if "://" in piece:
        return "url"
    if "/" in piece or "\\" in piece:
        return "path"
    if digits and not any(map(str.isalpha, piece)):
        return "number" if digits >= 3 else ""
    if digits:
        return "identifier" if digits >= 3 or len(piece) >= 6 else ""
    if len(piece) >= 5 and (any(joint in piece for joint in "_.-:@#&") or _CAMEL.search(piece)):
        return "identifier"
    return "word" if len(piece) >= 4 and piece.isalpha() and _unusual(piece) else ""


@cache
def _unusual(word: str) -> bool:
    return all(tokens.count(form, ENCODING) > 1 for form in {f" {word}", f" {word.lower()}", word.lower()})


def needed(future: Iterable[str], history: str) -> dict[str, int]:
    """The distinctive strings of the assistant's later texts that stood in `history`, each with the number of places where it stood."""
    found: dict[str, int] = {}
    absent: set[str] = set()

    def look(piece: str, joints: Sequence[re.Pattern[str]]) -> None:
        piece = piece.strip(_EDGES)
        if not 3 <= len(piece) <= 200 or piece in found:
            return
        if piece not in absent and kind_of(piece):
            count = len(places(piece, history))
            if count:
                found[piece] = count
                return
            absent.add(piece)
        for at, joint in enumerate(joints):
            if joint.search(piece):
                for inner in joint.split(piece):
                    look(inner, joints[at + 1 :])
                return

    for text in future:
        for run in _RUN.findall(text):
            look(run, _JOINTS)
    return found


def places(string: str, text: str) -> list[int]:
    """Where it stands as a whole, not as a part of a longer word."""
    found = []
    at = text.find(string)
    while at >= 0:
        end = at + len(string)
        if not _joined(text[at - 1 : at]) and not _joined(text[end : end + 1]):
            found.append(at)
        at = text.find(string, at + 1)
    return found


def _joined(character: str) -> bool:
    return character.isalnum() or character == "_"


def score(strings: Iterable[str], history: str, forwarded: str) -> Score:
    total = Score(0, 0, 0)
    for string in strings:
        there = places(string, forwarded)
        total += Score(1, bool(there), bool(there) and _in_context(string, history, forwarded, there))
    return total


def _in_context(string: str, history: str, forwarded: str, there: list[int]) -> bool:
    size = len(string)
    around = [Counter(_WORD.findall(forwarded[max(0, at - NEAR) : at + size + NEAR])) for at in _some(there)]
    for at in reversed(_some(places(string, history))):
        before = _WORD.findall(history[max(0, at - NEAR) : at])[-NEIGHBOURS:]
        after = _WORD.findall(history[at + size : at + size + NEAR])[:NEIGHBOURS]
        words = before + after
        if any(2 * sum(word in found for word in words) >= len(words) for found in around):
            return True
    return False


def _some(found: list[int]) -> list[int]:
    return found if len(found) <= PLACES else found[: PLACES // 2] + found[-PLACES // 2 :]
