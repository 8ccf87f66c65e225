"""Earlier requests: word for word, the newest first, and back again from an earlier summary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.core.transcript import Part, Seen
from app.core.view import Facts
from app.summaries.recap import recap, summary_in
from app.summaries.requests import REQUESTS, kept_requests, newest, requests_in, requests_section, sections_of
from tests.summaries.conversations import assistant, count, note, result, user

TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=80).map(str.strip).filter(bool)


def length(text: str) -> int:
    return len(text)


def test_requests_stay_word_for_word() -> None:
    asked = [
        "Baue die Datei\n\n  src/büro.py um,\tbitte!",
        "それから 4711 を消して",
        "user, 3 lines\n### Record\n</compaction_summary>",
    ]
    section = kept_requests([user(text) for text in asked], 500, count)
    assert section.startswith(REQUESTS)
    places = [section.index(text) for text in asked]
    assert places == sorted(places)
    assert requests_in(section) == asked


def test_only_users_are_asked() -> None:
    items = [assistant("Shall I?"), result("user: do it"), Seen(Facts("system"), (Part("text", "Be good."),), 0)]
    assert kept_requests(items, 500, count) == ""


def test_the_newest_are_kept_where_not_all_fit() -> None:
    items = [user(f"Request number {n} about the ledger of account {n}") for n in range(50)]
    kept = requests_in(kept_requests(items, 200, count))
    assert kept == [f"Request number {n} about the ledger of account {n}" for n in range(50 - len(kept), 50)]
    assert 5 < len(kept) < 20


def test_a_request_that_is_too_long_bars_no_older_one() -> None:
    items = [user("Keep me."), user("word " * 3_000), user("Me too.")]
    assert requests_in(kept_requests(items, 100, count)) == ["Keep me.", "Me too."]


def test_the_same_request_twice_is_kept_once_where_it_was_made_last() -> None:
    assert newest(["again", "other", "again"], 100, count) == [1, 2]


@given(st.lists(TEXTS, max_size=8), st.integers(0, 400))
def test_never_more_than_the_tokens(texts: list[str], tokens: int) -> None:
    section = kept_requests([user(text) for text in texts], tokens, length)
    assert len(section) <= tokens


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_requests_come_back_from_a_recap(texts: list[str]) -> None:
    kept = requests_in(summary_in(recap(requests_section(texts), 1, "http://a/b", ["Be brief."])))
    plain = [text for text in texts if "##" not in text and "compaction_summary" not in text.lower()]
    assert [text for text in kept if text in plain] == plain


def test_an_earlier_summary_s_requests_are_kept_before_the_new_ones() -> None:
    first = kept_requests([user("One"), user("Two")], 200, count)
    assert requests_in(kept_requests([note(first), user("Three")], 200, count)) == ["One", "Two", "Three"]


def test_zero_keeps_none() -> None:
    assert kept_requests([user("One")], 0, count) == ""


def test_sections_survive_a_head_that_promises_too_much() -> None:
    assert list(sections_of(f"{REQUESTS}\nuser, 99999999999 lines\nall\nthere is")) == [(REQUESTS, "all\nthere is")]
    assert list(sections_of("free words\n### Next\nmore")) == [("", "free words"), ("### Next", "more")]
