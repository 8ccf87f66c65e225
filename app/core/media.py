"""How large is a picture that arrives as base64, how many pages has a PDF, how long is a recording?

Providers charge for pixels, pages and seconds, not for base64 characters, so counting needs width and height of pictures
that may be megabytes long. Four characters of base64 are three bytes, so any byte can be read without decoding what lies
before it: the few header bytes of PNG, GIF, WebP and WAV, and in a JPEG a walk from segment to segment that leaps over
embedded profiles and thumbnails. Only a PDF has to be searched. What can't be understood has no size; nothing here raises.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import Literal

_UNWRAPPED = bytes.maketrans(b"-_", b"+/")  # the URL-safe alphabet, which Google's JSON accepts too
_MAX_SEGMENTS = 256  # of a JPEG; real files have some ten before the frame header
_WRAPPED_LIMIT = 1 << 20  # characters looked at of base64 that is broken into lines
_SEARCHED = 8 << 20  # bytes of a PDF
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_LEAST_PAGE = 500  # bytes of a PDF for each of its pages; what claims more pages is no real one


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in pixels, 0 x 0 where nobody knows; `detail` is how closely the client wants it looked at, in its own word."""

    width: int = 0
    height: int = 0
    detail: str = ""


def image_size(data: bytes | str) -> tuple[int, int] | None:
    """(width, height) in pixels of a base64 PNG, JPEG, GIF or WebP, with or without `data:…;base64,` in front.

    None for anything else: another kind, a header cut short or broken, a size of zero.
    """
    source = _Base64(data)
    head = source.read(0, 32)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        size = _pair(head[16:24], 4, "big")
    elif head.startswith((b"GIF87a", b"GIF89a")):
        size = _pair(head[6:10], 2, "little")
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _webp(head)
    elif head.startswith(b"\xff\xd8\xff"):
        size = _jpeg(source)
    else:
        return None
    return size if size and size[0] and size[1] else None


def pdf_pages(data: bytes | str) -> int | None:
    """Pages of a base64 PDF, as far as its page objects can be read: None where they are packed, or if it is none."""
    source = _Base64(data)
    if not source.read(0, 8).startswith(b"%PDF-"):
        return None
    found = sum(1 for _ in _PAGE.finditer(source.read(0, _SEARCHED)))
    return min(found, 1 + source.size // _LEAST_PAGE) or None


def seconds(data: bytes | str, rate: int) -> float:
    """Length of a base64 recording: a WAV says it, any other is taken to have `rate` bytes a second."""
    source = _Base64(data)
    head = source.read(0, 32)
    told = int.from_bytes(head[28:32], "little") if head.startswith(b"RIFF") and head[8:12] == b"WAVE" else 0
    return source.size / (told if told >= 1_000 else rate)


def size_of_base64(data: bytes | str) -> int:
    """Bytes that a base64 text stands for, roughly."""
    return _Base64(data).size


class _Base64:
    """Reads bytes at any offset of a base64 text, decoding only the groups that hold them."""

    def __init__(self, data: bytes | str) -> None:
        start = 0
        if data[:5] in ("data:", b"data:"):
            comma = data.find(",", 0, 256) if isinstance(data, str) else data.find(b",", 0, 256)
            start = comma + 1
        self._start = start
        self._data = data
        opening = self._text(0, 100)
        if opening.split() != [opening]:  # broken into lines: offsets would not fit
            self._data = b"".join(self._text(0, _WRAPPED_LIMIT).split())
            self._start = 0

    @property
    def size(self) -> int:
        """Bytes in all, roughly."""
        return (len(self._data) - self._start) * 3 // 4

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on; fewer at the end, b"" where the text is no base64."""
        first, last = offset // 3, (offset + length + 2) // 3
        text = self._text(first * 4, last * 4).rstrip(b"=")
        text = text[: len(text) - (len(text) % 4 == 1)]
        try:
            group = binascii.a2b_base64(text.translate(_UNWRAPPED) + b"=" * (-len(text) % 4))
        except binascii.Error:
            return b""
        skip = offset - first * 3
        return group[skip : skip + length]

    def _text(self, start: int, end: int) -> bytes:
        part = self._data[self._start + start : self._start + end]
        return part.encode("ascii", "replace") if isinstance(part, str) else bytes(part)


def _pair(field: bytes, width: int, order: Literal["big", "little"]) -> tuple[int, int] | None:
    if len(field) < 2 * width:
        return None
    return int.from_bytes(field[:width], order), int.from_bytes(field[width:], order)


def _webp(head: bytes) -> tuple[int, int] | None:
    """The three kinds of first chunk: extended (24 bits less one), lossless (14 bits less one), lossy (14 bits)."""
    kind = head[12:16]
    if kind == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L" and len(head) >= 25 and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(head) >= 30 and head[23:26] == b"\x9d\x01\x2a":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


def _jpeg(source: _Base64) -> tuple[int, int] | None:
    """Walk the segments up to the frame header: SOF0 to SOF15 without the tables DHT, JPG and DAC in their range."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        segment = source.read(at, 9)
        if len(segment) < 4 or segment[0] != 0xFF:
            return None
        marker = segment[1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers that stand alone
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            size = _pair(segment[5:9], 2, "big")
            return (size[1], size[0]) if size else None
        elif marker in (0xD9, 0xDA):  # the end, or picture data without a frame header
            return None
        else:
            at += 2 + int.from_bytes(segment[2:4], "big")
    return None
