from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.edge.upstream.framing import chunk, frame
from app.edge.upstream.routes import Place, Route
from tests.edge.upstream.peers import ROUTE, request

URL = "http://example.test/v1/x"


async def _pieces() -> AsyncIterator[bytes]:
    yield b"abc"


def test_target_and_headers_go_out_exactly_as_given() -> None:
    headers = [
        (b"X-B", b"2"),
        (b"anthropic-beta", b"a"),
        (b"Anthropic-Beta", b"b, c"),
        (b"x-e", b""),
        (b"x-u", b"\xff"),
    ]
    message = frame(request(URL, headers=headers, target=b"/v1/x%2Fy?q=%20a+b"), ROUTE)
    assert message.head == (
        b"GET /v1/x%2Fy?q=%20a+b HTTP/1.1\r\nhost: example.test\r\nX-B: 2\r\nanthropic-beta: a\r\n"
        b"Anthropic-Beta: b, c\r\nx-e: \r\nx-u: \xff\r\n\r\n"
    )
    assert message.body == b""


def test_target_is_the_urls_where_none_is_given() -> None:
    assert frame(request("http://example.test/a%2Fb?c=d"), ROUTE).head.startswith(b"GET /a%2Fb?c=d HTTP/1.1\r\n")


def test_body_of_bytes_is_not_copied() -> None:
    body = b"x" * 100_000
    message = frame(request(URL, "POST", body), ROUTE)
    assert message.body is body
    assert message.head.endswith(b"content-length: 100000\r\n\r\n")


@pytest.mark.parametrize("stream", [b"four", bytearray(b"four"), memoryview(b"four")])
def test_length_is_added_where_none_is_given(stream: Any) -> None:
    message = frame(httpx.Request("POST", URL, stream=stream), ROUTE)
    assert message.head.endswith(b"\r\ncontent-length: 4\r\n\r\n")
    assert message.body == b"four"


def test_streamed_body_is_chunked_unless_its_length_is_given() -> None:
    message = frame(request(URL, "POST", _pieces()), ROUTE)
    assert message.head.endswith(b"\r\ntransfer-encoding: chunked\r\n\r\n")
    assert message.length is None
    message = frame(request(URL, "POST", _pieces(), [(b"Content-Length", b"3")]), ROUTE)
    assert b"transfer-encoding" not in message.head
    assert message.length == 3


def test_chunked_is_said_once() -> None:
    message = frame(request(URL, "POST", _pieces(), [(b"Transfer-Encoding", b"chunked")]), ROUTE)
    assert message.head.lower().count(b"transfer-encoding") == 1
    message = frame(httpx.Request("POST", URL, content=_pieces()), ROUTE)  # httpx says it by itself
    assert message.head.lower().count(b"transfer-encoding") == 1


def test_bytes_announced_as_chunked_become_one_chunk() -> None:
    asked = request(URL, "POST", httpx.ByteStream(b"hello"), [(b"transfer-encoding", b"chunked")])
    assert frame(asked, ROUTE).body == b"5\r\nhello\r\n0\r\n\r\n"


def test_chunk_of_nothing_is_nothing() -> None:
    assert chunk(b"") == b""
    assert chunk(b"x" * 16) == b"10\r\n" + b"x" * 16 + b"\r\n"


def test_plain_proxying_names_the_origin_and_logs_in() -> None:
    route = Route(Place("a", 1), tls=False, prefix=b"http://example.test", lines=b"Proxy-Authorization: Basic eA==\r\n")
    head = frame(request(URL, target=b"/t"), route).head
    assert head.startswith(b"GET http://example.test/t HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\nhost: ")


@pytest.mark.parametrize(
    "asked",
    [
        request(URL, target=b"/a b"),
        request(URL, target=b"/a\r\nx: y"),
        request(URL, headers=[(b"x", b"a\r\ny: b")]),
        request(URL, headers=[(b"x", b"a\nb")]),
        request(URL, headers=[(b"x\r", b"a")]),
        request(URL, "POST", httpx.ByteStream(b"abc"), [(b"content-length", b"2")]),
        request(URL, "POST", httpx.ByteStream(b""), [(b"content-length", b"2")]),
        request(URL, "POST", httpx.ByteStream(b"abc"), [(b"content-length", b"x")]),
        request(URL, "POST", _pieces(), [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")]),
        request(URL, "POST", _pieces(), [(b"transfer-encoding", b"gzip")]),
    ],
)
def test_request_that_would_spoil_the_connection_is_refused(asked: httpx.Request) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        frame(asked, ROUTE)


def test_length_in_an_unusual_spelling_counts() -> None:
    asked = request(URL, "POST", httpx.ByteStream(b"abc"), [(b"CONTENT-LENGTH", b"003 ")])
    assert b"CONTENT-LENGTH: 003 \r\n\r\n" in frame(asked, ROUTE).head


def test_body_of_another_kind_is_refused() -> None:
    asked = httpx.Request("POST", URL, content=iter([b"a"]))
    with pytest.raises(TypeError, match="async"):
        frame(asked, ROUTE)
