from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.media import image_size, pdf_pages, seconds, size_of_base64


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 6, 0, 0, 0) + b"rest" * 50


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\x00\x00" + b"rest" * 50


def webp_lossy(width: int, height: int) -> bytes:
    frame = b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + struct.pack("<I", 900) + b"WEBPVP8 " + struct.pack("<I", 800) + frame + b"rest" * 50


def webp_lossless(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14 | 1 << 28
    return b"RIFF" + struct.pack("<I", 900) + b"WEBPVP8L" + struct.pack("<IBI", 800, 0x2F, bits) + b"rest" * 50


def webp_extended(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 900) + b"WEBPVP8X" + struct.pack("<II", 10, 0x10) + sizes + b"rest" * 50


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def jpeg(width: int, height: int, before: bytes = b"", frame: int = 0xC0) -> bytes:
    start = b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + before
    return start + segment(frame, struct.pack(">BHHB", 8, height, width, 3) + b"\1\x22\0" * 3) + b"rest" * 50


KINDS = [png, gif, webp_lossy, webp_lossless, webp_extended, jpeg]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(width=st.integers(1, 16383), height=st.integers(1, 16383))
def test_every_kind_tells_its_size(kind, width: int, height: int) -> None:  # type: ignore[no-untyped-def]
    encoded = base64.b64encode(kind(width, height))
    assert image_size(encoded) == (width, height)
    assert image_size(encoded.decode()) == (width, height)
    assert image_size(base64.urlsafe_b64encode(kind(width, height))) == (width, height)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_data_urls_line_breaks_and_missing_padding(kind) -> None:  # type: ignore[no-untyped-def]
    raw = kind(640, 480)
    plain = base64.b64encode(raw)
    assert image_size(b"data:image/whatever;base64," + plain) == (640, 480)
    assert image_size("data:image/whatever;base64," + plain.decode()) == (640, 480)
    assert image_size(base64.encodebytes(raw)) == (640, 480)
    assert image_size(base64.encodebytes(raw).replace(b"\n", b"\r\n").decode()) == (640, 480)
    assert image_size(b"\n  " + plain) == (640, 480)
    assert image_size(plain.rstrip(b"=")) == (640, 480)


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCF])
def test_every_jpeg_frame_header_counts(frame: int) -> None:
    assert image_size(base64.b64encode(jpeg(30, 20, frame=frame))) == (30, 20)


def test_the_scale_bits_of_lossy_webp_are_no_size() -> None:
    assert image_size(base64.b64encode(webp_lossy(0x4000 | 300, 0x8000 | 200))) == (300, 200)


def test_jpeg_tables_fill_bytes_and_thumbnails_are_leapt_over() -> None:
    tables = segment(0xC4, b"\0" * 40) + segment(0xCC, b"\0\0") + segment(0xDB, b"\1" * 65)
    before = segment(0xE1, b"Exif\0\0" + jpeg(160, 120)) + b"\xff\xff\xff" + tables
    assert image_size(base64.b64encode(jpeg(4000, 3000, before))) == (4000, 3000)


def test_only_headers_are_decoded() -> None:
    """Text between and behind the headers that is no base64 at all changes nothing."""
    profile = segment(0xE2, b"ICC_PROFILE\0" + b"\0" * 60_000)
    encoded = bytearray(base64.b64encode(jpeg(1200, 900, profile * 3)))
    for place in range(2_000, 70_000):
        encoded[place] = 0x21
    encoded[-250:] = b"!" * 250
    assert image_size(bytes(encoded)) == (1200, 900)
    assert image_size(base64.b64encode(png(7, 9)) + "\u00e9!".encode() * 1_000_000) == (7, 9)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"plain text, long enough to hold a header of any kind",
        b"%PDF-1.7" + b" " * 60,
        b"BM" + b"\0" * 60,
        png(0, 5),
        png(5, 0),
        gif(0, 0),
        png(5, 5)[:20],
        gif(5, 5)[:8],
        webp_lossy(5, 5)[:28],
        webp_lossless(5, 5)[:23],
        webp_extended(5, 5)[:28],
        webp_lossy(5, 5).replace(b"\x9d\x01\x2a", b"\0\0\0"),
        webp_lossy(5, 5).replace(b"VP8 ", b"ALPH"),
        jpeg(5, 5)[:25],
        jpeg(5, 5)[:4],
        jpeg(5, 5, b"\xff\xd9"),
        jpeg(5, 5, segment(0xDA, b"\0" * 10)),
        jpeg(5, 5, b"no marker"),
        jpeg(5, 5, b"\xff\x01" * 300),
    ],
    ids=lambda raw: raw[:14].hex() + f"-{len(raw)}",
)
def test_what_is_not_understood_has_no_size(raw: bytes) -> None:
    assert image_size(base64.b64encode(raw)) is None


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200)),
    st.sampled_from(["", "iVBORw0KGgo", "/9j/", "UklGR", "data:"]),
)
def test_nothing_raises(noise: bytes | str, start: str) -> None:
    image_size(start + noise if isinstance(noise, str) else start.encode() + noise)


@given(st.sampled_from(KINDS), st.integers(0, 120))
def test_a_cut_header_never_raises(kind, length: int) -> None:  # type: ignore[no-untyped-def]
    assert image_size(base64.b64encode(kind(321, 123))[:length]) in (None, (321, 123))


# Documents and recordings


@pytest.mark.parametrize(
    ("raw", "pages"),
    [
        (
            b"%PDF-1.7 << /Type /Page >> << /Type/Page/Parent 1 0 R >> << /Type /Pages /Count 2 >> /Type /PageLabel"
            + b" " * 1_000,
            2,
        ),
        (b"%PDF-2.0 " + b"\x78\x9c" * 900, None),
        (b"<< /Type /Page >>" * 9, None),
        (b"%PDF-1.4 " + b"/Type/Page " * 900, 20),  # no page is as small as that
        (b"", None),
    ],
)
def test_pages_of_a_pdf(raw: bytes, pages: int | None) -> None:
    encoded = base64.b64encode(raw)
    assert pdf_pages(encoded) == pdf_pages(encoded.decode()) == pages
    assert pdf_pages("data:application/pdf;base64," + encoded.decode()) == pages
    assert pdf_pages(base64.encodebytes(raw)) == pages


def test_seconds_of_a_recording() -> None:
    wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + struct.pack("<II", 16_000, 32_000)
    assert seconds(base64.b64encode(wav + b"\0" * 64_000), 8_000) == pytest.approx(2, rel=0.01)
    assert seconds(base64.b64encode(wav[:28] + b"\0\0\0\0" + b"\0" * 64_000), 8_000) == pytest.approx(8, rel=0.01)
    assert seconds(base64.b64encode(b"OggS" + b"\0" * 64_000).decode(), 8_000) == pytest.approx(8, rel=0.01)
    assert seconds("", 8_000) == 0


@given(st.binary(max_size=400))
def test_size_is_that_of_the_bytes(raw: bytes) -> None:
    assert size_of_base64(base64.b64encode(raw)) == pytest.approx(len(raw), abs=2)
    assert size_of_base64("data:x;base64," + base64.b64encode(raw).decode()) == pytest.approx(len(raw), abs=2)


@given(st.text(max_size=200), st.binary(max_size=200))
def test_no_text_raises(text: str, data: bytes) -> None:
    for thing in (text, data, "JVBERi0" + text):
        pdf_pages(thing)
        assert seconds(thing, 8_000) >= 0
