"""Looking at a stream that belongs to somebody else.

A copy of the bytes is fed in as it passes by; what comes out are the data payloads of the few events that can hold usage. The stream itself
is never rewritten, delayed or joined. Works at any split of the bytes. Of a line beyond the bound only the end is kept: an event that
repeats a whole answer tells its usage there.
Grammar: https://html.spec.whatwg.org/multipage/server-sent-events.html (data lines; event names are repeated inside the payloads).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from app.core import jsonspan
from app.errors import NotCompactable

MAX_LINE = 128 << 10
"""Bytes of one line that are kept; most usage events are far smaller."""
ENDS = 64 << 10
"""Bytes at the end of something larger that are kept."""
LONGEST_USAGE, TRIED = 8 << 10, 16
"""Bytes of one report, and how many places that look like one are tried."""
_USAGE = re.compile(rb'"(usage\w*)"\s*:\s*(?=\{)')
_DECODER = json.JSONDecoder()


class UsageLines:
    """Data payloads that contain the word `usage`."""

    def __init__(self, mark: bytes = b"usage") -> None:
        self._mark = mark
        self._rest = b""
        self._headless = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads (JSON texts, or the end of one) of the lines that this chunk completes."""
        if b"\r" in chunk:  # ends a line as well, alone or before a line feed; inside JSON it is always escaped
            chunk = chunk.replace(b"\r", b"\n")
        whole, newline, rest = (self._rest + chunk if self._rest else chunk).rpartition(b"\n")
        headless = self._headless
        self._rest, self._headless = rest, headless and not newline
        if len(rest) > MAX_LINE:
            self._rest, self._headless = rest[-ENDS:], True
        if not newline or self._mark not in whole:
            return []
        first, *lines = whole.split(b"\n")
        found = [first.strip()] if headless and self._mark in first else []
        lines = lines if headless else [first, *lines]
        return found + [line[5:].strip() for line in lines if self._mark in line and line.startswith(b"data:")]

    def end(self) -> list[bytes]:
        """What an unfinished last line holds."""
        return self.feed(b"\n") if self._rest else []


def first_error(start: bytes) -> bytes | None:
    """What a stream says whose first event is an error; b"" of any other, None while that event is not whole."""
    for line in start.replace(b"\r", b"\n").split(b"\n")[:-1]:
        if line.startswith(b"data:"):
            with contextlib.suppress(NotCompactable):
                event = jsonspan.value(line[5:]) if b'"error"' in line else None
                return line[5:].strip() if isinstance(event, dict) and event.get("error") else b""
            return b""
    return None


def usages(text: bytes) -> Iterator[dict[str, Any]]:
    """The objects called `usage…` in a JSON text whose beginning or end is missing, each under its name, last first."""
    at = len(text)
    for _ in range(TRIED):
        at = text.rfind(b'"usage', 0, at)
        if at < 0:
            return
        found = _USAGE.match(text, at)
        if found is None or text[at - 1 : at] == b"\\":  # a word in somebody's text
            continue
        told = text[found.end() : found.end() + LONGEST_USAGE].decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            yield {found[1].decode("ascii", "replace"): _DECODER.raw_decode(told)[0]}
