"""Counting only where it can matter, and on the scale of whoever reported last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.core import tokens
from app.core.view import EntryCache, View
from app.formats import FORMATS
from app.formats.media import media_cost
from app.formats.reading import Opened, Reader, open_body
from app.records import Session, UsageMark
from app.registry import Model, Registry
from app.steps import counting
from app.steps.counting import (
    MODELS,
    USAGE_MARKS,
    Estimate,
    Ratios,
    Scale,
    cannot_reach,
    estimate,
    fill,
    fitted,
    local,
    mark,
    remembered,
    rough_count,
    scale_of,
    upper_bound,
)
from tests.story import House, Talk, counted, policy, words

FORM = FORMATS["openai-chat"]
MODEL = Model("m", 10_000, "o200k_base", frozenset(), True)
TIKTOKEN = Scale("tiktoken", 1.0)


def opened(talk: Talk) -> tuple[Reader, Opened, View]:
    reader = Reader(FORM, "o200k_base", EntryCache())
    found = open_body(FORM, talk.body)
    return reader, found, View(found.raws, reader.entries(found.raws))


def truly(talk: Talk) -> int:
    """Every text counted, and four tokens an item."""
    return sum(tokens.count(item["content"] or "", "o200k_base") + 4 for item in talk.items)


# Proofs without counting


@pytest.mark.parametrize(
    "text", ["plain words " * 40, "日本語の文章" * 40, "😀" * 200, "0123456789" * 50, "\\u0041\\n" * 60]
)
def test_no_count_is_above_its_bound(text: str) -> None:
    reader, body, view = opened(
        Talk(tools=[{"type": "function", "function": {"name": "f"}}]).ask(text).round().answer()
    )
    limit = upper_bound(body, view)
    entry = reader.fixed(body)
    reader.count_fixed(body, entry)
    reader.count(view.raws, view.entries)
    assert view.tokens + entry.tokens <= limit


def test_the_bound_counts_pictures_at_their_figure() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}
    reader, body, view = opened(Talk(picture))
    limit = upper_bound(body, view)
    reader.count(view.raws, view.entries)
    assert len(body.body) < view.tokens <= limit


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4o-mini", "gpt-5.6", "claude-opus-4-8", "gemini-2.5-pro", "gemini-3-pro-preview"]
)
def test_tiny_is_a_proof_even_for_pictures(model: str) -> None:
    """A reference of some sixty bytes may stand for a picture of many thousand tokens."""
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x.y/z"}}]}
    media = media_cost(Registry({}, lambda _: None).lookup(model).fact)
    body = open_body(FORM, Talk(*[picture] * 50).body)
    reader = Reader(FORM, "o200k_base", EntryCache(), media)
    view = View(body.raws, reader.entries(body.raws))
    reader.count(view.raws, view.entries)
    assert not cannot_reach(view.tokens, body, reader.reference)
    assert cannot_reach(10_000_000, body, reader.reference)


def test_what_is_not_counted_is_guessed_at_a_quarter_of_its_bytes() -> None:
    _, body, view = opened(Talk.of(3))
    guess = rough_count(body, view)
    assert guess == pytest.approx(sum(len(bytes(raw)) // 4 for raw in view.raws), abs=5)
    view.entries[0].tokens = 10_000
    assert rough_count(body, view) > guess + 9_000
    assert local(view) == rough_count(body, view) - len(b'"m"') // 4


# Estimates


async def test_everything_is_counted_where_it_can_matter() -> None:
    talk = Talk.of(10)
    reader, body, view = opened(talk)
    found = await estimate(reader, body, view, view, TIKTOKEN, 2_000)
    assert found == Estimate(TIKTOKEN, 0, truly(talk), truly(talk), True)
    assert found.before == found.now == truly(talk)
    assert all(entry.tokens >= 0 for entry in view.entries)


async def test_nothing_is_counted_where_it_can_not() -> None:
    talk = Talk.of(40)
    reader, body, view = opened(talk)
    found = await estimate(reader, body, view, view, TIKTOKEN, 1_000_000)
    assert (found.source, found.exact) == ("approximate", False)
    assert all(entry.tokens < 0 for entry in view.entries)
    assert found.now == pytest.approx(truly(talk), rel=0.4)


async def test_a_little_is_counted_all_the_same() -> None:
    talk = Talk.of(2)
    reader, body, view = opened(talk)
    found = await estimate(reader, body, view, view, TIKTOKEN, 1_000_000)
    assert (found.source, found.now, found.exact) == ("tiktoken", truly(talk), True)


async def test_without_an_encoder_the_count_is_called_approximate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_encodings", {"o200k_base": None})
    talk = Talk.of(3)
    reader, body, view = opened(talk)
    found = await estimate(reader, body, view, view, TIKTOKEN, 100)
    assert (found.source, found.exact) == ("approximate", True)
    assert found.now == sum((len(item["content"]) + 3) // 4 + 4 for item in talk.items)


async def test_tools_and_schemas_count_once() -> None:
    tools = [{"type": "function", "function": {"name": "read", "description": words(500)}}]
    reader, body, view = opened(Talk(tools=tools).ask("Go."))
    found = await estimate(reader, body, view, view, TIKTOKEN, 100)
    assert found.fixed > 500
    assert found.now == found.fixed + view.tokens
    again = await estimate(reader, body, view, view, TIKTOKEN, 100)
    assert again == found


async def test_before_and_now_are_two_views_on_one_scale() -> None:
    reader, body, client = opened(Talk.of(10))
    shorter = View(client.raws[-5:], client.entries[-5:])
    found = await estimate(reader, body, client, shorter, Scale("usage", 2.0), 2_000)
    assert (found.source, found.before, found.now) == ("usage", client.tokens * 2, shorter.tokens * 2)
    assert found.of(client) == found.before
    assert found.of(shorter) == found.now


async def test_what_is_in_no_text_counts_besides() -> None:
    reader, body, client = opened(Talk.of(10))
    found = await estimate(reader, body, client, client, Scale("usage", 1.5, 200), 2_000)
    assert found.now == pytest.approx((client.tokens + 200) * 1.5, abs=1)


def test_who_knows_better_puts_the_whole_estimate_right() -> None:
    found = Estimate(Scale("tiktoken", 1.5), 100, 3_000, 1_500, True).told(4_800, "provider")
    assert (found.source, found.now, found.before, found.ratio) == ("provider", 4_800, 9_300, 3.0)
    assert Estimate(Scale("usage", 1.0), 0, 10, 10, True).told(20).source == "usage"


@pytest.mark.parametrize(("now", "near"), [(749, False), (750, True), (1_000, True), (1_250, True), (1_251, False)])
def test_a_better_count_is_wanted_near_the_threshold_only(now: int, near: bool) -> None:
    found = Estimate(TIKTOKEN, 100, 9_000, now - 100, True)
    assert found.near(1_000) is near
    assert not replace(found, scale=Scale("usage", 1.0)).near(1_000)
    assert not replace(found, exact=False).near(1_000)


async def test_large_amounts_are_counted_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    async def thread(size: int, work: Any, *args: Any) -> None:
        assert size == len(view.raws[0])
        used.append(1)
        work(*args)

    monkeypatch.setattr(counting, "in_thread", thread)
    for size, threads in ((1_000, 0), (9_000, 1)):
        reader, _, view = opened(Talk().ask("x" * size))
        await fill(reader, view)
        assert len(used) == threads
        assert view.entries[0].tokens > 0


# Whose scale


LINKS = [b"%016d" % n for n in range(5)]


def marked(at: int, local: int, told: int, model: str = "m") -> UsageMark:
    return UsageMark(LINKS[at], local, told, model)


def session(*marks: UsageMark) -> Session:
    return Session("s", "t", usages=marks)


def scaled(scale: Scale, local: int) -> int:
    return Estimate(scale, 0, local, local, True).now


def told(scale: Scale, local: int) -> float:
    return (local + scale.unseen) * scale.ratio


def test_the_longest_prefix_that_was_reported_on_decides() -> None:
    marks = session(marked(0, 1_000, 1_000), marked(3, 5_000, 7_500), marked(1, 1_000, 1_200))
    found = scale_of(LINKS, marks, MODEL)
    assert found.source == "usage"
    assert told(found, 5_000) == pytest.approx(7_500, abs=1)
    assert told(scale_of(LINKS[:2], marks, MODEL), 1_000) == pytest.approx(1_200, abs=1)


def test_another_models_report_says_nothing() -> None:
    assert scale_of(LINKS, session(marked(3, 3_000, 4_500, "other")), MODEL) == TIKTOKEN


def test_another_branch_gives_its_scale() -> None:
    other = [b"%016d" % (n + 50) for n in range(5)]
    found = scale_of(other, session(marked(3, 50_000, 75_500), marked(1, 20_000, 30_500)), MODEL)
    assert found.source == "tiktoken"
    assert found.ratio == pytest.approx(1.5, rel=0.01)
    assert told(found, 40_000) == pytest.approx(60_500, rel=0.01)


def test_what_is_unseen_is_told_from_the_ratio() -> None:
    """A little text and a lot besides says nothing of a long text's ratio; two reports do."""
    first = scale_of(LINKS, session(marked(0, 100, 500)), MODEL)
    assert told(first, 100) == pytest.approx(500, abs=1)
    assert first.ratio < 1.2
    both = scale_of(LINKS, session(marked(1, 20_100, 24_500), marked(0, 100, 500)), MODEL)
    assert both.ratio == pytest.approx(1.2, rel=0.01)
    assert both.unseen * both.ratio == pytest.approx(380, abs=15)


