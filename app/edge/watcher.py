"""Watching an answer for what the provider reports of usage.

A copy of the bytes is looked at as they pass; nothing is held back for it and nothing changed. A compressed answer is decoded in the copy
only.
"""

from __future__ import annotations

import contextlib

from app.core import jsonspan
from app.core.sse import ENDS, UsageLines, first_error, usages
from app.edge.bodies import DECODERS, MOST, MOST_CODINGS, codings
from app.errors import NotCompactable
from app.formats.base import Format, Usage

FIRST_EVENT = 16 << 10
"""Bytes at the beginning of a stream in which its first event is looked for."""
TAIL = 2_048
"""Bytes at the end of an answer in which its last event names itself."""


class Watcher:
    """Looks at a copy of an answer as it passes and gathers what the provider reports of usage. Never raises, never delays.

    Of a stream its lines are read as they come, of any other answer only both ends are kept: a small one is read as a whole, in a larger or
    broken one what it calls usage.
    """

    def __init__(self, form: Format, content_type: str, coding: str) -> None:
        self.usage: Usage | None = None
        self._form = form
        names = codings(coding)
        self._blind = len(names) > MOST_CODINGS or not DECODERS.keys() >= set(names)
        self._decoders = [] if self._blind else [DECODERS[name]() for name in reversed(names)]
        self._lines = UsageLines() if "event-stream" in content_type.lower() else None
        self._start = b""
        self._end = b""
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        if self._blind:
            return
        try:
            for decoder in self._decoders:
                chunk = decoder.decompress(chunk, MOST)
            self._feed(chunk)
        except Exception:  # whatever it is, the answer goes on
            self._blind = True

    def _feed(self, chunk: bytes) -> None:
        kept = TAIL
        if self._lines is not None:
            if len(self._start) < FIRST_EVENT:
                self._start += chunk[: FIRST_EVENT - len(self._start)]
            for payload in self._lines.feed(chunk):
                self._take(payload)
        else:
            kept = ENDS
            if self._size < ENDS:
                self._start += chunk[: ENDS - self._size]
            self._size += len(chunk)
        self._end = chunk[-kept:] if len(chunk) >= kept else (self._end + chunk)[-kept:]

    def end(self) -> None:
        """That was all, or all that came."""
        with contextlib.suppress(Exception):
            if self._lines is not None:
                for payload in self._lines.end():
                    self._take(payload)
            elif self._size > ENDS:
                self._find(self._end)
                if self.usage is None:
                    self._find(self._start)
            else:
                self._take(self._start)

    @property
    def error(self) -> bytes:
        """What a stream says that begins with an error; b"" for any other."""
        return (first_error(self._start + b"\n") or b"") if self._lines is not None else b""

    @property
    def terminal(self) -> bool:
        """Has the answer said that it is over? Clients leave right after that, which is no abort."""
        return any(mark in self._end[-TAIL:] for mark in self._form.terminal)

    def _take(self, payload: bytes) -> None:
        if len(payload) > ENDS:
            self._find(payload[-ENDS:])
            return
        try:
            event = jsonspan.value(payload)
        except NotCompactable:
            self._find(payload)
            return
        for one in event if isinstance(event, list) else [event]:
            self._add(self._form.usage(one))

    def _find(self, text: bytes) -> None:
        """The last report in a text that is no whole JSON text."""
        self._add(next((told for found in usages(text) if (told := self._form.usage(found)) and told != Usage()), None))

    def _add(self, found: Usage | None) -> None:
        if found is not None:
            self.usage = self._form.merge(self.usage, found) if self.usage else found
