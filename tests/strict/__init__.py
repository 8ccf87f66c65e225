"""A strict fake provider for the four wire formats: the project's independent oracle.

Everything here is written from what providers document and from the error texts that people report. It never imports
`app`: a rule that compactd got wrong must not be wrong here in the same way. `violations` of each format module says what
a provider would refuse in a body; `StrictProvider` is such a provider on a loopback port.
"""

from __future__ import annotations

from collections.abc import Callable

from . import anthropic_messages, gemini, openai_chat, openai_responses
from .violation import Violation

VIOLATIONS: dict[str, Callable[..., list[Violation]]] = {
    "openai-chat": openai_chat.violations,
    "openai-responses": openai_responses.violations,
    "anthropic-messages": anthropic_messages.violations,
    "gemini": gemini.violations,
}
"""Format name -> its `violations(body, *, model="", quirks=frozenset())`."""

__all__ = ["VIOLATIONS", "Violation"]