@pytest.mark.parametrize("told_at_last", [1, 1_000_000])
def test_nonsense_is_bounded(told_at_last: int) -> None:
    found = scale_of(LINKS, session(marked(1, 20_000, told_at_last), marked(0, 100, 500)), MODEL)
    assert 0.5 <= found.ratio <= 2
    assert Estimate(found, 0, 100, 100, True).now >= 1


def test_what_the_provider_counted_when_asked_is_a_mark_too() -> None:
    _, _, view = opened(Talk.of(3))
    for entry in view.entries:
        entry.tokens = 100
    asked = Estimate(Scale("provider", 1.25), 100, 900, 700, True)
    assert mark(b"x", MODEL, asked, view, 0) == UsageMark(b"x", 800, 1_000, "m", "provider")
    assert mark(b"x", MODEL, asked, view, 999) == UsageMark(b"x", 100 + view.tokens, 999, "m")
    assert mark(b"x", MODEL, replace(asked, scale=TIKTOKEN), view, 0) is None
    assert mark(b"x", MODEL, replace(asked, exact=False), view, 999) is None
    kept = session(UsageMark(LINKS[2], 800, 1_000, "m", "provider"))
    assert scale_of(LINKS, kept, MODEL).source == "provider"


def test_without_any_report_the_models_own_ratio_holds() -> None:
    heavy = replace(MODEL, quirks=frozenset({"token_ratio=1.3"}))
    assert scaled(scale_of(LINKS, None, heavy), 1_000) == pytest.approx(1_300, abs=1)
    assert scale_of(LINKS, session(), MODEL) == TIKTOKEN


