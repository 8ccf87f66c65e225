"""What a text is made of for a summary without a model: lines, and in them the strings that a later step may ask for again.

Nothing here knows a language. A line is what the text itself sets apart; a very long one falls into segments where it has a gap. A string
is a run of characters between white space, quotes, brackets and commas, whatever the script: a path, an identifier, a number, a word, and
in scripts that set no spaces the clause between two marks. What kind it is shows in its characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Kind = Literal["number", "identifier", "id", "path", "url", "word", ""]

SEGMENT = 80
"""Characters: longer lines (JSON in one line, prose) fall into segments of about this length: one value need not bring a page along."""
LONGEST = 200
"""Characters: longer strings are data and no names (base64, minified code), never worth their room."""

_SEPARATORS = "\"'`<>()[]{},;|*!?=…“”‘’«»「」『』（）、。，；：！？・।؟،؛"
_TABLE = str.maketrans(dict.fromkeys(_SEPARATORS, " "))
_EDGES = ".:-_/\\#@&%$+~^"
_MARKED = r"(?<=[,;.!?。、，；])(?=[\s\"'\[{]|[^\x00-\x7f])"
_SEGMENTS = re.compile(
    rf".{{{SEGMENT // 4},{SEGMENT}}}{_MARKED}|.{{1,{SEGMENT}}}$|.{{1,{SEGMENT}}}(?<=\s)|.{{{SEGMENT}}}", re.DOTALL
)
"""Up to a mark; else the rest of the line; else up to a gap; else just so much."""
_NUMBERED = re.compile(r"\s*\d+(?:→|\t|[:|] |\| | {2,})")
_CAMEL = re.compile(r"[a-z\d][A-Z]")


def lines_of(text: str) -> Iterator[str]:
    """The lines that hold something, long ones in segments; together they hold the text but for blank lines and white space at ends."""
    for line in text.splitlines():
        if len(line) <= SEGMENT + 40:
            if line and not line.isspace():
                yield line.rstrip()
        else:
            for found in _SEGMENTS.finditer(line):
                if not found[0].isspace():
                    yield found[0].strip() if found.start() else found[0].rstrip()


def runs_of(line: str) -> list[str]:
    """The runs of a line, with what may cling to their edges. A line number in front (listings of files) is none of them."""
    numbered = _NUMBERED.match(line)
    return (line[numbered.end() :] if numbered else line).translate(_TABLE).split()


def clean(run: str) -> str:
    """A run without what clings to it."""
    return run.strip(_EDGES)


def kind_of(string: str) -> Kind:
    """What a cleaned string is, by its characters; "" for what nobody would look for: too short, too long, mere punctuation."""
    size = len(string)
    if not 3 <= size <= LONGEST:
        return "word" if size == 2 and string.isalpha() and not string.isascii() else ""
    if "://" in string:
        return "url"
    if "/" in string or "\\" in string:
        return "path"
    digits = sum(map(str.isdigit, string))
    if digits and not any(map(str.isalpha, string)):
        return "number" if digits >= 3 else ""
    if digits >= 3 or (digits and size >= 6):
        return "id"
    if size >= 5 and (_CAMEL.search(string) or any(mark in string for mark in "_.-:@#&")):
        return "identifier"
    return "word" if string.isalpha() else ""
