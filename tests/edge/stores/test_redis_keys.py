from __future__ import annotations

import msgspec
import pytest

from app.edge.stores.redis_keys import Line, Record, index_key, key_of, milliseconds, record_key, session_key


@pytest.mark.parametrize(
    "line", [Line(1, False, b"k" * 16), Line(70_000, True, b"\x00\xff"), Line(2**32 - 1, False, b"")]
)
def test_a_line_is_read_back(line: Line) -> None:
    assert Line.decode(line.encode()) == line


@pytest.mark.parametrize("record", [Record(), Record(b"a", 3), Record(b"a", 3, b""), Record(b"\xff", 9, b"\x00v")])
def test_a_record_is_read_back(record: Record) -> None:
    assert Record.decode(record.encode()) == record


def test_a_record_of_somebody_else_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        Record.decode(b"nonsense")


def test_names_do_not_run_into_each_other() -> None:
    keys = [
        session_key("a", "b"), session_key("ab", ""), session_key("", "ab"), key_of("ab", "session"),
        index_key("a", b"b"), index_key("ab", b""), record_key("a", b"b"), key_of("a", "index"),
    ]  # fmt: skip
    assert len({*keys}) == len(keys)


def test_a_life_is_never_zero_milliseconds() -> None:
    assert (milliseconds(0.0001), milliseconds(1.5)) == (1, 1500)