def grown(ratio: float, unseen: int = 300, count: int = 4) -> list[UsageMark]:
    """The reports on a conversation that grows by 5,000 tokens each time."""
    return [marked(at, 5_000 * (at + 1), round((5_000 * (at + 1) + unseen) * ratio)) for at in range(count)]


def test_what_sessions_have_shown_is_where_the_next_one_begins() -> None:
    ratios = Ratios()
    ratios.learn("t", "main", MODEL, grown(1.5))
    learnt = ratios.of("t", "main", MODEL)
    assert learnt == pytest.approx(1.5, rel=0.01)
    for others in (("x", "main", MODEL), ("t", "x", MODEL), ("t", "main", replace(MODEL, name="x"))):
        assert ratios.of(*others) is None
    assert told(scale_of(LINKS, None, MODEL, learnt), 1_000) == pytest.approx(1_500, rel=0.02)
    first = session(marked(0, 100, 600))
    assert told(scale_of(LINKS, first, MODEL, learnt), 1_100) == pytest.approx(600 + 1_500, rel=0.02)
    assert told(scale_of(LINKS, first, MODEL), 1_100) < 600 + 1_300


def test_a_session_of_its_own_kind_is_soon_believed() -> None:
    """Another language, say: what others have shown is outweighed by a few reports."""
    own = session(*grown(1.2))
    assert scale_of(LINKS, own, MODEL, 1.5).ratio == pytest.approx(1.2, rel=0.02)


def test_only_what_is_sure_is_learnt() -> None:
    ratios = Ratios()
    ratios.learn("t", "main", MODEL, [marked(0, 100, 600)])
    ratios.learn("t", "main", MODEL, grown(1.5)[:1])
    ratios.learn("t", "main", MODEL, [])
    ratios.learn("t", "main", MODEL, [replace(mark, model="other") for mark in grown(1.5)])
    assert ratios.of("t", "main", MODEL) is None
    assert fitted(grown(1.5), 1.0).error < fitted(grown(1.5)[:2], 1.0).error


def test_ratios_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "LEARNT", 10)
    ratios = Ratios()
    for n in range(25):
        ratios.learn(f"t{n}", "main", MODEL, grown(1.5))
    assert sum(ratios.of(f"t{n}", "main", MODEL) is not None for n in range(25)) in range(5, 11)


def test_a_session_remembers_the_latest_reports_of_each_model() -> None:
    marks: tuple[UsageMark, ...] = ()
    for n in range(40):
        marks = remembered(UsageMark(b"%d" % (n // 2), 100, n, f"m{n % 2}"), marks)
        assert marks[0].reported == n
    for model in ("m0", "m1"):
        own = [mark for mark in marks if mark.model == model]
        assert len(own) == USAGE_MARKS
        assert len({mark.chain for mark in own}) == len(own)
    for n in range(9):
        marks = remembered(UsageMark(b"x", 100, n, f"n{n}"), marks)
    assert len(marks) <= USAGE_MARKS * MODELS


@pytest.mark.parametrize("ratio", [0.85, 1.0, 1.3])
async def test_the_second_request_is_what_was_reported_and_what_is_new(ratio: float) -> None:
    """Level 2 too: through a whole tool loop the estimate stays within two per cent of the provider's count."""
    house, rules = House(), policy(trigger_threshold=8_000, target_threshold=4_000, compact_first_request=False)
    talk = Talk(tools=[{"type": "function", "function": {"name": "read", "description": words(300)}}]).ask(words(2_500))
    for n in range(8):
        outcome = await house.decide(talk, rules, session="s")
        provider = round((counted(talk) + 330) * ratio)
        if n:
            assert outcome.source == "usage"
            assert outcome.before == pytest.approx(provider, rel=0.02)
        await house.compactor.settle(outcome, provider)
        talk.round(200, ident=f"r{n}")
