from __future__ import annotations

import gzip
import hashlib
import json
import random
import socket
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from app.core import tokens

WORDS = st.sampled_from(
    ["foo", "Bar's", "42", "1234567", "();", "//", "{", "é", "漢字", "😀", "\u0301", "don't", "=", "\x1c"]
)
SPACES = st.sampled_from([" ", "  ", "\n", "\r\n", "\n\n  ", "\t", "\xa0", " \n ", "\n/", ""])
PROSE = st.lists(st.tuples(WORDS, SPACES), max_size=60).map(lambda parts: "".join(word + gap for word, gap in parts))


@pytest.mark.parametrize("name", tokens.NAMES)
def test_shipped_ranks_are_the_published_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    published: dict[str, Any] = {}

    def remember(_url: str, expected_hash: str) -> dict[bytes, int]:
        published["sha256"] = expected_hash
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", remember)
    definition = getattr(openai_public, name)()
    about = json.loads((tokens.RANKS / "encodings.json").read_bytes())[name]
    table = gzip.decompress((tokens.RANKS / f"{name}.tiktoken.gz").read_bytes())
    assert hashlib.sha256(table).hexdigest() == published["sha256"] == about["sha256"]
    assert published["sha256"] in (tokens.RANKS / "README.md").read_text()
    assert about["pattern"] == definition["pat_str"]
    assert about["special_tokens"] == definition["special_tokens"]
    assert about["ranks"] == table.count(b"\n")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("o200k_base", "", 0),
        ("o200k_base", "hello world", 2),
        ("o200k_base", "<|endoftext|>", 7),
        ("o200k_base", "\ud800", 1),
        ("cl100k_base", "hello world", 2),
        ("cl100k_base", "<|endoftext|>", 7),
        ("cl100k_base", "antidisestablishmentarianism", 6),
    ],
)
def test_known_counts(name: str, text: str, expected: int) -> None:
    assert tokens.count(text, name) == expected


@given(st.text(alphabet=st.characters(), max_size=300))
def test_tokens_never_exceed_bytes(text: str) -> None:
    for name in tokens.NAMES:
        assert tokens.count(text, name) <= len(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=200)
@given(PROSE)
def test_cutting_at_a_boundary_does_not_change_the_count(text: str) -> None:
    for name in tokens.NAMES:
        whole = tokens.count(text, name)
        for boundary in tokens._BOUNDARY.finditer(text):
            left, right = text[: boundary.start()], text[boundary.start() :]
            assert tokens.count(left, name) + tokens.count(right, name) == whole, (left, right)


@given(PROSE, st.integers(3, 25))
def test_pieces_end_at_the_last_boundary(text: str, size: int) -> None:
    cut, start = list(tokens.pieces(text, size)), 0
    assert "".join(cut) == text
    for piece in cut[:-1]:
        ends = [end for end in range(start + 1, start + size + 1) if tokens._BOUNDARY.match(text, end)]
        assert len(piece) == (ends[-1] - start if ends else size)
        start += len(piece)
    assert len(cut[-1]) <= size


@settings(max_examples=20)
@given(st.text(alphabet=st.sampled_from("ab \n.漢"), max_size=400), st.integers(2, 50))
def test_pieces_of_anything_make_progress(text: str, size: int) -> None:
    cut = list(tokens.pieces(text, size))
    assert "".join(cut) == text
    assert all(cut) or text == ""


def test_a_long_text_counts_exactly() -> None:
    text = "".join(f"def f{n}(x):\n    return x / {n}  # {'word ' * (n % 7)}\n\n" for n in range(3000))
    assert len(text) > 5 * tokens.PIECE
    for name in tokens.NAMES:
        assert tokens.count(text, name) == len(tokens.encoding(name).encode_ordinary(text))


@pytest.mark.parametrize("unit", [" ", "\t", "\xa0", "a", "\n", ".", "😀", "ab", "\ud800"])
@pytest.mark.parametrize("name", tokens.NAMES)
def test_a_million_of_the_same_is_encoded_once(name: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    honest = tokens._count_piece

    def watched(piece: str, encoder: Any) -> int:
        encoded.append(len(piece))
        return honest(piece, encoder)

    monkeypatch.setattr(tokens, "_count_piece", watched)
    text = unit * (1_000_000 // len(unit))
    assert 0 < tokens.count(text, name) <= len(text.encode("utf-8", "surrogatepass"))
    assert len(encoded) <= 2
    assert max(encoded) <= tokens.PIECE


def test_random_text_is_never_handed_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    text = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(100_000))
    encoder = Recording()
    monkeypatch.setitem(tokens._encodings, "o200k_base", encoder)
    assert tokens.count(text, "o200k_base") == 7 == len(encoder.seen)
    assert "".join(encoder.seen) == text


class Recording:
    """An encoder for which every piece is one token."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.seen.append(text)
        return [0]


class PanicException(BaseException):
    """Named as what tiktoken's Rust side throws."""


class Failing:
    def __init__(self, fault: BaseException) -> None:
        self.fault = fault

    def encode_ordinary(self, _text: str) -> list[int]:
        raise self.fault


@pytest.mark.parametrize("fault", [ValueError("no"), PanicException("stack overflow")])
def test_a_failing_encoder_leaves_characters_by_four(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tokens._encodings, "o200k_base", Failing(fault))
    assert [tokens.count(text, "o200k_base") for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_an_interrupt_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tokens._encodings, "o200k_base", Failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        tokens.count("text", "o200k_base")


def test_an_unknown_encoding_is_approximate() -> None:
    with pytest.raises(LookupError):
        tokens.encoding("p50k_base")
    assert tokens.source("p50k_base") == "approximate"
    assert tokens.count("12345", "p50k_base") == 2
    assert "p50k_base" not in tokens._encodings


def test_a_broken_table_is_read_once_and_then_approximate(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "encodings.json").write_bytes((tokens.RANKS / "encodings.json").read_bytes())
    (tmp_path / "o200k_base.tiktoken.gz").write_bytes(b"\x1f\x8b cut off")
    monkeypatch.setattr(tokens, "RANKS", tmp_path)
    monkeypatch.setattr(tokens, "_encodings", {})
    tokens.preload()
    assert tokens._encodings == {"o200k_base": None}
    assert tokens.source("o200k_base") == "approximate"
    assert tokens.count("12345678", "o200k_base") == 2


def test_a_shortened_table_is_not_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = gzip.decompress((tokens.RANKS / "cl100k_base.tiktoken.gz").read_bytes())
    (tmp_path / "encodings.json").write_bytes((tokens.RANKS / "encodings.json").read_bytes())
    (tmp_path / "cl100k_base.tiktoken.gz").write_bytes(gzip.compress(table[: table.index(b"\n", 5000) + 1], 1))
    monkeypatch.setattr(tokens, "RANKS", tmp_path)
    monkeypatch.setattr(tokens, "_encodings", {})
    assert tokens.source("cl100k_base") == "approximate"


def test_one_encoder_for_all_threads_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("counting must not open a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(tokens, "_encodings", {})
    start, found = threading.Barrier(4), []

    def ask() -> None:
        start.wait()
        found.append(tokens.encoding("cl100k_base"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(encoder) for encoder in found}) == 1
    assert len(found) == 4
    assert tokens.source("cl100k_base") == "tiktoken"


def test_preload_builds_only_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_encodings", {})
    tokens.preload("cl100k_base", "nonsense")
    assert list(tokens._encodings) == ["cl100k_base"]
