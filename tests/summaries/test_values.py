"""Exact values are kept with their lines, in every script, and survive being summarised again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.summaries.record import VALUES
from app.summaries.values import kept_values
from tests.summaries.conversations import assistant, chatter, count, note, result, user

FACTS = [
    "order 48213-B ships to dock 17 on 2024-05-21",
    "予約番号はJP-48213で、出発は2024年5月21日です",
    "رقم الحجز هو QX77120 والمبلغ 1,250.75",
    "หมายเลขการจอง TH90210 ราคา 4,500 บาท",
    "Номер заказа РФ-771204, путь /var/данные/отчёт.csv",
    "see https://example.org/issues/912 and commit 9f86d081884c7d65",
]


def test_values_stand_with_their_lines() -> None:
    items = [
        user("Go."),
        assistant("", ("bash", '{"command": "ls"}')),
        *(result(f"{chatter(n)}\n{fact}") for n, fact in enumerate(FACTS)),
    ]
    section = kept_values(items, 400, count)
    assert section.startswith(VALUES)
    assert all(fact in section for fact in FACTS)
    assert "everything went well" not in section


def test_what_was_called_goes_before_what_only_stood_in_a_result() -> None:
    items = [
        assistant("", ("refund", '{"order": "W9911773"}')),
        result("\n".join(f"order W{n:07d} is open" for n in range(200))),
    ]
    assert "W9911773" in kept_values(items, 60, count)


def test_an_earlier_summary_s_values_stay() -> None:
    first = kept_values([result("the key is A7-9931")], 200, count)
    assert "the key is A7-9931" in kept_values([note(first), result("port 8787 is open")], 200, count)


def test_zero_keeps_none_and_words_are_no_values() -> None:
    assert kept_values([result("port 8787 is open")], 0, count) == ""
    assert kept_values([result("Zwetschgenkuchen schmeckt")], 100, count) == ""


@given(st.lists(st.text(max_size=60), max_size=10), st.integers(0, 300))
def test_never_more_than_the_tokens(texts: list[str], tokens: int) -> None:
    assert len(kept_values([result(text) for text in texts], tokens, len)) <= tokens
