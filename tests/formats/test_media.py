"""What media cost by the providers' published formulas, by the facts of the model's registry row."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.media import Image
from app.core.transcript import Part
from app.formats.media import (
    UNKNOWN,
    MediaCost,
    document_tokens,
    image_of,
    media_cost,
    media_name,
    recording_tokens,
)
from app.registry import Registry

REGISTRY = Registry({}, lambda _: None)
MODELS = [
    "gpt-4o", "gpt-4o-mini", "gpt-4.1-mini", "o1", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-5.4", "gpt-5.6",
    "computer-use-preview", "claude-sonnet-4-5", "claude-opus-4-8", "gemini-2.5-pro", "gemini-3-pro-preview", "qwen-vl-max",
]  # fmt: skip


def cost(model: str) -> MediaCost:
    return media_cost(REGISTRY.lookup(model).fact)


def png(width: int, height: int) -> str:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return base64.b64encode(header + b"pixels" * 9_000).decode()


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        # tiles: the provider's own examples are 1024 x 1024 (four) and 2048 x 4096 (six)
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1_105),
        ("gpt-4o", 512, 512, 255),
        ("gpt-4o", 4096, 1, 765),
        ("gpt-4o-mini", 1024, 1024, 2833 + 4 * 5667),
        ("o1", 1024, 1024, 75 + 4 * 150),
        ("gpt-5", 1024, 1024, 70 + 4 * 140),
        # patches: the provider's own examples are 1024 x 1024 (1,024 of them) and 1800 x 2400 (scaled to 1,452)
        ("o4-mini", 1024, 1024, 1_762),  # 1024 x 1.72
        ("gpt-4.1-mini", 1800, 2400, 2_353),  # 1452 x 1.62
        ("gpt-5-mini", 32, 32, 2),
        ("gpt-5.1", 4000, 4000, 1_826),  # 39 x 39 patches
        ("gpt-5.4", 3200, 3200, 12_000),
        ("gpt-5.4", 6400, 6400, 12_000),
        ("gpt-5.6", 4000, 4000, 18_750),
        # patches of 28 px, scaled down to an edge and a number
        ("claude-sonnet-4-5", 1000, 1000, 1_296),
        ("claude-sonnet-4-5", 28, 29, 2),
        ("claude-sonnet-4-5", 4000, 4000, 1_568),
        ("claude-sonnet-4-5", 8000, 280, 112),
        ("claude-opus-4-8", 4000, 4000, 4_784),
        ("claude-opus-4-8", 1920, 1080, 69 * 39),
        # squares of two thirds of the short side; the provider's own example is 960 x 540 (six)
        ("gemini-2.5-pro", 384, 384, 258),
        ("gemini-2.5-pro", 960, 540, 6 * 258),
        ("gemini-2.5-pro", 385, 100, 2 * 258),
        ("gemini-2.5-pro", 4000, 3000, 24 * 258),
        # one figure for all
        ("gemini-3-pro-preview", 10, 10, 1_120),
        ("gemini-3-pro-preview", 4000, 4000, 1_120),
        # nothing known: tiles
        ("qwen-vl-max", 1024, 1024, 765),
    ],
)
def test_published_formulas(model: str, width: int, height: int, tokens: int) -> None:
    assert cost(model).charged(image_of(png(width, height))) == tokens
    assert cost(model).charged(image_of(f"data:image/png;base64,{png(width, height)}")) == tokens


@pytest.mark.parametrize(
    ("model", "detail", "tokens"),
    [
        ("gpt-4o", "low", 85), ("gpt-4o", "high", 765), ("gpt-4o-mini", "low", 2_833), ("gpt-5", "low", 70),
        ("gpt-5.4", "low", 308), ("gpt-5.4", "high", 3_000), ("gpt-5.4", "original", 12_000), ("gpt-5.1", "high", 1_826),
        ("gemini-3-pro-preview", "MEDIA_RESOLUTION_LOW", 280), ("gemini-3-pro-preview", "MEDIA_RESOLUTION_ULTRA_HIGH", 2_240),
        ("gemini-3-pro-preview", "MEDIA_RESOLUTION_UNSPECIFIED", 1_120), ("claude-sonnet-4-5", "low", 1_568),
    ],
)  # fmt: skip
def test_how_closely_it_is_looked_at(model: str, detail: str, tokens: int) -> None:
    assert cost(model).charged(image_of(png(4000, 4000), detail)) == tokens


@given(
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
    model=st.sampled_from(MODELS),
    detail=st.sampled_from(["", "low", "high"]),
)
def test_any_size_has_a_sane_figure(width: int, height: int, model: str, detail: str) -> None:
    tokens = cost(model).charged(Image(width, height, detail))
    most = {
        "claude-sonnet-4-5": 1_568,
        "claude-opus-4-8": 4_784,
        "gpt-5.1": 1_844,
        "gpt-5.4": 12_000,
        "gpt-5.6": 36_000,
    }
    assert 1 <= tokens <= most.get(model, 1 << 20)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "source", ["https://x.example/y.png", "gs://bucket/y", "", "data:image/png;base64,", "!!!!", "Zm9v", None, {}, 7]
)
def test_a_picture_of_unknown_size_costs_as_a_usual_one(model: str, source: Any) -> None:
    assert image_of(source) == Image()
    assert cost(model).charged(Image()) == cost(model).charged(Image(1024, 1024))


@pytest.mark.parametrize("model", MODELS)
def test_figures_are_local_ones_in_the_end(model: str) -> None:
    """A provider's figure times its usual ratio to local tokens would count that ratio twice."""
    ratio = REGISTRY.lookup(model).fact("token_ratio", 1.0)
    charge = cost(model)
    part = Part("media", "image/png", image=Image(1000, 800))
    assert charge.of(part) * ratio == pytest.approx(charge.charged(Image(1000, 800)), abs=ratio)
    assert charge.of(Part("media", "x", tokens=3_000)) * ratio == pytest.approx(3_000, abs=ratio)
    assert charge.of(Part("text", "x" * 100)) == 0
    assert charge.reference >= max(
        charge.of(Part("media", "image", image=Image())), charge.of(Part("media", "file", tokens=UNKNOWN))
    )


