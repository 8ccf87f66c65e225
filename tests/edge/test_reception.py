"""What a request is found to be: model, upstream, policy, mode, tenant, session; and what is not looked into."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from app.edge.exchange import Exchange, Refused, Wiring
from app.edge.headers import Headers, digest
from app.edge.reception import admit, ask_of, authenticate, direct_unread
from app.edge.record import Record
from app.edge.routing import Router
from app.errors import NotCompactable
from app.registry import Registry
from app.request import Ask
from app.settings import Settings
from tests.edge.talks import Talk
from tests.edge.wire import PATHS

UPSTREAMS = {
    "all": {"base_url": "http://all.test", "formats": list(PATHS), "quirks": ["alternating_roles"]},
    "some": {"base_url": "http://some.test", "formats": ["openai-chat"], "models": ["some-*"]},
}
POLICIES = [
    {"name": "team", "match": {"headers": {"x-team": "agents-*"}}, "trigger_threshold": 7},
    {"name": "claude", "match": {"models": ["claude-*"], "formats": ["anthropic-messages"]}},
    {"name": "some", "match": {"upstreams": ["some"]}},
    {"name": "default"},
]


async def nothing(*_: Any) -> Any:
    raise AssertionError("nothing is received or sent here")


def exchange(path: str, body: bytes = b"", *headers: tuple[str, str], query: bytes = b"", **sections: Any) -> Exchange:
    settings = Settings(**{"upstreams": UPSTREAMS, "policies": POLICIES, **sections})
    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"method": "POST", "raw_path": path.encode(), "query_string": query, "headers": raw}
    keys = tuple((digest(key.get_secret_value()), None) for key in settings.auth.keys)
    wiring = Wiring(settings, Router(settings), Registry(settings.models, lambda _: None), keys)
    found = Exchange(scope, nothing, nothing, wiring, Record(), Headers(raw))
    found.route = wiring.router.route(path.encode(), False)
    found.raw = found.body = body
    return found


def asked(path: str, body: Any, *headers: tuple[str, str], **more: Any) -> Ask:
    found = exchange(path, body if isinstance(body, bytes) else json.dumps(body).encode(), *headers, **more)
    assert found.route is not None
    assert found.route.target is not None
    ask = ask_of(found, found.route, found.route.target)
    assert found.record.upstream == ask.upstream == found.route.upstream
    return ask


@pytest.mark.parametrize("form", PATHS)
def test_an_ask_holds_what_the_compactor_needs(form: str) -> None:
    talk = Talk(form).ask("Hi.").say("Hello.").ask("And now?")
    ask = asked(PATHS[form], talk.body, ("x-api-key", "k"), query=b"a=b")
    assert (ask.format, ask.upstream, ask.path, ask.query) == (form, "all", PATHS[form], b"a=b")
    assert [json.loads(bytes(memoryview(raw))) for raw in ask.opened.raws] == talk.items
    assert ask.client_model == ("gemini-2.5-flash" if form == "gemini" else talk.body["model"])
    assert ask.model.known
    assert "alternating_roles" in ask.model.quirks
    assert ask.headers == [(b"x-api-key", b"k")]


def test_a_models_upstream() -> None:
    ask = asked("/v1/chat/completions", {"model": "some-1", "messages": []})
    assert (ask.upstream, ask.policy.name) == ("some", "some")
    assert "alternating_roles" not in ask.model.quirks


def test_azures_deployment_is_the_model_where_the_body_names_none() -> None:
    path = "/openai/deployments/gpt-4o/chat/completions"
    assert (asked(path, {"messages": []}).client_model, asked(path, {"messages": []}).model.known) == ("gpt-4o", True)
    assert asked(path, {"model": "gpt-4.1", "messages": []}).client_model == "gpt-4.1"
    own = asked("/openai/deployments/some-of-ours/chat/completions", {"messages": []})
    assert (own.upstream, own.client_model) == ("some", "some-of-ours")


@pytest.mark.parametrize("model", [None, 7, {"a": 1}, ""])
def test_model_that_is_none(model: Any) -> None:
    ask = asked("/v1/chat/completions", {"model": model, "messages": []})
    assert (ask.client_model, ask.model.known, ask.model.context_window) == ("", False, 128_000)


def test_policies() -> None:
    claude = {"model": "claude-sonnet-4-5", "messages": []}
    assert asked("/v1/messages", claude).policy.name == "claude"
    assert asked("/v1/chat/completions", claude).policy.name == "default"
    assert asked("/v1/messages", claude, ("x-team", "agents-a")).policy.trigger_threshold == 7
    assert asked("/v1/messages", claude, ("x-compactd-policy", "some")).policy.name == "some"
    with pytest.raises(Refused, match="no policy named 'other'") as refused:
        asked("/v1/messages", claude, ("x-compactd-policy", "other"))
    assert (refused.value.status, refused.value.code) == (400, "unknown_policy")


@pytest.mark.parametrize(
    ("auth", "key", "told"),
    [({}, None, True), ({"keys": ["k"]}, None, False), ({"keys": ["k"]}, "sk-own", True)],
    ids=["no keys", "a stranger", "a client"],
)
def test_a_misspelt_policy_is_guessed_for_those_who_may_know(auth: Any, key: str | None, told: bool) -> None:
    upstreams = {"all": {**UPSTREAMS["all"], **({"api_key": key} if key else {})}}
    policies = [{"name": "claude"}]
    credentials = ("x-api-key", "k" if key else "sk-of-the-provider")
    sections = {"auth": auth, "upstreams": upstreams, "policies": policies}
    with pytest.raises(Refused) as refused:
        asked("/v1/messages", {"messages": []}, credentials, ("x-compactd-policy", "cluade"), **sections)
    assert ("did you mean claude?" in str(refused.value)) is told
    assert ("claude" in str(refused.value)) is told


@pytest.mark.parametrize("mode", ["on", "off", "observe"])
def test_modes(mode: str) -> None:
    ask = asked("/v1/messages", {"model": "claude-sonnet-4-5", "messages": []}, ("x-compactd-mode", mode))
    assert (ask.policy.mode, ask.policy.name) == (mode, "claude")


def test_mode_that_is_none() -> None:
    with pytest.raises(Refused) as refused:
        asked("/v1/messages", {"messages": []}, ("x-compactd-mode", "ON"))
    assert (refused.value.status, refused.value.code) == (400, "unknown_mode")


def test_sessions() -> None:
    claude = {"model": "claude-sonnet-4-5", "messages": [], "metadata": {"user_id": "user_1"}}
    assert asked("/v1/messages", claude, ("x-compactd-session", "mine")).session == "mine"
    assert asked("/v1/messages", claude).session.startswith("s-")
    assert asked("/v1/chat/completions", {"messages": [], "prompt_cache_key": "a"}).session.startswith("s-")
    assert asked("/v1/responses", {"input": []}, ("session_id", "a")).session.startswith("s-")
    assert asked("/v1/responses", {"input": []}).session == ""


def test_tenants() -> None:
    body = {"messages": []}
    assert (
        asked(PATHS["gemini"], {"contents": []}, query=b"key=a").tenant
        != asked(PATHS["gemini"], {"contents": []}, query=b"key=b").tenant
    )
    assert (
        asked("/v1/messages", body, ("x-api-key", "a")).tenant
        == asked("/v1/messages", body, ("authorization", "Bearer a")).tenant
    )


def test_compressed() -> None:
    talk = Talk("openai-chat").ask("Hi.")
    ask = asked("/v1/chat/completions", gzip.compress(json.dumps(talk.body).encode()), ("content-encoding", "gzip"))
    assert len(ask.opened.raws) == 1


MANY = b'{"messages": [{"content": [' + b"{}," * (3 << 20) + b"{}]}]}"


@pytest.mark.parametrize(
    ("body", "headers", "sections", "reason"),
    [
        (b"no json", [], {}, "not_json"),
        (b"", [], {}, "not_json"),
        (b"\xff\xfe{}", [], {}, "not_utf8"),
        (b"{}", [], {}, "no_history"),
        (b'{"messages": {}}', [], {}, "no_history"),
        (b'{"messages": []}', [("content-encoding", "compress")], {}, "unknown_coding"),
        (b'{"messages": []}', [("content-encoding", "gzip")], {}, "bad_coding"),
        (b'{"messages": []}', [], {"limits": {"max_body_bytes": 15}}, "too_large"),
        (b'{"messages": [1, 2, 3]}', [], {"limits": {"max_items": 2}}, "too_many_items"),
        pytest.param(MANY, [], {}, "too_many_items", id="too many values"),
        (b'{"messages": []}', [], {"policies": [{"match": {"models": ["x"]}}]}, "no_policy"),
        (b'{"messages": []}', [("authorization", "AWS4-HMAC-SHA256 Credential=a")], {}, "signed"),
        (b'{"messages": []}', [("content-digest", "sha-256=:a:")], {}, "signed"),
        (b'{"messages": []}', [("x-amz-content-sha256", "a")], {}, "signed"),
    ],
)
def test_what_is_not_looked_into(
    body: bytes, headers: list[tuple[str, str]], sections: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotCompactable, match=reason):
        asked("/v1/chat/completions", body, *headers, **sections)


@pytest.mark.parametrize(
    ("path", "body", "headers", "sections"),
    [
        ("/v1/chat/completions", b'{"model": "some-1"}', [], {}),
        ("/v1/chat/completions", b'{"model": "some-1", "messages": null}', [], {}),
        ("/v1/chat/completions", b'{"messages": [], "model": "some-1"}', [("content-digest", "a")], {}),
        ("/v1/chat/completions", b'{"messages": [], "model": "some-1"}', [], {"limits": {"max_body_bytes": 9}}),
        ("/v1/chat/completions", b'{"messages": [1, 2], "model": "some-1"}', [], {"limits": {"max_items": 1}}),
        ("/v1/chat/completions", gzip.compress(b'{"model": "some-1"}', mtime=0), [("content-encoding", "gzip")], {}),
        ("/openai/deployments/some-1/chat/completions", b"no json", [], {}),
        ("/openai/deployments/some-1/chat/completions", b'{"messages": [1], "model": "\xff"}', [], {}),
    ],
)
def test_the_model_decides_who_is_asked_though_the_body_is_not_looked_into(
    path: str, body: bytes, headers: list[tuple[str, str]], sections: dict[str, Any]
) -> None:
    """Its key is meant for that provider: a request of the Responses API needs no history at all."""
    found = exchange(path, body, *headers, **sections)
    assert found.route is not None
    assert found.route.target is not None
    with pytest.raises(NotCompactable):
        ask_of(found, found.route, found.route.target)
    assert (found.route.upstream, found.record.upstream) == ("some", "some")


def test_no_key_goes_to_a_provider_by_guess() -> None:
    """Of a body that is passed on as it comes, nobody sees the model."""
    for path, upstream in (
        ("/v1/messages", "all"),
        ("/v1/responses", "all"),
        ("/all/v1/chat/completions", "all"),
        ("/some/v1/chat/completions", "some"),
        ("/openai/deployments/some-1/chat/completions", "some"),
        ("/openai/deployments/gpt-4o/chat/completions", "all"),
    ):
        found = exchange(path)
        assert found.route is not None
        assert found.route.target is not None
        direct_unread(found, found.route, True)
        assert (found.route.upstream, found.record.upstream) == (upstream, upstream)
    found = exchange("/v1/chat/completions")
    assert found.route is not None
    assert found.route.target is not None
    for too_large, told in ((True, (413, "body_too_large")), (False, (503, "no_room"))):
        with pytest.raises(Refused) as refused:
            direct_unread(found, found.route, too_large)
        assert (refused.value.status, refused.value.code) == told


def test_admission() -> None:
    admit(exchange("/v1/messages"), refusing=False, inflight=10_000)
    for headers, refusing, inflight, code in (
        ([("upgrade", "WebSocket")], False, 1, "websocket_unsupported"),
        ([], True, 1, "draining"),
        ([], False, 10_001, "too_many_requests_inflight"),
    ):
        with pytest.raises(Refused) as refused:
            admit(exchange("/v1/messages", b"", *headers), refusing, inflight)
        assert refused.value.code == code


def test_authentication_is_only_where_keys_are_configured() -> None:
    keyed = {"all": {**UPSTREAMS["all"], "api_key": "sk-own"}, "some": UPSTREAMS["some"]}
    authenticate(exchange("/v1/messages", upstreams=keyed), "all")
    authenticate(exchange("/v1/messages", upstreams=UPSTREAMS), "all")
