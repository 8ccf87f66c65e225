"""What media cost the model, by each provider's published formula.

A picture never counts by the length of its base64. Where the bytes are not in the request (a URL, a file id) or their size can't be
told, a fixed figure stands in. Sources: https://developers.openai.com/api/docs/guides/images-vision (tiles of 512 px: 85 + 170 each),
https://platform.claude.com/docs/en/build-with-claude/vision (width x height / 750), https://ai.google.dev/gemini-api/docs/tokens (258 a
tile of 768 px).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from app.core.media import image_size

Family = Literal["openai", "anthropic", "gemini"]
UNKNOWN_IMAGE: dict[Family, int] = {"openai": 765, "anthropic": 1_590, "gemini": 258}


def media_name(source: Any, kind: str) -> str:
    """A short name such as "image/png" from a data URL, else `kind`."""
    if isinstance(source, str) and source.startswith("data:"):
        return source[5:].split(";", 1)[0].split(",", 1)[0][:60] or kind
    return kind


def image_tokens(family: Family, source: Any, detail: str = "") -> int:
    """Tokens of an image given as base64 text, as a data URL, or as anything else (then a fixed figure)."""
    if family == "openai" and detail == "low":
        return 85
    data = source.split(",", 1)[-1] if isinstance(source, str) and source.startswith("data:") else source
    size = (
        image_size(data[:120_000].encode("ascii", "ignore"))
        if isinstance(data, str) and "://" not in data[:12]
        else None
    )
    if size is None:
        return UNKNOWN_IMAGE[family]
    return _FORMULAS[family](*size)


def _openai(width: int, height: int) -> int:
    scale = min(1.0, 2048 / max(width, height, 1))
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    scale = min(1.0, 768 / max(1, min(width, height)))
    return 85 + 170 * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def _anthropic(width: int, height: int) -> int:
    return min(1_600, max(1, width * height // 750))


def _gemini(width: int, height: int) -> int:
    if width <= 384 and height <= 384:
        return 258
    return 258 * math.ceil(width / 768) * math.ceil(height / 768)


_FORMULAS = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}
