"""What remains of one tool result."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.summaries.results import extract_result
from tests.summaries.conversations import chatter, count


def test_a_result_that_fits_stays_as_it_is() -> None:
    assert extract_result("a  \n\n b ", 100, count) == "a  \n\n b "


def test_lines_with_values_remain_in_order() -> None:
    facts = [
        "build 4711 of release-candidate.tar.gz",
        "FAILED tests/test_queue.py::test_drain",
        "worker_17 took 93.4 s",
    ]
    text = "\n".join([chatter(1), facts[0], chatter(2), facts[1], chatter(3), facts[2], chatter(4)])
    remains = extract_result(text, 80, count)
    places = [remains.index(fact) for fact in facts]
    assert places == sorted(places)
    assert count(remains) <= 80


def test_the_same_text_shrinks_the_same_way() -> None:
    assert extract_result(chatter(1), 50, count) == extract_result(chatter(1), 50, count) != ""


@given(st.text(max_size=2_000), st.integers(0, 500))
def test_never_more_than_the_room_and_nothing_but_its_own_lines(text: str, room: int) -> None:
    remains = extract_result(text, room, len)
    assert len(remains) <= room
    squeezed = "".join(text.split())
    assert all("".join(line.split()) in squeezed for line in remains.splitlines())
