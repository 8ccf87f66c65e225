"""uvicorn's HTTP/1.1 protocol, with three things put right that clients and attackers find.

A request's head is bounded. Trailers, which come behind a chunked body, are dropped as any proxy may (RFC 9110 section 6.5.1): uvicorn adds
them to the headers of a request that is on its way already, where they could stand for a credential. And an upgrade that nobody here speaks
is passed over (section 7.8): the parser takes the body of such a request for the other protocol's first bytes, so the head is read once
more without that wish. Java's HttpClient offers `h2c` with the first POST of every connection.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PUNCTUATION = 4
"""Bytes of a header line besides name and value."""
_TOO_LARGE = b"The request's line and headers are over `limits.max_header_bytes` of compactd's configuration."
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
    % (len(_TOO_LARGE), _TOO_LARGE)
)


class HeadTooLarge(Exception):
    """Stops the parser."""


class Protocol(HttpToolsProtocol):
    """The bound comes in uvicorn's configuration, as `h11_max_incomplete_event_size`: uvicorn itself has it for its other parser only."""

    _reading_head = False
    _head = 0  # bytes of a request's line and headers, as far as they have come
    _upgrading = False

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("This is no HTTP/1.1 request.")
        else:
            if self._reading_head:
                self._head += len(data)
                if self._too_large:
                    self.send_400_response("")

    def _pass_over(self, rest: bytes) -> None:
        """Read the head once more, without the wish for another protocol, and what follows it as what it is."""
        kept = [(name, _without_upgrade(value) if name == b"connection" else value) for name, value in self.headers]
        lines = b"".join(b"%b: %b\r\n" % line for line in kept)
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, lines)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.data_received(head + rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._head = len(self.url) + sum(len(name) + len(value) + PUNCTUATION for name, value in self.headers)
        if self._too_large:
            raise HeadTooLarge  # makes the parser fail, and that is answered
        self._upgrading = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._upgrading:
            super().on_headers_complete()
            self.headers = []

    def on_message_complete(self) -> None:
        if not self._upgrading:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        if not self._too_large:
            super().send_400_response(msg)
            return
        self.transport.write(_REFUSAL)
        self.transport.close()

    @property
    def _too_large(self) -> bool:
        return self._head > (self.config.h11_max_incomplete_event_size or self._head)


def _without_upgrade(connection: bytes) -> bytes:
    return b",".join(token for token in connection.split(b",") if token.strip().lower() != b"upgrade")
