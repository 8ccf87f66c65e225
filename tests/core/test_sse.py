"""Usage found in a passing stream, wherever the network split its bytes, and without keeping what it does not need."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.sse import ENDS, MAX_LINE, UsageLines, first_error, usages

STREAM = (
    b"event: message_start\n"
    b'data: {"message":{"usage":{"input_tokens":7}}}\n\n'
    b": a comment about usage\r\n\r\n"
    b"event: ping\r\ndata: {}\r\n\r\n"
    b'data:{"choices":[],"usage":null}\r\n\r\n'
    b'data: {"text":"no figures \xe6\x97\xa5"}\n\n'
    b"id: usage\n"
    b'data: {"usage":{"total_tokens":9}}\n\n'
    b"data: [DONE]\n\n"
)
FOUND = [b'{"message":{"usage":{"input_tokens":7}}}', b'{"choices":[],"usage":null}', b'{"usage":{"total_tokens":9}}']


def fed(*chunks: bytes) -> list[bytes]:
    lines = UsageLines()
    found = [payload for chunk in chunks for payload in lines.feed(chunk)]
    return found + lines.end()


def test_usage_is_found() -> None:
    assert fed(STREAM) == FOUND


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_any_split_in_two(at: int) -> None:
    assert fed(STREAM[:at], STREAM[at:]) == FOUND


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
def test_lines_may_end_in_a_lone_carriage_return(end: bytes) -> None:
    stream = STREAM.replace(b"\r\n", b"\n").replace(b"\n", end)
    for size in (1, 2, 7, len(stream)):
        assert fed(*(stream[at : at + size] for at in range(0, len(stream), size))) == FOUND


def test_byte_by_byte() -> None:
    assert fed(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == FOUND


@given(st.lists(st.integers(0, len(STREAM)), max_size=8).map(sorted))
def test_any_split_in_many(cuts: list[int]) -> None:
    edges = [0, *cuts, len(STREAM)]
    assert fed(*(STREAM[a:b] for a, b in pairwise(edges))) == FOUND


def test_a_last_line_without_an_end_counts_at_the_end() -> None:
    lines = UsageLines()
    assert lines.feed(b'data: {"usage":1}') == []
    assert lines.end() == [b'{"usage":1}']
    assert lines.end() == []
    assert fed(b"") == []


def test_of_a_line_beyond_the_bound_the_end_is_kept_and_what_follows_is_found() -> None:
    long = b'data: {"output":"' + b"x" * MAX_LINE
    lines = UsageLines()
    assert lines.feed(long) == []
    assert lines.feed(b'data: {"usage":1}') == []  # still the same line
    end, after = lines.feed(b'","usage":{}}\ndata: {"usage":2}\n')
    assert end == b"x" * ENDS + b'data: {"usage":1}","usage":{}}'
    assert after == b'{"usage":2}'
    assert lines.feed(b'data: {"usage":3}\n') == [b'{"usage":3}']
    assert fed(long, b"y" * 10) == []
    assert fed(long, b"\n" + STREAM) == FOUND


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            b'lo","usage": {"input_tokens": 7, "details": {"a": 1}}, "user": null}',
            [{"usage": {"input_tokens": 7, "details": {"a": 1}}}],
        ),
        (
            b'[{"usageMetadata": {"a": 1}},{"usageMetadata":{"a": 2}}, {"usa',
            [{"usageMetadata": {"a": 2}}, {"usageMetadata": {"a": 1}}],
        ),
        (b'{"usage": {"a": 1}, "usage": {"a":', [{"usage": {"a": 1}}]),
        (rb'"text": "say \"usage\": {\"a\": 1}", "usage": null', []),
        (b'"usage": 7, "usage": [1], "using": {}', []),
        (b"", []),
        (b'\xff\xfe"usage": {}', [{"usage": {}}]),
        (b'"usage":' + b'{"a":' * 100_000, []),
    ],
)
def test_usage_in_what_is_no_whole_text(text: bytes, found: list[dict[str, object]]) -> None:
    assert [*usages(text)] == found


def test_what_is_kept_is_bounded() -> None:
    lines = UsageLines()
    for _ in range(50):
        lines.feed(b"x" * 100_000)
        assert len(lines._rest) <= MAX_LINE


def test_another_word_can_be_asked_for() -> None:
    assert UsageLines(b"usageMetadata").feed(b'data: {"usageMetadata":1}\ndata: {"usage":1}\n') == [
        b'{"usageMetadata":1}'
    ]


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b'event: error\ndata: {"error": {"message": "no"}}\n\n', b'{"error": {"message": "no"}}'),
        (b': hello\r\rdata:{"error": "no"}\r', b'{"error": "no"}'),
        (b'data: {"error": "no"}\r\ndata: [DONE]\r\n', b'{"error": "no"}'),
        (b'data: {"choices": [], "error": null}\n\ndata: {"error": "late"}\n\n', b""),
        (b'data: ["error"]\n', b""),
        (b'data: {"error": cut}\n', b""),
        (b"data: [DONE]\n", b""),
        (b'data: {"error": "cut', None),
        (b": hello\nevent: error\n", None),
        (b"", None),
    ],
)
def test_the_error_that_a_stream_begins_with(start: bytes, said: bytes | None) -> None:
    assert first_error(start) == said
