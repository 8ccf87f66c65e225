"""What counts as needed, as kept, as kept in its context."""

from __future__ import annotations

import pytest

from app.core.transcript import Part

HISTORY = "call Read path: /srv/app/main.py then raise MAX_RETRIES to 4711 because of Frobnikation 版本 v3-beta-2 for the tests"


def test_the_longest_piece_that_stood_in_the_history_is_needed() -> None:
    from recall import needed

    assert needed(["open /srv/app/main.py:12 and `MAX_RETRIES`"], HISTORY) == {"srv/app/main.py": 1, "MAX_RETRIES": 1}
    assert set(needed(["see other/dir/main.py, 4711"], HISTORY)) == {"main.py", "4711"}


def test_common_words_short_numbers_and_news_are_not_needed() -> None:
    from recall import needed

    assert needed(["because then the tests raise 12 NewThing and /not/there"], HISTORY) == {}
    assert set(needed(["Frobnikation"], HISTORY)) == {"Frobnikation"}


@pytest.mark.parametrize(
    ("forwarded", "score"),
    [
        (HISTORY, (1, 1, 1)),
        ("[raise MAX_RETRIES to 4711]", (1, 1, 1)),
        ("values: 4711", (1, 1, 0)),
        ("raise MAX_RETRIES to 47110", (1, 0, 0)),
        ("", (1, 0, 0)),
    ],
)
def test_a_string_is_kept_as_a_whole_and_in_its_context_with_half_its_neighbours(
    forwarded: str, score: tuple[int, int, int]
) -> None:
    import recall

    assert recall.score(["4711"], HISTORY, forwarded) == recall.Score(*score)


def test_an_item_is_read_without_escapes_line_numbers_and_reasoning() -> None:
    from recall import readable

    parts = [
        Part("reasoning", "hidden"), Part("call", '{"a": "x\\ny", "n": [1, {"k": true}]}', "Edit"), Part("result", "  12→\tfoo\n  13→\tbar")
    ]  # fmt: skip
    assert readable(parts) == "Edit\na: x\ny\nn: 1\nn: k: true\n\tfoo\n\tbar"
