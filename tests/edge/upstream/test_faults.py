from __future__ import annotations

import socket
import ssl

import httpx
import pytest

from app.edge.upstream.faults import broken, unreachable


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TimeoutError(), httpx.ConnectTimeout, "too long"),
        (ConnectionRefusedError(111, "Connection refused"), httpx.ConnectError, "h:1: Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), httpx.ConnectError, "Name or service not known"),
        (ssl.SSLError(1, "wrong version number"), httpx.ConnectError, "wrong version number"),
        (UnicodeError("label too long"), httpx.ConnectError, "UnicodeError"),
        (httpx.ProxyError("no"), httpx.ProxyError, "no"),
    ],
)
def test_connecting(error: Exception, kind: type[Exception], text: str) -> None:
    fault = unreachable("h:1", error)
    assert type(fault) is kind
    assert text in str(fault)


@pytest.mark.parametrize(
    ("error", "seen", "answered", "sending", "kind", "text"),
    [
        (None, False, False, False, httpx.RemoteProtocolError, "without a response"),
        (None, True, False, False, httpx.RemoteProtocolError, "response head"),
        (None, True, True, False, httpx.RemoteProtocolError, "body was complete"),
        (ConnectionResetError(104, "Reset"), False, False, True, httpx.WriteError, "Reset"),
        (ConnectionResetError(104, "Reset"), False, False, False, httpx.ReadError, "Reset"),
        (ConnectionResetError(104, "Reset"), True, True, True, httpx.ReadError, "Reset"),
    ],
)
def test_connection_that_ends(
    error: Exception | None, seen: bool, answered: bool, sending: bool, kind: type[Exception], text: str
) -> None:
    fault = broken(error, seen=seen, answered=answered, sending=sending)
    assert type(fault) is kind
    assert text in str(fault)
