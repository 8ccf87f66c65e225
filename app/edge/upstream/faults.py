"""The one place where the errors of sockets, TLS and timers become httpx exceptions.

Texts name the place and the kind of trouble. They never hold headers, a body, or the credentials of a proxy.
"""

from __future__ import annotations

import ssl

import httpx

from app.edge.causes import system_words

CONNECTING_ERRORS = (
    OSError,
    UnicodeError,
)  # TLS and look-up errors are OSErrors, an impossible host name is the latter


def unreachable(place: str, error: Exception) -> httpx.TransportError:
    """No connection came about; `place` is host:port."""
    if isinstance(error, httpx.TransportError):
        return error
    if isinstance(error, TimeoutError):
        return httpx.ConnectTimeout(f"connecting to {place} took too long")
    if isinstance(error, ssl.SSLCertVerificationError):
        return httpx.ConnectError(f"the TLS certificate of {place} is not trusted: {error.verify_message.rstrip('.')}")
    return httpx.ConnectError(f"could not connect to {place}: {_what(error)}")


def broken(error: Exception | None, *, seen: bool, answered: bool, sending: bool) -> httpx.TransportError:
    """A connection ended under an exchange: `seen` any byte of the answer, `answered` its whole head."""
    if error is not None:
        if sending and not seen:
            return httpx.WriteError(f"the connection broke while the request was sent: {_what(error)}")
        return httpx.ReadError(f"the connection broke: {_what(error)}")
    if answered:
        return httpx.RemoteProtocolError("the connection was closed before the body was complete")
    if seen:
        return httpx.RemoteProtocolError("the connection was closed in the middle of the response head")
    return httpx.RemoteProtocolError("the connection was closed without a response")


def _what(error: Exception) -> str:
    return system_words(error) or type(error).__name__
