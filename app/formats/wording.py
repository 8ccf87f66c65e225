"""What is said in plain words only, whatever the wire format.

Providers, and the gateways before them, tell an overflow by an English sentence; many serve several formats with the same one. Agents
that compact by themselves do it by a request like any other, whose last user text is known by how it begins. Both lists grow by
reports; a phrase that is too broad costs one needless retry or one compaction not made, never an answer.
source: E1 to E18 in the tests; badlogic/pi-mono packages/ai/src/utils/overflow.ts, BerriAI/litellm exception_mapping_utils.py.
"""

from __future__ import annotations

import re

_STATUSES = frozenset({400, 413, 422, 500})  # 500: llama.cpp's older servers; a 429 is a rate limit, whatever it says
_LOOKED_AT = 4_000  # bytes: validation errors may quote the whole request
_TOO_LONG = re.compile(
    r"context[_ ]length[_ ]exceeded|context_too_large|exceed_context_size_error"
    r"|maximum (?:context|prompt|model) length|(?:longer|greater) than the (?:model's |maximum )?(?:context|model) length"
    r"|exceeds? the (?:model's )?(?:context window|available context size)|context window exceeds|exceed context limit"
    r"|tokens exceed the configured limit|token count of [\d,]+ exceeds the limit|token count \(?[\d,]*\)? ?exceeds the maximum"
    r"|exceeded model token limit|(?:prompt|input) is too long|too large for model with|reduce the length of the (?:messages|input|prompt)"
    r"|range of input length should be|inputs?`? tokens \+ `?max_new_tokens`? must be <=",
    re.IGNORECASE,
)
_RATE = re.compile(r"tokens per minute|rate_limit_exceeded", re.IGNORECASE)
_WINDOW = re.compile(
    r"(?:length(?: is|:| of)|context length \(|configured limit of|exceeds the limit of|token limit:|context size \("
    r"|tokens allowed \(|must be <=|tokens >|[\d,]+ \+ [\d,]+ >|should be \[\d+,|n_ctx\\*\":) ?(\d[\d,]*)|(\d[\d,]*) maximum context",
    re.IGNORECASE,
)

_TEMPLATE = re.compile(r"jinja|chat[ _]template|raise_exception|at (?:row|line) \d+, column \d+", re.IGNORECASE)
_ROLES = re.compile(
    r"(?:roles?|requests|messages?(?:\(s\))?) (?:must|should)?(?: be)? ?alternat(?:e|ing)"
    r"|unexpected role \W{0,3}user\W{0,3} after role",
    re.IGNORECASE,
)

_SUMMARY_REQUESTS = (
    "CRITICAL: Respond with TEXT ONLY",  # Claude Code 2.x
    "Your task is to create a detailed summary of ",  # Claude Code before that
    "Provide a detailed prompt for continuing our conversation",  # opencode
    "Create a new anchored summary",  # opencode 1.x
    "Update the anchored summary",
    "First, reason in your scratchpad. Then, generate the <state_snapshot>",  # qwen-code and its kin
)
# In the system prompts of such requests, Claude Code's and opencode's.
_SUMMARISER = "tasked with summarizing conversations"


def overflow(status: int, body: bytes) -> int | None:
    """Does an error answer say that the context is too long? The window it names in tokens, 0 if it names none, None: it does not.

    Cerebras says it by a 400 or 413 without a body (E15).
    """
    if status not in _STATUSES:
        return None
    if not body.strip():
        return 0 if status in (400, 413) else None
    said = _said(body)
    if not _TOO_LONG.search(said) or _RATE.search(said):
        return None
    found = _WINDOW.search(said)
    return int((found[1] or found[2]).replace(",", "")) if found else 0


def in_request(body: bytes, window: int, request: bytes) -> bool:
    """Does the request itself say these words of an error about a window, and its figure?"""
    words = _TOO_LONG.search(_said(body))
    figure = rb"(?<!\d)(?:%d|%s)(?!\d)" % (window, f"{window:,}".encode())
    return words is not None and words[0].lower().encode() in request.lower() and re.search(figure, request) is not None


def is_refusal(status: int, body: bytes) -> bool:
    """Does a 500 say that the request is at fault, and not the server? So do llama.cpp and what is built on it, where a request is too long
    or where the model's chat template doesn't take it (Q15)."""
    said = _said(body)
    found = _TEMPLATE.search(said) or _ROLES.search(said)
    return status == 500 and (found is not None or overflow(status, body) is not None)


def lesson(status: int, body: bytes) -> str:
    """The quirk of a model that does not take two user messages in a row, where a refusal says so (G7, Q15)."""
    return "alternating_roles" if status in (400, 422, 500) and _ROLES.search(_said(body)) else ""


def _said(body: bytes) -> str:
    return body[:_LOOKED_AT].decode("utf-8", "replace").replace("\\u0027", "'").replace("\\u003e", ">")


def asks_for_summary(system: str, text: str) -> bool:
    """Is this an agent's own compaction? `text` is one of the last user item's, `system` the start of the system prompt, if at hand."""
    return text.lstrip().startswith(_SUMMARY_REQUESTS) or _SUMMARISER in system[:200]
