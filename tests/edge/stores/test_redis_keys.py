from __future__ import annotations

import pytest
from redis.crc import key_slot

from app.edge.stores.base import on_chain
from app.edge.stores.redis_keys import Line, index_key, key_of, milliseconds, record_key, session_key
from app.records import StoredCheckpoint, anchors, home_of
from tests.contract.test_stores import links


@pytest.mark.parametrize(
    "line", [Line(1, False, b"k" * 16), Line(70_000, True, b"\x00\xff"), Line(2**32 - 1, False, b"")]
)
def test_a_line_is_read_back(line: Line) -> None:
    assert Line.decode(line.encode()) == line


@pytest.mark.parametrize("member", [b"", b"abc", b"some other program's member"])
def test_what_is_no_line_is_on_no_chain(member: bytes) -> None:
    line = Line.decode(member)
    assert not on_chain(links(3), line.depth, line.key)


def test_names_do_not_run_into_each_other() -> None:
    keys = [
        session_key("a", "b"), session_key("ab", ""), session_key("", "ab"), key_of("ab", "session"),
        index_key("a", b"b", b"c"), index_key("ab", b"", b"c"), record_key("a", b"b", b"c"), key_of("a", "index"),
    ]  # fmt: skip
    assert len({*keys}) == len(keys)


def test_all_that_a_conversation_is_looked_up_by_has_one_home() -> None:
    chain = links(300)
    stored = [StoredCheckpoint.of(chain, depth, b"") for depth in (4, 5, 70, 256, 300)]
    keys = [record_key("t", one.home, one.key) for one in stored]
    keys += [index_key("t", one.home, one.anchor) for one in stored]
    keys += [index_key("t", home_of(chain, 1 << at), anchor) for at, anchor in enumerate(anchors(chain)) if at > 1]
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert [home_of(chain, depth) for depth in (1, 2, 3, 4, 5)] == [chain[0], chain[1], chain[1], chain[3], chain[3]]
    assert len({key_slot(index_key("t", home_of(links(9, name=f"{n}"), 9), b"").encode()) for n in range(20)}) > 15


def test_a_life_is_never_zero_milliseconds() -> None:
    assert (milliseconds(0.0001), milliseconds(1.5)) == (1, 1500)