def test_configured_facts_win() -> None:
    assert (
        media_cost(lambda name, default: 99.0 if name == "image_tokens" else default).charged(Image(5_000, 5_000)) == 99
    )


def test_length_of_base64_does_not_matter() -> None:
    assert image_of(png(512, 512) + "A" * 4_000_000) == Image(512, 512)


# Pages, sound


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_documents_count_by_their_pages() -> None:
    pdf = packed(b"%PDF-1.7\n" + b"<< /Type /Page /Parent 2 0 R >> << /Type/Pages /Count 7 >>" * 7 + b" " * 4_000)
    assert document_tokens(pdf, 1_500) == document_tokens(f"data:application/pdf;base64,{pdf}", 1_500) == 7 * 1_500
    assert (
        document_tokens(packed(b"%PDF-1.7\n" + b"\x00" * 120_000), 1_500) == 3 * 1_500
    )  # packed objects: by its bytes
    assert document_tokens(packed(b"PK\3\4" + b"\x00" * 120_000), 1_500) == 3 * 1_500
    assert document_tokens(f"data:text/csv;base64,{packed(b'a,b' * 400)}", 1_500) == pytest.approx(300, abs=10)
    assert document_tokens(None, 1_500) == document_tokens("", 9) == document_tokens({}, 9) == UNKNOWN


def test_recordings_count_by_their_seconds() -> None:
    wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + struct.pack("<II", 24_000, 48_000) + b"\0" * 480_000
    assert recording_tokens(packed(wav), 10) == pytest.approx(100, abs=2)
    assert recording_tokens(packed(b"ID3" + b"\0" * 80_000), 32) == pytest.approx(320, abs=2)
    assert recording_tokens(packed(b"\0" * 1_250_000), 300, 125_000) == pytest.approx(3_000, abs=2)
    assert recording_tokens(None, 10) == recording_tokens("", 10) == UNKNOWN


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data:image/png;base64,AAAA", "image/png"), ("data:text/plain,hi", "text/plain"), ("data:;base64,AA", "image"),
        ("https://x", "image"), (None, "image"), ("data:" + "x" * 900, "x" * 60),
    ],
)  # fmt: skip
def test_name(source: Any, name: str) -> None:
    assert media_name(source, "image") == name
