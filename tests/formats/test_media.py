"""What pictures cost by the providers' published formulas."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from app.formats.media import UNKNOWN_IMAGE, Family, image_tokens, media_name


def png(width: int, height: int) -> str:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return base64.b64encode(header + b"pixels" * 9_000).decode()


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("openai", 512, 512, 255),  # one tile
        ("openai", 1024, 1024, 765),  # scaled to 768 x 768: four tiles; the provider's own example
        ("openai", 2048, 4096, 1_105),  # scaled to 768 x 1536: six tiles; the provider's own example
        ("openai", 4096, 1, 765),
        ("anthropic", 1000, 1000, 1_333),
        ("anthropic", 200, 200, 53),
        ("anthropic", 4000, 4000, 1_600),
        ("anthropic", 1, 1, 1),
        ("gemini", 384, 384, 258),
        ("gemini", 385, 100, 258),
        ("gemini", 1536, 769, 1_032),
    ],
)
def test_tokens_follow_the_pixels(family: Family, width: int, height: int, tokens: int) -> None:
    assert image_tokens(family, png(width, height)) == tokens
    assert image_tokens(family, f"data:image/png;base64,{png(width, height)}") == tokens


@pytest.mark.parametrize("family", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize(
    "source", ["https://x.example/y.png", "gs://bucket/y", "", "data:image/png;base64,", "!!!!", "Zm9v", None, {}, 7]
)
def test_what_can_not_be_measured_costs_a_fixed_figure(family: Family, source: Any) -> None:
    assert image_tokens(family, source) == UNKNOWN_IMAGE[family]


def test_low_detail_is_a_flat_price_at_openai_only() -> None:
    assert image_tokens("openai", png(4000, 4000), "low") == image_tokens("openai", "https://x", "low") == 85
    assert image_tokens("anthropic", png(1000, 1000), "low") == 1_333


def test_length_of_base64_does_not_matter() -> None:
    assert image_tokens("openai", png(512, 512) + "A" * 4_000_000) == image_tokens("openai", png(512, 512))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data:image/png;base64,AAAA", "image/png"), ("data:text/plain,hi", "text/plain"), ("data:;base64,AA", "image"),
        ("https://x", "image"), (None, "image"), ("data:" + "x" * 900, "x" * 60),
    ],
)  # fmt: skip
def test_name(source: Any, name: str) -> None:
    assert media_name(source, "image") == name
