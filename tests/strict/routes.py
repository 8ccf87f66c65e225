"""Which API a path belongs to, and what is asked of it.

source: https://ai.google.dev/api/generate-content (model and method in the path), provider pages for the others
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIXED = {
    "/chat/completions": ("openai-chat", "generate"),
    "/responses": ("openai-responses", "generate"),
    "/responses/compact": ("openai-responses", "compact"),
    "/responses/input_tokens": ("openai-responses", "count"),
    "/messages": ("anthropic-messages", "generate"),
    "/messages/count_tokens": ("anthropic-messages", "count"),
}
_AZURE = re.compile(r"/openai/deployments/([^/]+)/chat/completions")
_GEMINI = re.compile(r"(?:/v1beta|/v1alpha|/v1)?/models/([^/:]+):(\w+)")
_GEMINI_ACTIONS = {"generateContent": "generate", "streamGenerateContent": "generate", "countTokens": "count"}
_MODELS = re.compile(r"(/openai/v1|/v1beta|/v1alpha|/v1)?/models(?:/([^/:]+))?")


@dataclass(frozen=True, slots=True)
class Route:
    """`action` is `generate`, `count`, `compact` or `models`; `model` is the one in the path, if any."""

    form: str
    action: str
    model: str = ""
    streams: bool = False
    deployment: bool = False


def route(method: str, path: str, header_names: frozenset[str]) -> Route | None:
    """None for what the provider does not serve."""
    if method == "GET":
        match = _MODELS.fullmatch(path)
        return Route(form_of(path, header_names), "models", match[2] or "") if match else None
    if method != "POST":
        return None
    for prefix in ("/openai/v1", "/v1"):
        found = _FIXED.get(path.removeprefix(prefix)) if path.startswith(prefix + "/") else None
        if found:
            return Route(*found)
    if match := _AZURE.fullmatch(path):
        return Route("openai-chat", "generate", match[1], deployment=True)
    if (match := _GEMINI.fullmatch(path)) and match[2] in _GEMINI_ACTIONS:
        return Route("gemini", _GEMINI_ACTIONS[match[2]], match[1], streams=match[2].startswith("stream"))
    return None


def form_of(path: str, header_names: frozenset[str]) -> str:
    """The format whose manners an answer to an unknown path follows."""
    if "x-goog-api-key" in header_names or path.startswith(("/v1beta", "/v1alpha")) or ":" in path:
        return "gemini"
    if "anthropic-version" in header_names or "/messages" in path:
        return "anthropic-messages"
    return "openai-responses" if "/responses" in path else "openai-chat"
