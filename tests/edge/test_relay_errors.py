"""Errors: the provider's own untouched, compactd's in the shape of the client's format, with a stable code and without a secret."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import LogCapture

from app.edge import reception, relay
from tests.edge.upstream.peers import Peer, answers, serve
from tests.edge.wire import PATHS, Answer, compactd, configured, request

BODIES = {
    "openai-chat": b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}',
    "openai-responses": b'{"model": "gpt-5", "input": [{"role": "user", "content": "Hi."}]}',
    "anthropic-messages": b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}',
    "gemini": b'{"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}',
}
SECRET = "sk-very-secret-0123456789"
BESIDE = {  # paths of each format without a conversation
    "openai-chat": "/v1/models",
    "anthropic-messages": "/v1/messages/count_tokens",
    "gemini": "/v1beta/models",
}


def asked(form: str, *lines: str, target: str = "") -> bytes:
    secret = [f"authorization: Bearer {SECRET}", f"x-api-key: {SECRET}", f"x-goog-api-key: {SECRET}"]
    return request("POST", target or f"{PATHS[form]}?key={SECRET}", *secret, *lines, body=BODIES[form])


def code_of(form: str, answer: Answer) -> str:
    """The stable code, out of the shape that the format's own clients read."""
    assert answer["content-type"] == "application/json"
    error = json.loads(answer.body)
    if form == "anthropic-messages":
        assert error["type"] == "error"
        assert error["error"]["type"].endswith("_error")
        assert isinstance(error["error"]["message"], str)
        return str(error["error"]["code"])
    if form == "gemini":
        assert error["error"]["code"] == answer.status
        assert error["error"]["status"].isupper()
        return str(error["error"]["details"][0]["reason"])
    assert error["error"].keys() == {"message", "type", "param", "code"}
    return str(error["error"]["code"])


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nobody listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("status", "lines", "body"),
    [
        (
            429,
            b"retry-after: 17\r\nretry-after-ms: 17000\r\nx-should-retry: true\r\n",
            b'{"error": {"type": "rate_limit_error"} }',
        ),
        (529, b"request-id: req_1\r\n", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        (500, b"content-type: text/html\r\n", b"<html>\r\n<h1>500</h1>\x00\xff</html>"),
        (503, b"retry-after: 1\r\n", b""),
        (
            401,
            b"www-authenticate: Bearer\r\n",
            b'{"error": {"message": "Incorrect API key provided: sk-x", "code": "invalid_api_key"}}',
        ),
        (400, b"", b'{"error": {"message": "messages: at least one message is required"}}'),
        (
            413,
            b"",
            b'{"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}',
        ),
        (422, b"content-encoding: gzip\r\n", b"\x1f\x8b no gzip at all"),
        (404, b"", b"x" * (2 << 20)),
        (400, b"", b"x" * (2 << 20)),
    ],
)
@pytest.mark.parametrize("form", PATHS)
async def test_providers_errors_pass_byte_for_byte(form: str, status: int, lines: bytes, body: bytes) -> None:
    error = b"HTTP/1.1 %d Bad\r\n%bcontent-length: %d\r\n\r\n%b" % (status, lines, len(body), body)
    async with serve(answers(error)) as server, compactd(configured(server.url)) as proxy:
        answer = await proxy.ask(asked(form))
    assert (answer.status, answer.body) == (status, body)
    for line in lines.decode().split("\r\n")[:-1]:
        assert answer[line.partition(": ")[0]] == line.partition(": ")[2]
    assert len(server.heads) == 1


@pytest.mark.parametrize("form", PATHS)
async def test_unreachable(form: str, nowhere: str, log: LogCapture) -> None:
    async with compactd(configured(f"http://{nowhere}")) as proxy:
        answer = await proxy.ask(asked(form))
        assert proxy.metric("upstream_responses_total", upstream="provider", status="502") == 0
        labels = {"format": form, "upstream": "provider", "outcome": "passed", "reason": "below_threshold"}
        assert proxy.metric("requests_total", **labels) == 1
    assert answer.status == 502
    assert code_of(form, answer) == "upstream_unreachable"
    assert nowhere.encode() in answer.body
    assert SECRET.encode() not in answer.body
    (line,) = (entry for entry in log.entries if entry["event"] == "request")
    assert (line["policy"], line["because"]) == ("default", f"Could not connect to {nowhere}: Connection refused.")


@pytest.mark.parametrize("form", BESIDE)
async def test_unreachable_beside_conversations(form: str, nowhere: str) -> None:
    async with compactd(configured(f"http://{nowhere}")) as proxy:
        answer = await proxy.ask(asked(form, target=BESIDE[form]))
        assert (answer.status, code_of(form, answer)) == (502, "upstream_unreachable")
        named = await proxy.ask(asked(form, target=f"/provider{BESIDE[form]}"))
        assert (named.status, code_of(form, named)) == (502, "upstream_unreachable")


async def test_name_that_does_not_exist() -> None:
    async with compactd(configured("http://provider.invalid:1234")) as proxy:
        answer = await proxy.ask(asked("openai-chat"))
    assert (answer.status, code_of("openai-chat", answer)) == (502, "upstream_unreachable")
    assert b"provider.invalid:1234" in answer.body


async def test_tls_that_is_none() -> None:
    async def provider(peer: Peer) -> None:
        await peer.reader.read(99)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serve(provider) as server, compactd(configured(server.url.replace("http:", "https:"))) as proxy:
        answer = await proxy.ask(asked("openai-chat"))
    assert (answer.status, code_of("openai-chat", answer)) == (502, "upstream_unreachable")


