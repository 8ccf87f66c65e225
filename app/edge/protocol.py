"""uvicorn's HTTP/1.1 protocol, with what it leaves open: a bound on a request's head, and trailers that don't become headers.

Trailers come behind a chunked body and are dropped, as any proxy may (RFC 9110 section 6.5.1): uvicorn would add them to the headers of a request
that is on its way already, where they could stand for a credential or a length.
"""

from __future__ import annotations

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

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._head = len(self.url) + sum(len(name) + len(value) + PUNCTUATION for name, value in self.headers)
        if self._too_large:
            raise HeadTooLarge  # makes the parser fail, and so uvicorn answer
        super().on_headers_complete()
        self.headers = []

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._reading_head and not self.transport.is_closing():
            self._head += len(data)
            if self._too_large:
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        if not self._too_large:
            super().send_400_response(msg)
            return
        self.transport.write(_REFUSAL)
        self.transport.close()

    @property
    def _too_large(self) -> bool:
        return self._head > (self.config.h11_max_incomplete_event_size or self._head)
