"""Whose credentials go where: the client's own by default; where compactd brings one, a key of `auth.keys` and nothing of the client's."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from app.formats import FORMATS
from app.settings import Settings
from tests.edge.wire import PATHS, Answer, Taken, chunks, compactd, configured, remembering, request, until

BODIES = {
    "openai-chat": {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]},
    "openai-responses": {"model": "gpt-5", "input": [{"role": "user", "content": "Hi."}]},
    "anthropic-messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi."}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]},
}
NATIVE = {
    "openai-chat": "authorization",
    "openai-responses": "authorization",
    "anthropic-messages": "x-api-key",
    "gemini": "x-goog-api-key",
}
WAYS = [  # in which clients bring a key: header line, query
    ("authorization: Bearer {}", ""),
    ("Authorization: bearer {}", ""),
    ("x-api-key: {}", ""),
    ("x-goog-api-key: {}", ""),
    ("api-key: {}", ""),
    ("x-none: 1", "?key={}"),
    ("x-none: 1", "?alt=sse&key={}&api-version=1"),
]
OWN, CLIENT = "sk-provider-own", "ck-client-1"


async def through(data: bytes, upstream: dict[str, Any], keys: list[str]) -> tuple[list[Taken], Answer]:
    async with remembering() as (url, got):
        upstreams = {"provider": {"base_url": url, "formats": list(FORMATS), **upstream}}
        async with compactd(configured("", upstreams=upstreams, auth={"keys": keys})) as proxy:
            answer = await proxy.ask(data)
    return got, answer


def post(form: str, *lines: str, query: str = "") -> bytes:
    return request("POST", PATHS[form] + query, *lines, body=json.dumps(BODIES[form]).encode())


def credentials(got: Taken) -> dict[str, str]:
    return {
        name: value
        for name, value in got.headers
        if name in ("authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie")
    }


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(("line", "query"), WAYS)
async def test_clients_key_gives_way_to_the_providers(form: str, line: str, query: str) -> None:
    got, answer = await through(
        post(form, line.format(CLIENT), query=query.format(CLIENT)), {"api_key": OWN}, ["other", CLIENT]
    )
    assert answer.status == 200
    native = NATIVE[form]
    assert credentials(got[0]) == {native: f"Bearer {OWN}" if native == "authorization" else OWN}
    assert CLIENT not in repr(got[0])
    left = "alt=sse&api-version=1" if "alt" in query else ""
    assert got[0].line.split(" ")[1] == PATHS[form] + ("?" + left if left else "")


async def test_all_of_the_clients_credentials_give_way() -> None:
    lines = [f"authorization: Bearer {CLIENT}", f"x-api-key: {CLIENT}", "api-key: another", "x-goog-api-key: third"]
    got, _ = await through(post("anthropic-messages", *lines, query="?key=fourth"), {"api_key": OWN}, [CLIENT])
    assert credentials(got[0]) == {"x-api-key": OWN}
    assert got[0].line == "POST /v1/messages HTTP/1.1"


@pytest.mark.parametrize("name", ["authorization", "Api-Key"])
async def test_credentials_in_an_upstreams_headers_count_as_such(name: str) -> None:
    upstream = {"headers": {name: "Own own", "x-team": "a"}}
    got, answer = await through(
        post("openai-chat", f"x-api-key: {CLIENT}", "x-team: b", query=f"?key={CLIENT}"), upstream, [CLIENT]
    )
    assert answer.status == 200
    assert credentials(got[0]) == {name.lower(): "Own own"}
    assert got[0].all("x-team") == ["a"]
    assert CLIENT not in repr(got[0])


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(
    "lines", [(), ("authorization: Bearer wrong",), ("x-api-key: ",), (f"authorization: Basic {CLIENT}",)]
)
async def test_without_a_key_of_ours_the_provider_hears_nothing(form: str, lines: tuple[str, ...]) -> None:
    got, answer = await through(post(form, *lines), {"api_key": OWN}, [CLIENT])
    assert not got
    assert answer.status == 401
    assert "unknown_key" in answer.body.decode()
    error = json.loads(answer.body)
    assert error.get("type") == "error" if form == "anthropic-messages" else "error" in error
    assert OWN not in answer.body.decode()


@pytest.mark.parametrize("target", ["/v1/models", "/v1/messages/count_tokens", "/provider/v1/files"])
async def test_other_paths_need_a_key_too(target: str) -> None:
    got, answer = await through(request("GET", target), {"api_key": OWN}, [CLIENT])
    assert (got, answer.status) == ([], 401)
    got, answer = await through(request("GET", target, f"x-api-key: {CLIENT}"), {"api_key": OWN}, [CLIENT])
    assert answer.status == 200
    assert OWN in repr(credentials(got[0]))
    assert CLIENT not in repr(got[0])


@pytest.mark.parametrize("body", [b"no json", b'{"model": 7}', b"[]"])
async def test_body_that_can_not_be_read_needs_a_key_too(body: bytes) -> None:
    got, answer = await through(request("POST", "/v1/chat/completions", body=body), {"api_key": OWN}, [CLIENT])
    assert (got, answer.status) == ([], 401)


async def test_upstream_without_a_key_gets_the_clients_credentials_whatever_they_are() -> None:
    line = "authorization: Bearer sk-of-the-client"
    got, answer = await through(post("openai-chat", line, query="?key=kept"), {}, [])
    assert answer.status == 200
    assert credentials(got[0]) == {"authorization": "Bearer sk-of-the-client"}
    assert got[0].line == "POST /v1/chat/completions?key=kept HTTP/1.1"


async def test_only_upstreams_with_a_key_ask_for_one() -> None:
    async with remembering() as (url, got):
        upstreams = {
            "open": {"base_url": url, "formats": ["openai-chat"]},
            "paid": {"base_url": url, "formats": ["openai-chat"], "models": ["paid-*"], "api_key": OWN},
        }
        async with compactd(configured("", upstreams=upstreams, auth={"keys": [CLIENT]})) as proxy:
            chat = b'{"model": "%b", "messages": []}'
            assert (await proxy.ask(request("POST", "/v1/chat/completions", body=chat % b"free-1"))).status == 200
            assert (await proxy.ask(request("POST", "/v1/chat/completions", body=chat % b"paid-1"))).status == 401
            assert (await proxy.ask(request("POST", "/paid/v1/chat/completions", body=chat % b"free-1"))).status == 401
            keyed = request("POST", "/v1/chat/completions", f"api-key: {CLIENT}", body=chat % b"paid-1")
            assert (await proxy.ask(keyed)).status == 200
    assert [credentials(one) for one in got] == [{}, {"authorization": f"Bearer {OWN}"}]


# Keys with a scope

CLIENTS = {
    "ann": {"key": "ck-ann", "policy": "second", "upstreams": ["paid"]},
    "bob": {"key": "ck-bob", "upstreams": ["other"]},
    "eve": {"key": "ck-eve"},
}


async def asked_as(key: str, target: str = "/v1/chat/completions", *lines: str) -> tuple[list[Taken], Answer]:
    async with remembering() as (url, got):
        upstreams = {
            "paid": {"base_url": url, "formats": ["openai-chat"], "api_key": OWN},
            "other": {
                "base_url": url,
                "formats": ["anthropic-messages"],
                "models": ["o-*"],
                "api_key": "sk-other",
            },
            "open": {"base_url": url, "formats": ["gemini"]},
        }
        policies = [{"name": "first"}, {"name": "second", "mode": "off"}]
        settings = configured("", upstreams=upstreams, policies=policies, auth={"keys": [CLIENT], "clients": CLIENTS})
        async with compactd(settings) as proxy:
            body = b'{"model": "o-1", "messages": [{"role": "user", "content": "Hi."}]}'
            answer = await proxy.ask(request("POST", target, f"authorization: Bearer {key}", *lines, body=body))
    return got, answer


@pytest.mark.parametrize(
    ("key", "target", "status", "code"),
    [
        ("ck-ann", "/v1/chat/completions", 200, ""),
        ("ck-ann", "/other/v1/messages", 403, "upstream_not_allowed"),
        ("ck-ann", "/v1/messages", 403, "upstream_not_allowed"),
        ("ck-ann", "/other/v1/models", 403, "upstream_not_allowed"),
        ("ck-bob", "/v1/chat/completions", 403, "upstream_not_allowed"),
        ("ck-bob", "/v1/messages", 200, ""),
        ("ck-eve", "/v1/messages", 200, ""),
        (CLIENT, "/v1/chat/completions", 200, ""),
        ("ck-ann2", "/v1/chat/completions", 401, "unknown_key"),
    ],
)
async def test_a_key_is_good_for_its_upstreams(key: str, target: str, status: int, code: str) -> None:
    got, answer = await asked_as(key, target)
    assert (answer.status, len(got)) == (status, 1 if status == 200 else 0)
    assert code in answer.body.decode()
    assert OWN not in answer.body.decode()


@pytest.mark.parametrize(
    ("key", "line", "status", "reason"),
    [
        ("ck-ann", "x-none: 1", 200, "mode_off"),
        ("ck-ann", "x-compactd-policy: second", 200, "mode_off"),
        ("ck-ann", "x-compactd-policy: first", 403, "policy_not_allowed"),
        ("ck-eve", "x-none: 1", 200, "below_threshold"),
        ("ck-eve", "x-compactd-policy: second", 200, "mode_off"),
    ],
)
async def test_a_key_has_its_policy(key: str, line: str, status: int, reason: str) -> None:
    _, answer = await asked_as(key, "/paid/v1/chat/completions", line)
    assert (answer.status, answer["x-compactd-reason"]) == (status, reason)


@pytest.mark.parametrize("key", ["ck-ann", "ck-eve", CLIENT])
async def test_a_key_of_ours_never_reaches_a_provider(key: str) -> None:
    for target in (PATHS["gemini"], "/open/v1beta/models"):
        got, answer = await asked_as(key, target)
        assert (got, answer.status) == ([], 401)
        assert "own_key" in json.dumps(json.loads(answer.body))


# Without keys, on a loopback address: whoever can connect spends the key, and that includes pages in a browser


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["host: 127.0.0.1:8787"], 200),
        (["host: LOCALHOST"], 200),
        (["host: [::1]:8787"], 200),
        (["host: llm.example.com"], 200),  # listen.public_url
        (["host: 127.0.0.1:8787", "origin: http://localhost:3000"], 200),
        (["host: 127.0.0.1:8787", "origin: app://chat"], 200),
        (["host: evil.test:8787"], 403),  # DNS rebinding
        (["host: evil.test:8787", "origin: http://evil.test:8787"], 403),
        (["host: 127.0.0.1:8787", "origin: http://evil.test"], 403),
        (["host: 127.0.0.1:8787", "origin: https://localhost.evil.test"], 403),
        (["host: 127.0.0.1:8787", "origin: null"], 403),
        (["host: ["], 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_web_page_can_spend_a_key_that_nobody_is_asked_for(lines: list[str], status: int, method: str) -> None:
    async with remembering() as (url, got):
        upstreams = {"provider": {"base_url": url, "formats": list(FORMATS), "api_key": OWN}}
        settings = configured("", upstreams=upstreams, listen={"public_url": "https://llm.example.com/x"})
        async with compactd(settings) as proxy:
            path, body = (PATHS["openai-chat"], b'{"messages": []}') if method == "POST" else ("/v1/files", b"")
            data = request(method, path, *lines, body=body).replace(b"host: compactd.test\r\n", b"", 1)
            answer = await proxy.ask(data)
    assert (answer.status, len(got)) == (status, int(status == 200))
    assert ("not_at_home" in answer.body.decode()) == (status == 403)


async def test_a_stranger_is_refused_before_its_body_has_come() -> None:
    """Only a body tells the model, and so perhaps another upstream; where all of them ask for a key, nobody waits for it."""
    upstreams = {
        "paid": {"base_url": "http://127.0.0.1:9", "formats": ["openai-chat"], "api_key": OWN},
        "open": {"base_url": "http://127.0.0.1:9", "formats": ["gemini"]},
    }
    head = "POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{{"
    async with compactd(configured("", upstreams=upstreams, auth={"keys": [CLIENT]})) as proxy:
        client = await proxy.connect()
        await client.send(head.format(PATHS["openai-chat"]).encode())
        assert (await client.answer()).status == 401
        assert proxy.app.relay.held == 0
        client = await proxy.connect()
        await client.send(head.format(f"/open{PATHS['openai-chat']}").encode())
        await until(lambda: proxy.app.relay.held == 1)


async def test_a_model_decides_whose_key_it_is_on_other_paths_too() -> None:
    """Counting and embedding: the key in the request is that provider's, and no business of the format's first one."""
    async with remembering() as (url, got), remembering() as (other, theirs):
        upstreams = {
            "one": {"base_url": url, "formats": ["anthropic-messages", "openai-chat"]},
            "other": {"base_url": other, "formats": ["anthropic-messages", "openai-chat"], "models": ["glm-*"]},
        }
        body, kind = b'{"model": "glm-5", "input": "x"}', "content-type: application/json; charset=utf-8"
        sent = [
            request("POST", "/v1/messages/count_tokens", "x-api-key: k", kind, body=body),
            request("POST", "/v1/embeddings", "authorization: Bearer k", kind, body=body),
            request("POST", "/v1/embeddings", kind, "transfer-encoding: chunked", length=False)
            + chunks([body[:9], body[9:]]),
            request("POST", "/v1/embeddings", kind, "content-encoding: gzip", body=gzip.compress(body)),
        ]
        usual = [
            request("POST", "/v1/embeddings", kind, body=body.replace(b"glm", b"gpt")),
            request("POST", "/v1/embeddings", kind, body=b"no json"),
            request("POST", "/v1/files", "content-type: text/plain", body=body),
            request("POST", "/one/v1/embeddings", kind, body=body),
            request("GET", "/v1/models"),
        ]
        settings = Settings(upstreams=upstreams, store={"url": "memory://"})
        async with compactd(settings) as proxy:
            for data in (*sent, *usual):
                assert (await proxy.ask(data)).told == ("passed", "not_a_conversation")
    assert len(theirs) == len(sent)
    assert [one.body for one in theirs[:3]] == [body] * 3
    assert len(got) == len(usual)


async def test_a_body_that_only_names_a_model_is_bounded_and_may_break_off() -> None:
    async with remembering() as (url, got), remembering() as (other, theirs):
        upstreams = {
            "one": {"base_url": url, "formats": ["openai-chat"]},
            "other": {"base_url": other, "formats": ["openai-chat"], "models": ["glm-*"]},
        }
        settings = Settings(upstreams=upstreams, store={"url": "memory://"}, limits={"max_body_bytes": 1_000})
        async with compactd(settings) as proxy:
            body = b'{"model": "glm-5", "input": "' + b"x" * 200_000 + b'"}'
            refused = await proxy.ask(request("POST", "/v1/embeddings", "content-type: application/json", body=body))
            assert (refused.status, json.loads(refused.body)["error"]["code"]) == (413, "body_too_large")
            named = request("POST", "/other/v1/embeddings", "content-type: application/json", body=body)
            assert (await proxy.ask(named)).told == ("passed", "not_a_conversation")
            client = await proxy.connect()
            await client.send(request("POST", "/v1/embeddings", "content-type: application/json", body=body[:500])[:-9])
            await until(lambda: proxy.app.relay.held)
            client.leave()
            await until(lambda: not proxy.app.relay.inflight)
            assert proxy.app.relay.held == 0
    assert (got, [one.body for one in theirs]) == ([], [body])
