"""What media cost the model, by each provider's published formula.

A picture never counts by the length of its base64. What it does count depends on the model, not on the wire format, so formats only say
how large it is, and `MediaCost` makes tokens of that from the facts of the model's registry row. Pages and recordings count by figures of
the format's own provider. Where the bytes are not in the request (a URL, a file id) or can't be understood, a usual size stands in.

source: https://developers.openai.com/api/docs/guides/images-vision (tiles of 512 px, or patches of 32 px),
https://platform.claude.com/docs/en/build-with-claude/vision (patches of 28 px), …/pdf-support,
https://ai.google.dev/gemini-api/docs/tokens (tiles; a second of sound, of film), …/media-resolution (Gemini 3; pages)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from app.core.media import Image, image_size, pdf_pages, seconds, size_of_base64
from app.core.transcript import Part

USUAL = Image(1024, 1024)
"""A picture of which nothing is known."""
UNKNOWN = 1_500
"""Tokens of any other medium of which nothing is known."""
PAGE_BYTES = 50_000
"""Of a document whose pages can't be counted."""
SOUND_RATE, FILM_RATE = 8_000, 125_000
"""Bytes a second of a recording that does not say."""
SHARES = {
    "MEDIA_RESOLUTION_LOW": 0.25, "MEDIA_RESOLUTION_MEDIUM": 0.5, "MEDIA_RESOLUTION_HIGH": 1.0, "MEDIA_RESOLUTION_ULTRA_HIGH": 2.0,
}  # fmt: skip
"""Gemini 3's words for how closely to look, and what that makes of the usual figure."""
HIGH_PATCHES, HIGH_EDGE, LOW_EDGE = 2_500, 2_048, 512
"""How far OpenAI's patch models scale a picture down for `detail: high` and `low`."""


@dataclass(frozen=True, slots=True)
class MediaCost:
    """What a model charges for media. The fields are the registry's facts `image_…`, 0 where the model has none; the first way that has its
    facts is the model's. `ratio` is how many of its tokens there are for a local one: figures of its provider are on its own scale."""

    ratio: float = 1.0
    tokens: float = 0
    crop: float = 0
    max_tokens: float = 0
    max_edge: float = 0
    patch: float = 0
    max_patches: float = 0
    tile: float = 170
    base: float = 85

    def of(self, part: Part) -> int:
        """Local tokens of a medium, 0 for any other part."""
        charged = self.charged(part.image) if part.image else part.tokens
        return math.ceil(charged / self.ratio)

    def charged(self, image: Image) -> int:
        """The provider's tokens."""
        width, height = (image.width, image.height) if image.width and image.height else (USUAL.width, USUAL.height)
        if self.tokens:
            return math.ceil(self.tokens * SHARES.get(image.detail, 1.0))
        if self.crop:
            return int(self.crop) * _crops(width, height)
        if self.max_tokens:
            return _visual_tokens(width, height, self.max_tokens, self.max_edge)
        if self.patch:
            return math.ceil(self.patch * _patches(width, height, self.max_patches or math.inf, image.detail))
        return int(self.base + (0 if image.detail == "low" else self.tile * _tiles(width, height)))

    @property
    def reference(self) -> int:
        """Local tokens that may stand behind a mere reference to a medium."""
        return max(self.of(Part("media", "", image=Image())), self.of(Part("media", "", tokens=UNKNOWN)))


def media_cost(fact: Callable[[str, float], float]) -> MediaCost:
    """Of a model whose facts are asked for by name, with what holds where there is none."""
    usual = MediaCost()
    names = [field.name for field in fields(MediaCost) if field.name != "ratio"]
    facts = {name: fact(f"image_{name}", getattr(usual, name)) for name in names}
    return MediaCost(ratio=fact("token_ratio", 1.0) or 1.0, **facts)


def _crops(width: int, height: int) -> int:
    """Gemini before 3: one for a small picture, else squares of two thirds of its short side."""
    if max(width, height) <= 384:
        return 1
    side = min(max(256, int(min(width, height) / 1.5)), 768)
    return math.ceil(width / side) * math.ceil(height / side)


def _visual_tokens(width: int, height: int, most: float, edge: float) -> int:
    """Claude: a token for each patch of 28 px, scaled down to what it takes at most."""
    scale = min(1.0, (edge or math.inf) / max(width, height), math.sqrt(most * 28 * 28 / (width * height)))
    return min(int(most), math.ceil(width * scale / 28) * math.ceil(height * scale / 28))


def _patches(width: float, height: float, most: float, detail: str) -> int:
    """OpenAI's patch models: patches of 32 px, scaled down to a whole number of them along one side."""
    if detail in ("low", "high"):
        scale = min(1.0, (LOW_EDGE if detail == "low" else HIGH_EDGE) / max(width, height))
        width, height, most = width * scale, height * scale, min(most, HIGH_PATCHES)
    if math.ceil(width / 32) * math.ceil(height / 32) > most:
        scale = math.sqrt(32 * 32 * most / (width * height))
        across, down = width * scale / 32, height * scale / 32
        scale *= min(max(1, int(across)) / across, max(1, int(down)) / down)
        width, height = width * scale, height * scale
    # What was scaled to whole patches may be a hair above them.
    return int(min(most, math.ceil(width / 32 - 1e-6) * math.ceil(height / 32 - 1e-6)))


def _tiles(width: float, height: float) -> int:
    """OpenAI's tile models: tiles of 512 px, scaled down to 2,048 px, then to 768 px along the short side."""
    scale = min(1.0, 2048 / max(width, height))
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    scale = min(1.0, 768 / min(width, height))
    return math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


# What formats find


def media_name(source: Any, kind: str) -> str:
    """A short name such as "image/png" from a data URL, else `kind`."""
    if isinstance(source, str) and source.startswith("data:"):
        return source[5:].split(";", 1)[0].split(",", 1)[0][:60] or kind
    return kind


def image_of(source: Any, detail: str = "") -> Image:
    """A picture given as base64, as a data URL, or as anything else (then of unknown size)."""
    size = image_size(source) if isinstance(source, str) else None
    return Image(*size, detail) if size else Image(detail=detail)


def document_tokens(data: Any, page: int) -> int:
    """Of a base64 document, at so many tokens a page; `UNKNOWN` for anything else."""
    if not isinstance(data, str) or not data:
        return UNKNOWN
    if data.startswith("data:text/"):
        return 1 + size_of_base64(data) // 4
    return page * (pdf_pages(data) or 1 + size_of_base64(data) // PAGE_BYTES)


def recording_tokens(data: Any, second: int, rate: int = SOUND_RATE) -> int:
    """Of a base64 recording, at so many tokens a second; `UNKNOWN` for anything else."""
    return math.ceil(second * seconds(data, rate)) if isinstance(data, str) and data else UNKNOWN
