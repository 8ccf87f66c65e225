"""Looking at a stream that belongs to somebody else.

A copy of the bytes is fed in as it passes by; what comes out are the data payloads of the few events that can hold usage. The stream itself
is never rewritten, delayed or joined. Works at any split of the bytes; lines beyond the bound are skipped, not kept.
Grammar: https://html.spec.whatwg.org/multipage/server-sent-events.html (data lines; event names are repeated inside the payloads).
"""

from __future__ import annotations

MAX_LINE = 1 << 20
"""Bytes of one line that are kept; usage events are far smaller."""


class UsageLines:
    """Data payloads that contain the word `usage`."""

    def __init__(self, mark: bytes = b"usage") -> None:
        self._mark = mark
        self._rest = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads (JSON texts) of the lines that this chunk completes."""
        if self._skipping:
            _, newline, chunk = chunk.partition(b"\n")
            if not newline:
                return []
            self._skipping = False
        whole, newline, rest = (self._rest + chunk if self._rest else chunk).rpartition(b"\n")
        self._rest = rest
        if len(rest) > MAX_LINE:
            self._rest, self._skipping = b"", True
        if not newline or self._mark not in whole:
            return []
        return [line[5:].strip() for line in whole.split(b"\n") if self._mark in line and line.startswith(b"data:")]

    def end(self) -> list[bytes]:
        """What an unfinished last line holds."""
        return self.feed(b"\n") if self._rest else []
