"""Which path is which API."""

from __future__ import annotations

import pytest

from .routes import Route, form_of, route

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", Route("openai-chat", "generate")),
        ("/openai/v1/chat/completions", Route("openai-chat", "generate")),
        ("/openai/deployments/d1/chat/completions", Route("openai-chat", "generate", "d1", deployment=True)),
        ("/v1/responses", Route("openai-responses", "generate")),
        ("/v1/responses/compact", Route("openai-responses", "compact")),
        ("/v1/responses/input_tokens", Route("openai-responses", "count")),
        ("/v1/messages", Route("anthropic-messages", "generate")),
        ("/v1/messages/count_tokens", Route("anthropic-messages", "count")),
        ("/v1beta/models/gemini-3:generateContent", Route("gemini", "generate", "gemini-3")),
        ("/v1/models/gemini-3:streamGenerateContent", Route("gemini", "generate", "gemini-3", streams=True)),
        ("/models/gemini-3:countTokens", Route("gemini", "count", "gemini-3")),
    ],
)
def test_a_path_is_an_api(path: str, expected: Route) -> None:
    assert route("POST", path, NONE) == expected
    assert route("PUT", path, NONE) is None


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/chat/completions", "/v1/messages/", "/v1beta/models/g:embedContent"]
)
def test_other_paths_are_none(path: str) -> None:
    assert route("POST", path, NONE) is None


def test_models_follow_the_manners_of_the_caller() -> None:
    assert route("GET", "/v1/models", NONE) == Route("openai-chat", "models")
    assert route("GET", "/v1/models/m", frozenset({"anthropic-version"})) == Route("anthropic-messages", "models", "m")
    assert route("GET", "/v1beta/models", NONE) == Route("gemini", "models")
    assert form_of("/v1/files", frozenset({"x-goog-api-key"})) == "gemini"
    assert form_of("/v1/messages/batches", NONE) == "anthropic-messages"
    assert form_of("/v1/responses/x", NONE) == "openai-responses"
