"""Lines and headers, both ways: what passes as it came, what stays here, what is put right."""

from __future__ import annotations

import json

import pytest

from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import PATHS, Answer, Taken, chunks, compactd, configured, request, taken

BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}'


async def through(
    data: bytes, answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", base: str = ""
) -> tuple[Taken, Answer]:
    """What the provider gets of a request, and what the client gets of the answer."""
    got: list[Taken] = []

    async def provider(peer: Peer) -> None:
        got.append(await taken(peer))
        await peer.send(answer)
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url + base)) as proxy:
        answered = await proxy.ask(data)
    return got[0], answered


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files/a%2Fb?x=%20+&y=",
        "/v1/models/%E2%82%AC%20?q=%26=&&a=1&a=2&alt=sse",
        "/v1//files/../x/./y;v=1",
        "/v1/files/%zz?%zz=%",
        "/v1/things?a?b#",
        "/v1/files/~user/(a)!'*,$:@",
    ],
)
async def test_path_and_query_reach_the_provider_as_sent(target: str) -> None:
    got, answer = await through(request("GET", target))
    assert got.line == f"GET {target.removesuffix('#')} HTTP/1.1"
    assert answer.status == 200


@pytest.mark.parametrize("target", ["/v1/chat/completions?api-version=2024-10-21&x=%2F+%20", "/v1/messages?beta=true"])
async def test_query_of_a_conversation_reaches_the_provider_as_sent(target: str) -> None:
    got, _ = await through(request("POST", target, body=BODY))
    assert got.line == f"POST {target} HTTP/1.1"


async def test_base_url_with_a_path_comes_first() -> None:
    got, _ = await through(request("GET", "/v1/models?a=b"), base="/inference")
    assert got.line == "GET /inference/v1/models?a=b HTTP/1.1"


async def test_target_in_absolute_form_means_its_path() -> None:
    got, _ = await through(request("GET", "http://elsewhere.test/v1/models?a=b"))
    assert got.line == "GET /v1/models?a=b HTTP/1.1"
    assert got["host"].startswith("127.0.0.1:")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "PROPFIND"])
async def test_any_method_passes(method: str) -> None:
    got, answer = await through(request(method, "/v1/things/1"))
    assert got.line == f"{method} /v1/things/1 HTTP/1.1"
    assert answer.body == b"ok"


async def test_host_is_the_providers() -> None:
    got, _ = await through(request("GET", "/v1/models"))
    assert [value.partition(":")[0] for value in got.all("host")] == ["127.0.0.1"]


async def test_hop_by_hop_request_headers_stay_here() -> None:
    lines = [
        "Connection: keep-alive, X-Private , x-other", "Keep-Alive: timeout=5", "X-Private: 1", "X-Other: 2", "TE: trailers",
        "Trailer: x-sum", "Proxy-Authorization: Basic eDp5", "Proxy-Connection: keep-alive", "Upgrade: h9", "X-Kept: 3",
    ]  # fmt: skip
    got, _ = await through(request("GET", "/v1/models", *lines))
    assert [name for name, _ in got.headers] == ["host", "x-kept"]


async def test_all_other_request_headers_pass_in_order_with_repeats() -> None:
    lines = [
        "authorization: Bearer sk-1", "anthropic-beta: a,b", "x-stainless-lang: python", "anthropic-beta: c", "openai-project: p",
        "user-agent: Agent/1.0 (x; y)", "x-empty:", "accept-encoding: br, zstd", "cookie: a=1", "cookie: b=2", "x-utf8: gr\xfc\xdf",
    ]  # fmt: skip
    got, _ = await through(request("GET", "/v1/models", *lines))
    passed = [f"{name}: {value}" if value else f"{name}:" for name, value in got.headers[1:]]
    assert passed == lines


@pytest.mark.parametrize("target", ["/v1/models", "/v1/chat/completions"])
async def test_headers_for_compactd_stay_here(target: str) -> None:
    lines = ["X-Compactd-Session: s1", "x-compactd-policy: default", "x-compactd-mode: off", "x-compactd-else: kept"]
    got, _ = await through(request("POST", target, *lines, body=BODY))
    assert [name for name, _ in got.headers if name.startswith("x-compactd")] == ["x-compactd-else"]


@pytest.mark.parametrize("form", PATHS)
async def test_content_length_is_the_bodys(form: str) -> None:
    body = b'{"model": "m", "messages": [], "input": "x", "contents": []}'
    got, _ = await through(
        request("POST", PATHS[form], "transfer-encoding: chunked", length=False) + chunks([body[:9], body[9:]])
    )
    assert got.body == body
    assert got.all("content-length") == [str(len(body))]
    assert got.all("transfer-encoding") == []


async def test_empty_body_has_the_length_that_was_told() -> None:
    got, _ = await through(request("POST", "/v1/chat/completions", "content-length: 0"))
    assert got.all("content-length") == ["0"]
    got, _ = await through(request("POST", "/v1/responses/r1/cancel", "content-length: 0"))
    assert got.all("content-length") == ["0"]


async def test_request_without_a_body_gets_no_framing() -> None:
    for method in ("GET", "DELETE"):
        got, _ = await through(request(method, "/v1/files/f"))
        assert not got.all("content-length") + got.all("transfer-encoding")


