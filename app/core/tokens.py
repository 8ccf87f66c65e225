"""Local token counting, which must never fail, never download and never take long.

A count is a measurement, not a gate: whatever the text is, a number comes back, at worst characters / 4. The rank
tables ship with the package and become an encoder when first needed (`preload` does that at start, because it takes a
third of a second). Long texts are cut into pieces where the encoder's own splitting would cut too, so that the sum is
the exact count: its regular expression overflows its stack on very long runs, and merging grows faster than its input.
Media are not text; formats count them.

Why bytes bound tokens: byte-pair encoding starts from one token per UTF-8 byte and only ever merges two tokens into
one, and cutting a text before it starts changes nothing about that. So tokens(text) <= bytes(text), in every piece and
in every sum. "Counted tokens of the items we know + bytes of those we don't" can therefore prove, without an encoder,
that a request is below a threshold. (Any smaller bytes-per-token figure proves nothing: digits reach 3.0, Chinese 1.6,
base64 1.4.)
"""

from __future__ import annotations

import gzip
import json
import re
from binascii import a2b_base64
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Literal

from tiktoken import Encoding

RANKS = Path(__file__).parent / "ranks"
NAMES = ("o200k_base", "cl100k_base")
PIECE = 16_384  # characters; larger pieces are slower on hostile input and no faster on prose

# Where the pattern of either encoding ends a match, whatever came before: between a non-space and a space, and after a
# line break that is followed by neither white space nor "/" (o200k_base lets both trail after punctuation).
_BOUNDARY = re.compile(r"(?<=\S)(?= )|(?<=\n)(?=[^\s/])")
_LOOK_BACK = 512  # characters in which to look for a boundary before cutting anywhere

_encodings: dict[str, Encoding | None] = {}
_loading = Lock()


def encoding(name: str) -> Encoding:
    """The encoder for `o200k_base` or `cl100k_base`, built once per process and shared by all threads.

    Raises LookupError for any other name, and for a rank table that can't be read (remembered: a broken installation
    is not read again with every text).
    """
    found = _encodings.get(name)
    if found is None:
        with _loading:
            if name in NAMES and name not in _encodings:
                _encodings[name] = _load(name)
            found = _encodings.get(name)
    if found is None:
        raise LookupError(f"no encoder for {name}")
    return found


def preload(*names: str) -> None:
    """Build these encoders now (`o200k_base` if none is named). Never raises.

    o200k_base takes 0.4 s and stays with 48 MB (71 MB while it is built); cl100k_base 0.2 s and 24 MB, and therefore
    waits for a model that needs it.
    """
    for name in names or NAMES[:1]:
        source(name)


def source(name: str) -> Literal["tiktoken", "approximate"]:
    """Which rung of the counting ladder `count` stands on for this encoding. Builds the encoder if need be."""
    try:
        encoding(name)
    except LookupError:
        return "approximate"
    return "tiktoken"


def count(text: str, encoding: str) -> int:
    """Tokens of a text; never raises. Without a working encoder the answer is `approximate(text)`.

    Special-token literals such as <|endoftext|> are ordinary text, lone surrogates count as U+FFFD.
    """
    encoder = _encodings.get(encoding) or _encoder(encoding)
    if encoder is None:
        return approximate(text)
    if len(text) <= PIECE:
        return _count_piece(text, encoder)
    total, last, tokens = 0, "", 0
    for piece in pieces(text):
        if piece != last:  # a long run of one character, or of a short period, is encoded once
            last, tokens = piece, _count_piece(piece, encoder)
        total += tokens
    return total


def approximate(text: str) -> int:
    """Characters / 4, rounded up: the last rung."""
    return (len(text) + 3) // 4


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """Cut a text into pieces of at most `size` characters that add up to it.

    A piece ends where the encoder would end a match too, if there is such a place in its last 512 characters; else
    anywhere, which can cost a token or two a cut.
    """
    start = 0
    while len(text) - start > size:
        limit = start + size
        ends = [found.start() for found in _BOUNDARY.finditer(text, max(start + 1, limit - _LOOK_BACK), limit + 1)]
        end = ends[-1] if ends else limit
        yield text[start:end]
        start = end
    yield text[start:]


def _count_piece(piece: str, encoder: Encoding) -> int:
    try:
        return len(encoder.encode_ordinary(piece))
    except Exception:
        return approximate(piece)
    except BaseException as fault:
        if type(fault).__name__ != "PanicException":  # a panic in Rust is no Exception; interrupts go on
            raise
        return approximate(piece)


def _encoder(name: str) -> Encoding | None:
    try:
        return encoding(name)
    except LookupError:
        return None


def _load(name: str) -> Encoding | None:
    try:
        about = json.loads((RANKS / "encodings.json").read_bytes())[name]
        ranks: dict[bytes, int] = {}
        with gzip.open(RANKS / f"{name}.tiktoken.gz") as lines:
            for line in lines:  # never the whole table at once: 8 MB less at the peak
                token, rank = line.split()
                ranks[a2b_base64(token)] = int(rank)
        if len(ranks) != about["ranks"]:
            return None
        loaded = Encoding(name, pat_str=about["pattern"], mergeable_ranks=ranks, special_tokens=about["special_tokens"])
    except Exception:
        return None
    loaded._mergeable_ranks = {}  # the encoder has its own copy; this one is 30 MB that only pickling would read
    return loaded
