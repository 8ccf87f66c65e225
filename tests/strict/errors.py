"""Errors in each provider's own shape, and the many ways to say that the context is too long.

source: https://platform.claude.com/docs/en/api/errors, badlogic/pi-mono `overflow.ts`, google-gemini/gemini-cli#16543
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_GEMINI_STATUS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def error(form: str, status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error body. `param` and `code` are OpenAI's; a streamed Gemini call without SSE wraps the body in an array."""
    if form == "anthropic-messages":
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_strict"}
    if form == "gemini":
        fallback = "INVALID_ARGUMENT" if status < 500 else "INTERNAL"
        return {"error": {"code": status, "message": message, "status": _GEMINI_STATUS.get(status, fallback)}}
    if status == 429:
        kind, code = "requests", code or "rate_limit_exceeded"
    else:
        kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def overflow(form: str, used: int, window: int, vendor: str = "") -> dict[str, Any]:
    """The 400 for a prompt of `used` tokens in a window of `window`. `vendor`: a server that speaks the chat format."""
    if form == "anthropic-messages":
        return error(form, 400, f"prompt is too long: {used} tokens > {window} maximum")
    if form == "gemini":
        return error(
            form, 400, f"The input token count ({used}) exceeds the maximum number of tokens allowed ({window})."
        )
    if form == "openai-responses":
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return error(form, 400, message, param="input", code="context_length_exceeded")
    return _CHAT[vendor](used, window)


def _plain(text: str, **fields: Any) -> Callable[[int, int], dict[str, Any]]:
    def body(used: int, window: int) -> dict[str, Any]:
        values = {"used": used, "window": window}
        more = {key: values.get(value, value) for key, value in fields.items()}
        message = text.format(**values)
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | more}

    return body


_OPENAI = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {used} tokens. Please reduce "
    "the length of the messages."
)
_REQUESTED = "This model's maximum context length is {window} tokens. However, you requested {used} tokens"
_CHAT = {
    "": _plain(_OPENAI, param="messages", code="context_length_exceeded"),
    "groq": _plain(
        "Please reduce the length of the messages or completion.", param="messages", code="context_length_exceeded"
    ),
    "openrouter": _plain(
        "This endpoint's maximum context length is {window} tokens. However, you requested about {used} tokens.",
        code=400,
    ),
    "vllm": _plain(_REQUESTED + " ({used} in the messages, 0 in the completion).", type="BadRequestError", code=400),
    "llama.cpp": _plain(
        "the request exceeds the available context size",
        type="exceed_context_size_error",
        n_prompt_tokens="used",
        n_ctx="window",
    ),
    "deepseek": _plain(_REQUESTED + " ({used} in the messages, 0 in the completion)."),
    "mistral": _plain(
        "Prompt contains {used} tokens and 0 draft tokens, too large for model with {window} maximum context length"
    ),
    "xai": _plain("This model's maximum prompt length is {window} but the request contains {used} tokens."),
    "copilot": _plain("prompt token count of {used} exceeds the limit of {window}"),
    "kimi": _plain("Invalid request: Your request exceeded model token limit: {window}"),
    "minimax": _plain("invalid params, context window exceeds limit"),
    "lmstudio": _plain("The number of tokens to keep from the initial prompt is greater than the context length"),
    "fireworks": _plain("The prompt is too long: {used}, model maximum context length: {window}"),
}
VENDORS = frozenset(_CHAT)