async def test_answers_headers_pass_with_repeats_and_without_hop_by_hop_ones() -> None:
    lines = [
        b"content-length: 2", b"set-cookie: a=1", b"set-cookie: b=2", b"request-id: req_1", b"x-ratelimit-remaining-requests: 99",
        b"openai-processing-ms: 12", b"connection: keep-alive, X-Hop", b"x-hop: 1", b"keep-alive: timeout=5", b"date: now", b"server: s",
        b"proxy-authenticate: Basic", b"trailer: x-sum", b"upgrade: h9", b"x-empty:", b"x-utf8: gr\xfc\xdf",
    ]  # fmt: skip
    _, answer = await through(
        request("GET", "/v1/models"), b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\n\r\nok"
    )
    passed = [(name, value) for name, value in answer.headers if not name.startswith("x-compactd")]
    assert passed == [
        ("content-length", "2"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("request-id", "req_1"),
        ("x-ratelimit-remaining-requests", "99"), ("openai-processing-ms", "12"), ("date", "now"), ("server", "s"), ("x-empty", ""),
        ("x-utf8", "gr\xfc\xdf"),
    ]  # fmt: skip


async def test_event_streams_are_marked_as_not_to_be_buffered() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    _, answer = await through(request("GET", "/v1/responses/r?stream=true"), head + b"\r\n\n\n")
    assert (answer["x-accel-buffering"], answer["cache-control"]) == ("no", "no-cache")
    own = b"Cache-Control: no-store\r\nX-Accel-Buffering: yes\r\n"
    _, answer = await through(request("GET", "/v1/responses/r?stream=true"), head + own + b"\r\n\n\n")
    assert (answer.all("x-accel-buffering"), answer.all("cache-control")) == (["yes"], ["no-store"])
    _, answer = await through(request("GET", "/v1/models"))
    assert not answer.all("x-accel-buffering") + answer.all("cache-control")


@pytest.mark.parametrize("target", ["/v1/models", "/v1/chat/completions"])
async def test_answers_to_head(target: str) -> None:
    _, answer = await through(request("HEAD", target), b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n")
    assert answer["content-length"] == "1234"


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (b"204 No Content", b""),
        (b"204 No Content", b"content-length: 0\r\n"),
        (b"304 Not Modified", b"etag: x\r\n"),
        (b"304 Not Modified", b"content-length: 1234\r\n"),
    ],
)
async def test_answers_without_a_body_leave_the_connection_good(status: bytes, lines: bytes) -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.1 %b\r\n%b\r\n" % (status, lines))
        await taken(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        client = await proxy.connect()
        await client.send(request("GET", "/v1/models"))
        assert (await client.answer()).status == int(status[:3])
        await client.send(request("GET", "/v1/models"))
        assert (await client.answer()).body == b"ok"


async def test_informational_answers_are_swallowed() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    _, answer = await through(
        request("GET", "/v1/models"), early + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\n\r\nok"
    )
    assert (answer.status, answer.body, answer["link"], answer["x"]) == (200, b"ok", "", "y")


async def test_trailers_are_swallowed_both_ways() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    data = request("POST", "/v1/files", "transfer-encoding: chunked", "trailer: x-sum") + chunks(
        [b"a", b"b"], b"x-sum: 1\r\n"
    )
    got, answer = await through(data, head + chunks([b"c", b"d"], b"x-sum: 2\r\n"))
    assert got.body == b"ab"
    assert answer.body == b"cd"
    assert "x-sum" not in dict(got.headers) | dict(answer.headers)


async def test_answer_that_only_the_end_of_the_connection_ends() -> None:
    async def provider(peer: Peer) -> None:
        await taken(peer)
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it")

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        answer = await proxy.ask(request("GET", "/v1/models"))
    assert answer.body == b"all of it"
    assert answer["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("status", [201, 299, 301, 402, 418, 451, 499, 520, 529, 599])
async def test_any_status_passes(status: int) -> None:
    _, answer = await through(
        request("GET", "/v1/models"), b"HTTP/1.1 %d Odd\r\nlocation: /x\r\ncontent-length: 2\r\n\r\nok" % status
    )
    assert (answer.status, answer.body, answer["location"]) == (status, b"ok", "/x")


async def test_status_that_http_does_not_have_is_a_bad_answer() -> None:
    _, answer = await through(request("GET", "/v1/models"), b"HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok")
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (502, "upstream_broke_off")


async def test_compactd_tells_about_each_request() -> None:
    _, answer = await through(request("POST", "/v1/chat/completions", "x-compactd-session: mine", body=BODY))
    told = {name: value for name, value in answer.headers if name.startswith("x-compactd")}
    assert told.keys() == {
        "x-compactd-outcome", "x-compactd-reason", "x-compactd-request-id", "x-compactd-overhead-ms", "x-compactd-tokens-before",
        "x-compactd-tokens-after", "x-compactd-count-source", "x-compactd-session", "x-compactd-compactions",
    }  # fmt: skip
    assert answer.told == ("passed", "below_threshold")
    assert answer["x-compactd-session"] == "mine"
    assert float(answer["x-compactd-overhead-ms"]) > 0
    _, answer = await through(request("GET", "/v1/models"))
    assert answer.told == ("passed", "not_a_conversation")
