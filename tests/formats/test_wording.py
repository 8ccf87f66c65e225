"""Overflows as providers word them (E1 to E18), refusals of a chat template (Q15), and agents' own summary requests (X10)."""

from __future__ import annotations

import json

import pytest

from app.formats.wording import asks_for_summary, in_request, is_refusal, lesson, overflow

SAYINGS = [
    (
        "E1",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
        128_000,
    ),
    (
        "E1",
        "Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 300000 tokens.",
        272_000,
    ),
    ("E2", "Your input exceeds the context window of this model. Please adjust your input and try again.", 0),
    ("E4", "prompt is too long: 213462 tokens > 200000 maximum", 200_000),
    (
        "E5",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        200_000,
    ),
    ("E7", "Input is too long for requested model.", 0),
    ("E8", "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1_048_575),
    ("E8", "The input token count exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    ("E9", "Please reduce the length of the messages or completion.", 0),
    (
        "E10",
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens",
        131_072,
    ),
    (
        "E11",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages",
        4_096,
    ),
    ("E11", "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4_096),
    ("E12", "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192),
    ("E13", "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens", 65_536),
    (
        "E14",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
    ),
    ("E15", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    ("E15", "prompt token count of 200000 exceeds the limit of 128000", 128_000),
    ("E15", "Your request exceeded model token limit: 262144 (requested: 300000)", 262_144),
    ("E15", "invalid params, context window exceeds limit (2013)", 0),
    ("E15", "The number of tokens to keep from the initial prompt is greater than the context length.", 0),
    ("E15", "Range of input length should be [1, 129024]", 129_024),
    ("E15", "The input (250000 tokens) is longer than the model's context length (200000 tokens).", 200_000),
    ("E15", "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000", 8_192),
    ("E16", "The prompt is too long: 262377, model maximum context length: 262143", 262_143),
]
OTHERS = [
    ("E18", 400, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1"),
    ("E18", 400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."),
    ("E18", 400, "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40"),
    (
        "E9",
        413,
        "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size",
    ),
    ("E9", 429, "Rate limit reached. Please reduce the length of the messages or completion."),
    ("E18", 401, "prompt is too long"),
]


def told(message: str, **more: object) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}}).encode()


@pytest.mark.parametrize(("message", "window"), [row[1:] for row in SAYINGS], ids=[row[0] for row in SAYINGS])
def test_E1_to_E16_sayings(message: str, window: int) -> None:
    assert overflow(400, told(message)) == window


@pytest.mark.parametrize(("status", "message"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_E9_E18_other_refusals(status: int, message: str) -> None:
    assert overflow(status, told(message)) is None


def test_E1_code_is_enough() -> None:
    assert overflow(400, told("Too much.", code="context_length_exceeded")) == 0


def test_E12_window_beside_the_message() -> None:
    assert overflow(400, told("too big", type="exceed_context_size_error", n_prompt_tokens=13392, n_ctx=8192)) == 8_192
    assert overflow(500, told("the request exceeds the available context size, try increasing it")) == 0


def test_E15_no_body_at_all() -> None:
    assert overflow(400, b"") == overflow(413, b" ") == 0
    assert overflow(500, b"") is overflow(422, b"") is overflow(401, b"") is None


def test_Q12_cause_wrapped_by_a_gateway() -> None:
    raw = told("too big", type="exceed_context_size_error", n_ctx=8192).decode()
    assert (
        overflow(400, json.dumps({"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}).encode())
        == 8_192
    )


def test_escapes_of_careful_encoders() -> None:
    assert overflow(400, rb'{"message":"prompt is too long: 213462 tokens \u003e 200000 maximum"}') == 200_000
    assert overflow(400, rb'{"message":"is longer than the model\u0027s context length (4096 tokens)"}') == 4_096


def test_request_quoted_far_behind_is_not_read() -> None:
    assert overflow(400, told("bad field " + "x" * 5_000 + " prompt is too long")) is None


@pytest.mark.parametrize(
    "text",
    [
        "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
        "  \nYour task is to create a detailed summary of the RECENT portion of the conversation",
        "Provide a detailed prompt for continuing our conversation above.",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    ],
)
def test_X10_summary_requests(text: str) -> None:
    assert asks_for_summary("", text)
    assert not asks_for_summary("", f"What does this mean: {text}")


def test_X10_named_by_the_system_prompt() -> None:
    assert asks_for_summary("You are a helpful AI assistant tasked with summarizing conversations.", "go")
    assert not asks_for_summary("You are a helpful AI assistant.", "Summarise this, please.")


@pytest.mark.parametrize(
    ("said", "alternates"),
    [
        ("Conversation roles must alternate user/assistant/user/assistant/...", True),
        (
            "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls",
            True,
        ),
        (
            'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
            True,
        ),
        ("Please ensure that multiturn requests alternate between user and model.", True),
        (
            "After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).",
            True,
        ),
        ("Unexpected role 'user' after role 'tool'", True),
        ("Jinja Exception: No user query found in messages.", False),
        ("Value is not callable: null at row 49, column 79:", False),
        ("the request exceeds the available context size, try increasing it", False),
    ],
)
def test_Q15_a_500_that_says_that_the_request_is_at_fault(said: str, alternates: bool) -> None:
    assert is_refusal(500, told(said))
    assert not is_refusal(503, told(said))
    assert lesson(500, told(said)) == lesson(400, told(said)) == ("alternating_roles" if alternates else "")


@pytest.mark.parametrize("said", ["The server had an error while processing your request.", "overloaded", ""])
def test_a_500_of_the_servers_own_is_no_refusal(said: str) -> None:
    assert not is_refusal(500, told(said))
    assert lesson(500, told(said)) == ""


@pytest.mark.parametrize(
    ("request_says", "quoted"),
    [
        ("why 'Maximum context length is 1,200 tokens'?", True),
        ("why 'maximum context length is 1200'?", True),
        ("maximum context length is 12000", False),
        ("a file of 1200 lines", False),
    ],
)
def test_an_error_about_a_window_that_the_request_speaks_of(request_says: str, quoted: bool) -> None:
    said = b'{"error": {"message": "bad field: \'maximum context length is 1200 tokens\'"}}'
    assert in_request(said, 1_200, request_says.encode()) is quoted
