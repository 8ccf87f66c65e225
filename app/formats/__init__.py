"""The wire formats: one file each, and this table. A fifth is a new file, a line here and its tests."""

from __future__ import annotations

from app.formats.anthropic_messages import AnthropicMessages
from app.formats.base import Format
from app.formats.gemini import Gemini
from app.formats.openai_chat import OpenAIChat
from app.formats.openai_responses import OpenAIResponses

FORMATS: dict[str, Format] = {
    form.name: form for form in (OpenAIChat(), AnthropicMessages(), Gemini(), OpenAIResponses())
}