@pytest.mark.parametrize("form", PATHS)
async def test_silence_is_a_timeout(form: str) -> None:
    async def provider(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url, limits={"read_timeout": 0.05})) as proxy:
        answer = await proxy.ask(asked(form))
    assert (answer.status, code_of(form, answer)) == (504, "upstream_timeout")
    assert SECRET.encode() not in answer.body


async def test_silence_in_mid_stream_breaks_the_answer_off() -> None:
    async def provider(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url, limits={"read_timeout": 0.05})) as proxy:
        client = await proxy.connect()
        await client.send(asked("openai-chat"))
        await client.head()
        assert await client.rest() == b"5\r\nhello\r\n"


async def test_an_upstream_has_timeouts_of_its_own() -> None:
    async def provider(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with serve(provider) as server:
        upstreams = {"provider": {"base_url": server.url, "formats": ["openai-chat"], "read_timeout": 0.05}}
        async with compactd(configured("", upstreams=upstreams)) as proxy:
            assert (await proxy.ask(asked("openai-chat"))).status == 504


async def test_connecting_takes_too_long() -> None:
    with socket.socket() as deaf:  # its backlog is full after the first, so that the next ones wait
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        async with compactd(configured(f"http://{address}", limits={"connect_timeout": 0.1})) as proxy:
            answer = await proxy.ask(asked("anthropic-messages"))
        for one in waiting:
            one.close()
    assert (answer.status, code_of("anthropic-messages", answer)) == (504, "upstream_connect_timeout")
    assert address.encode() in answer.body


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nconte", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"]
)
@pytest.mark.parametrize("form", PATHS)
async def test_provider_that_says_no_http(form: str, said: bytes) -> None:
    async def provider(peer: Peer) -> None:
        await peer.request()
        await peer.send(said)

    async with serve(provider) as server, compactd(configured(server.url)) as proxy:
        answer = await proxy.ask(asked(form))
        assert proxy.app.relay.inflight == 0
    assert (answer.status, code_of(form, answer)) == (502, "upstream_broke_off")


async def test_pool_is_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.forwarding.POOL_PATIENCE", 0.05)
    busy = asyncio.Event()

    async def provider(peer: Peer) -> None:
        await peer.request()
        busy.set()
        await peer.gone()

    async with serve(provider) as server, compactd(configured(server.url, limits={"max_connections": 1})) as proxy:
        first = await proxy.connect()
        await first.send(asked("openai-chat"))
        await busy.wait()
        answer = await proxy.ask(asked("openai-chat"))
    assert (answer.status, code_of("openai-chat", answer)) == (503, "upstream_pool_exhausted")
    assert answer["retry-after"] == "1"


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(
    ("header", "code"), [("x-compactd-policy: nosuch", "unknown_policy"), ("x-compactd-mode: maybe", "unknown_mode")]
)
async def test_unknown_policy_or_mode(form: str, header: str, code: str) -> None:
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        answer = await proxy.ask(asked(form, header))
        assert proxy.metric("requests_total", format=form, upstream="provider", outcome="passed", reason=code) == 1
    assert (answer.status, code_of(form, answer)) == (400, code)


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(("refusing", "limits"), [(True, {}), (False, {"max_inflight": 1})])
async def test_what_can_not_be_taken_on_now(form: str, refusing: bool, limits: dict[str, int]) -> None:
    async with compactd(configured("http://127.0.0.1:9", limits=limits)) as proxy:
        proxy.app.relay.refusing = refusing
        another = asyncio.create_task(asyncio.Event().wait())
        proxy.app.relay._running.add(another)
        client = await proxy.connect()
        await client.send(asked(form))
        answer = await client.answer()
        assert await client.rest() == b""
        another.cancel()
    assert (answer.status, answer["connection"], answer["retry-after"]) == (503, "close", "1")
    assert code_of(form, answer) == ("draining" if refusing else "too_many_requests_inflight")


async def test_no_upstream() -> None:
    async with compactd(configured("", upstreams={})) as proxy:
        answer = await proxy.ask(asked("openai-chat"))
    assert (answer.status, code_of("openai-chat", answer)) == (404, "no_upstream")


async def test_a_key_for_one_provider_is_never_tried_on_another() -> None:
    base = "http://127.0.0.1:9"
    upstreams = {name: {"base_url": base, "formats": [form]} for name, form in (("a", "openai-chat"), ("b", "gemini"))}
    async with compactd(configured("", upstreams=upstreams)) as proxy:
        answer = await proxy.ask(asked("anthropic-messages"))
    assert (answer.status, code_of("anthropic-messages", answer)) == (404, "no_upstream")
    assert b"anthropic-messages" in answer.body


@pytest.mark.parametrize("form", PATHS)
async def test_fault_in_looking_at_a_request_lets_it_pass(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("some content")

    monkeypatch.setattr(reception, "session_name", broken)
    async with (
        serve(answers(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as server,
        compactd(configured(server.url)) as proxy,
    ):
        answer = await proxy.ask(asked(form))
        assert proxy.metric("faults_total", where="reception") == 1
    assert (answer.body, answer.told) == (b"ok", ("passed", "internal_error"))


@pytest.mark.parametrize("form", PATHS)
async def test_fault_in_the_relay_is_answered_and_says_nothing(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError(SECRET)

    monkeypatch.setattr(relay, "take_body", broken)
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        client = await proxy.connect()
        for _ in range(2):
            await client.send(asked(form))
            answer = await client.answer()
            assert (answer.status, code_of(form, answer)) == (500, "internal_error")
        assert proxy.metric("faults_total", where="relay") == 2
    assert SECRET not in "".join(capsys.readouterr()) + answer.body.decode()
