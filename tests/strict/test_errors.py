"""Errors in the shapes and words that clients match on."""

from __future__ import annotations

import pytest

from .errors import VENDORS, error, overflow


def test_each_format_has_its_shape() -> None:
    assert error("openai-chat", 400, "no", param="messages", code="c") == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "messages", "code": "c"}
    }
    assert error("anthropic-messages", 429, "slow down")["error"] == {
        "type": "rate_limit_error",
        "message": "slow down",
    }
    assert error("anthropic-messages", 529, "busy")["error"]["type"] == "overloaded_error"
    assert error("gemini", 404, "no") == {"error": {"code": 404, "message": "no", "status": "NOT_FOUND"}}
    assert error("openai-responses", 500, "oops")["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("form", "rule", "words"),
    [
        (
            "openai-chat",
            "E1",
            "This model's maximum context length is 100 tokens. However, your messages resulted in 200",
        ),
        ("openai-responses", "E2", "Your input exceeds the context window of this model"),
        ("anthropic-messages", "E4", "prompt is too long: 200 tokens > 100 maximum"),
        ("gemini", "E8", "The input token count (200) exceeds the maximum number of tokens allowed (100)."),
    ],
)
def test_overflow_is_said_as_each_provider_says_it(form: str, rule: str, words: str) -> None:
    body = overflow(form, 200, 100)
    assert words in body["error"]["message"]
    code = "context_length_exceeded" if rule in ("E1", "E2") else 400 if rule == "E8" else None
    assert body["error"].get("code") == code


@pytest.mark.parametrize("vendor", sorted(VENDORS))
def test_vendors_say_it_in_their_own_words(vendor: str) -> None:
    said = overflow("openai-chat", 200, 100, vendor)["error"]
    others = [overflow("openai-chat", 200, 100, other)["error"] for other in VENDORS - {vendor}]
    assert said not in others
    assert "{" not in said["message"]


def test_E12_llama_cpp_gives_the_figures_apart() -> None:
    said = overflow("openai-chat", 200, 100, "llama.cpp")["error"]
    assert (said["type"], said["n_prompt_tokens"], said["n_ctx"]) == ("exceed_context_size_error", 200, 100)
