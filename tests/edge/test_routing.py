"""Path -> upstream, what is sent there, and whether it carries a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from app.edge.routing import Router, climbs, is_own
from app.settings import Settings

THREE: dict[str, Any] = {
    "openai": {"base_url": "https://api.openai.com", "formats": ["openai-chat", "openai-responses"]},
    "anthropic": {"base_url": "https://api.anthropic.com", "formats": ["anthropic-messages"]},
    "gemini": {"base_url": "https://generativelanguage.googleapis.com", "formats": ["gemini"]},
}
AZURE = {"azure": {"base_url": "https://x.openai.azure.com", "formats": ["openai-chat", "openai-responses"]}}
FIREWORKS = {
    "fireworks": {
        "base_url": "https://api.fireworks.ai/inference",
        "formats": ["openai-chat"],
        "models": ["accounts/fireworks/*", "fw-?"],
    }
}


def router(*upstreams: dict[str, Any]) -> Router:
    return Router(Settings(upstreams={name: options for group in upstreams for name, options in group.items()}))


def routed(path: str, *upstreams: dict[str, Any], anthropic: bool = False) -> tuple[str, str, str, str, str, bool]:
    """(upstream, path, format of the conversation, model in the path, format of our own answers, named)"""
    route = router(*(upstreams or (THREE,))).route(path.encode(), anthropic)
    target = route.target
    return (
        route.upstream,
        route.path.decode(),
        target.format if target else "",
        target.model if target else "",
        route.format,
        route.named,
    )


@pytest.mark.parametrize(
    ("path", "upstream", "form", "model"),
    [
        ("/v1/chat/completions", "openai", "openai-chat", ""),
        ("/v1/responses", "openai", "openai-responses", ""),
        ("/v1/messages", "anthropic", "anthropic-messages", ""),
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini", "gemini", "gemini-2.5-pro"),
        ("/v1/models/gemini-2.5-pro:streamGenerateContent", "gemini", "gemini", "gemini-2.5-pro"),
        ("/models/gemini-2.5-pro:generateContent", "gemini", "gemini", "gemini-2.5-pro"),
        ("/v1beta/models/gemini-2.5-pro%3AgenerateContent", "gemini", "gemini", "gemini-2.5-pro"),
        ("/openai/deployments/my-gpt/chat/completions", "openai", "openai-chat", "my-gpt"),
        ("/openai/deployments/my%20gpt/chat/completions", "openai", "openai-chat", "my gpt"),
    ],
)
def test_conversations_go_by_their_format(path: str, upstream: str, form: str, model: str) -> None:
    assert routed(path) == (upstream, path, form, model, form, False)


@pytest.mark.parametrize(
    ("path", "upstream", "form"),
    [
        ("/v1/models", "openai", "openai-chat"),
        ("/v1/embeddings", "openai", "openai-chat"),
        ("/v1/files/a%2Fb", "openai", "openai-chat"),
        ("/v1/responses/resp_1/cancel", "openai", "openai-chat"),
        ("/v1/responses/compact", "openai", "openai-chat"),
        ("/v1/responses/input_tokens", "openai", "openai-chat"),
        ("/v1/messages/count_tokens", "anthropic", "anthropic-messages"),
        ("/v1/messages/batches", "anthropic", "anthropic-messages"),
        ("/v1/complete", "anthropic", "anthropic-messages"),
        ("/v1beta/models", "gemini", "gemini"),
        ("/v1beta/models/gemini-2.5-pro:countTokens", "gemini", "gemini"),
        ("/v1beta/cachedContents", "gemini", "gemini"),
        ("/upload/v1beta/files", "gemini", "gemini"),
        ("/anything/else", "openai", "openai-chat"),
        ("/", "openai", "openai-chat"),
    ],
)
def test_other_paths_go_by_their_family(path: str, upstream: str, form: str) -> None:
    assert routed(path) == (upstream, path, "", "", form, False)


def test_the_anthropic_header_says_whose_models_are_asked_for() -> None:
    assert routed("/v1/models", anthropic=True)[0] == "anthropic"
    assert routed("/v1/files", anthropic=True)[0] == "anthropic"
    assert routed("/v1/chat/completions", anthropic=True)[0] == "openai"


@pytest.mark.parametrize(
    ("path", "upstream", "rest", "form", "shape"),
    [
        ("/anthropic/v1/messages", "anthropic", "/v1/messages", "anthropic-messages", "anthropic-messages"),
        ("/anthropic/v1/models", "anthropic", "/v1/models", "", "anthropic-messages"),
        ("/anthropic/v1/chat/completions", "anthropic", "/v1/chat/completions", "openai-chat", "openai-chat"),
        ("/openai/v1/responses", "openai", "/v1/responses", "openai-responses", "openai-responses"),
        ("/openai/v1/files/a%2Fb", "openai", "/v1/files/a%2Fb", "", "openai-chat"),
        ("/gemini/v1beta/models/g:generateContent", "gemini", "/v1beta/models/g:generateContent", "gemini", "gemini"),
        ("/gemini/", "gemini", "/", "", "gemini"),
        ("/fireworks/v1/chat/completions", "fireworks", "/v1/chat/completions", "openai-chat", "openai-chat"),
    ],
)
def test_an_upstreams_name_in_front_is_taken_off(path: str, upstream: str, rest: str, form: str, shape: str) -> None:
    assert routed(path, THREE, FIREWORKS) == (upstream, rest, form, "g" if form == "gemini" else "", shape, True)


def test_a_name_alone_or_with_more_letters_is_no_prefix() -> None:
    assert routed("/anthropic")[:2] == ("openai", "/anthropic")
    assert routed("/anthropic2/v1/messages")[1] == "/anthropic2/v1/messages"
    assert routed("/Anthropic/v1/models")[1] == "/Anthropic/v1/models"


@pytest.mark.parametrize(
    "rest", ["/openai/deployments/d/chat/completions", "/openai/v1/chat/completions", "/openai/v1/responses"]
)
def test_azure_by_name(rest: str) -> None:
    upstream, path, form, _, _, named = routed(f"/azure{rest}", THREE, AZURE)
    assert (upstream, path, named) == ("azure", rest, True)
    assert form == ("openai-responses" if "responses" in rest else "openai-chat")


def test_azures_deployments_are_never_the_upstream_openai_by_prefix() -> None:
    upstream, path, form, _, _, named = routed("/openai/deployments/d/chat/completions", AZURE, THREE)
    assert (upstream, path, form, named) == ("azure", "/openai/deployments/d/chat/completions", "openai-chat", False)
    assert routed("/openai/v1/chat/completions", AZURE)[:3] == ("azure", "/openai/v1/chat/completions", "openai-chat")


def test_the_first_upstream_of_a_format_is_its_default_and_one_without_models_before_one_with() -> None:
    assert routed("/v1/chat/completions", FIREWORKS, AZURE, THREE)[0] == "azure"
    assert routed("/v1/chat/completions", FIREWORKS)[0] == "fireworks"
    assert routed("/v1/messages", FIREWORKS) == ("fireworks", "/v1/messages", "", "", "anthropic-messages", False)


def test_a_conversation_in_a_format_that_none_of_several_lists_goes_to_none_of_them() -> None:
    assert routed("/v1/messages", FIREWORKS, AZURE) == ("", "/v1/messages", "", "", "anthropic-messages", False)
    assert routed("/v1/models", FIREWORKS, AZURE)[0] == "azure"
    assert routed("/fireworks/v1/messages", FIREWORKS, AZURE)[0] == "fireworks"


def test_no_upstream_at_all() -> None:
    assert Router(Settings(upstreams={})).route(b"/v1/models", False).upstream == ""


@pytest.mark.parametrize(
    ("path", "model", "upstream"),
    [
        ("/v1/chat/completions", "accounts/fireworks/models/x", "fireworks"),
        ("/v1/chat/completions", "fw-1", "fireworks"),
        ("/v1/chat/completions", "fw-10", "openai"),
        ("/v1/chat/completions", "", "openai"),
        ("/v1/responses", "fw-1", "openai"),
        ("/v1/messages", "fw-1", "anthropic"),
        ("/openai/v1/chat/completions", "fw-1", "openai"),
        ("/fireworks/v1/chat/completions", "gpt-4o", "fireworks"),
        ("/v1/embeddings", "fw-1", "fireworks"),
        ("/v1/messages/count_tokens", "fw-1", "anthropic"),
    ],
)
def test_a_models_glob_wins_over_the_format_but_not_over_a_name(path: str, model: str, upstream: str) -> None:
    routes = router(THREE, FIREWORKS)
    route = routes.route(path.encode(), False)
    assert route is not None
    assert routes.by_model(route, model) == upstream


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("/v1/chat/completions", True),
        ("/v1/responses", False),
        ("/v1/messages", False),
        ("/v1/embeddings", True),
        ("/v1/messages/count_tokens", False),
        ("/openai/v1/chat/completions", False),
        ("/fireworks/v1/chat/completions", False),
        ("/openai/deployments/gpt-4o/chat/completions", False),
    ],
)
def test_where_only_the_model_in_a_body_can_tell(path: str, needed: bool) -> None:
    routes = router(THREE, FIREWORKS)
    assert routes.needs_model(routes.route(path.encode(), False)) is needed
    assert not router(THREE).needs_model(router(THREE).route(path.encode(), False))
    alone = router(FIREWORKS)
    assert not alone.needs_model(alone.route(path.encode(), False))


def test_a_model_in_a_path_without_a_conversation() -> None:
    other = {"other": {"base_url": "https://x.test", "formats": ["gemini", "openai-chat"], "models": ["gem-*"]}}
    for path, upstream in (
        ("/v1beta/models/gem-1:countTokens", "other"),
        ("/v1beta/models/gem-1%3AembedContent", "other"),
        ("/v1beta/models/gemini-2.5-pro:countTokens", "gemini"),
        ("/openai/deployments/gem-1/embeddings", "other"),
        ("/gemini/v1beta/models/gem-1:countTokens", "gemini"),
    ):
        assert routed(path, THREE, other)[0] == upstream


@pytest.mark.parametrize(
    "path", ["/%FF/v1", "/\xe4", "//", "/..", "/v1/%2e%2e/messages", "no-slash", "*", "", "/anthropic//v1/messages"]
)
def test_odd_paths_go_somewhere(path: str) -> None:
    raw = path.encode("latin-1")
    route = router(THREE).route(raw, False)
    assert route is not None
    assert route.path == raw.removeprefix(b"/anthropic")


def test_own_paths() -> None:
    assert all(
        map(is_own, ["/metrics", "/livez", "/readyz", "/healthz", "/compactd", "/compactd/", "/compactd/api/sessions"])
    )
    assert not any(map(is_own, ["/", "/metrics/", "/v1/metrics", "/compactdx", "/v1/models", "/livez2"]))


def test_long_paths_are_routed_and_not_remembered() -> None:
    one = router(THREE)
    for number in range(50):
        route = one.route(b"/v1/files/%d" % number + b"x" * 1_000, False)
        assert route is not None
        assert route.upstream == "openai"
    assert one._remembered.cache_info().currsize == 0
    one.route(b"/v1/files/1", False)
    assert one._remembered.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("path", "climbing"),
    [
        ("/..", True), ("/a/../../b", True), ("/a/%2e%2E/..", True), ("/.%2e/", True), ("/a%2f..%2f..%2fb", True), ("/..\\b", True),
        ("/%252e%252e/", True), ("/a//../..", True), ("/a/./../..", True), ("/a/../b", False), ("/a..b", False), ("/...", False),
        ("/.b", False), ("/./b", False), ("/models/gemini-2.5:x", False),
    ],
)  # fmt: skip
def test_paths_that_climb(path: str, climbing: bool) -> None:
    assert climbs(path.encode()) is climbing
