from __future__ import annotations

import socket
import ssl

import httpx
import pytest

from app.edge.upstream.faults import broken, unreachable

NO_TLS = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
NO_TLS.reason = "WRONG_VERSION_NUMBER"
ANOTHERS = ssl.SSLCertVerificationError(1, "certificate verify failed")
ANOTHERS.verify_message = "IP address mismatch, certificate is not valid for 'h'."


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TimeoutError(), httpx.ConnectTimeout, "took too long"),
        (ConnectionRefusedError(111, "Connection refused"), httpx.ConnectError, "h:1: Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), httpx.ConnectError, "Name or service not known"),
        (NO_TLS, httpx.ConnectError, "h:1: TLS: wrong version number"),
        (ANOTHERS, httpx.ConnectError, "of h:1 is not trusted: IP address mismatch, certificate is not valid for 'h'"),
        (UnicodeError("label too long"), httpx.ConnectError, "UnicodeError"),
        (httpx.ProxyError("no"), httpx.ProxyError, "no"),
    ],
)
def test_connecting(error: Exception, kind: type[Exception], text: str) -> None:
    fault = unreachable("h:1", error)
    assert type(fault) is kind
    assert str(fault).endswith(text)


@pytest.mark.parametrize(
    ("error", "seen", "answered", "sending", "kind", "text"),
    [
        (None, False, False, False, httpx.RemoteProtocolError, "without a response"),
        (None, True, False, False, httpx.RemoteProtocolError, "response head"),
        (None, True, True, False, httpx.RemoteProtocolError, "body was complete"),
        (ConnectionResetError(104, ""), False, False, True, httpx.WriteError, "reset by peer"),
        (ConnectionResetError(104, ""), False, False, False, httpx.ReadError, "reset by peer"),
        (ConnectionResetError(104, ""), True, True, True, httpx.ReadError, "reset by peer"),
    ],
)
def test_connection_that_ends(
    error: Exception | None, seen: bool, answered: bool, sending: bool, kind: type[Exception], text: str
) -> None:
    fault = broken(error, seen=seen, answered=answered, sending=sending)
    assert type(fault) is kind
    assert text in str(fault)
