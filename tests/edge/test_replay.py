"""A conversation played again: the requests that led to it, what a policy makes of each, what that costs."""

from __future__ import annotations

import json

import pytest

from app.edge.replay import Bill, replay_bodies, requests_of
from app.formats import FORMATS
from app.settings import Settings
from tests.edge.talks import Talk
from tests.edge.wire import PATHS

FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
LOW = {
    "name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "target_threshold": 400,
    "keep_recent_tool_results": 1,
}  # fmt: skip
SETTINGS = Settings(policies=(LOW, {"name": "never", "mode": "off"}))


async def test_one_body_stands_for_the_requests_that_led_to_it() -> None:
    body = b' {"model": "m",\n "messages": [ {"role":"user","content":"1"}, {"role":"assistant"} ,{"role":"user","content":"3"} ]}'
    first = b' {"model": "m",\n "messages": [ {"role":"user","content":"1"} ]}'
    assert list(requests_of(FORMATS["openai-chat"], body)) == [first, body]


async def test_a_body_in_which_the_model_spoke_last_asks_for_that_no_more() -> None:
    body = b'{"messages": [{"role":"user","content":"1"},{"role":"assistant","content":"2"}]}'
    assert list(requests_of(FORMATS["openai-chat"], body)) == [b'{"messages": [{"role":"user","content":"1"}]}']
    assert list(requests_of(FORMATS["openai-responses"], b'{"input": "One thing."}')) == [b'{"input": "One thing."}']


@pytest.mark.parametrize("form", FORMS)
async def test_a_session_is_compacted_and_then_replayed(form: str) -> None:
    body = Talk(form).ask("Read.").rounds(12).body
    rows, total = await replay_bodies(SETTINGS, [(PATHS[form], json.dumps(body).encode())], None)
    assert (len(rows), total["requests"]) == (13, 13)
    results = [row["outcome"] for row in rows]
    first = results.index("compacted")
    assert set(results[:first]) <= {"passed", "declined"}
    assert set(results[first:]) == {"compacted", "replayed"}
    assert total["compactions"] == results.count("compacted") == total["prefix_breaks"]
    assert all(row["sent_on"] < row["tokens"] for row in rows[first:])
    assert all(row["sent_on"] == row["tokens"] > 0 for row in rows[:first])
    assert all(row["cached"] > 0.2 for row in rows[2:] if row["outcome"] != "compacted")
    assert total["tokens_sent_on"] == sum(row["sent_on"] for row in rows) < total["tokens"]
    assert total["cost"].startswith("0.")


async def test_saved_bodies_are_played_as_they_are() -> None:
    bodies = [Talk("openai-chat").ask("Read.").rounds(number).body for number in (2, 9, 9)]
    given = [(PATHS["openai-chat"], json.dumps(body).encode()) for body in bodies]
    rows, total = await replay_bodies(SETTINGS, given, "low")
    assert [row["outcome"] for row in rows] == ["passed", "compacted", "replayed"]
    assert rows[2]["cached"] == 1.0
    rows, total = await replay_bodies(SETTINGS, given, "never")
    assert [row["outcome"] for row in rows] == ["passed"] * 3
    assert (total["compactions"], total["prefix_breaks"]) == (0, 0)


@pytest.mark.parametrize(
    ("path", "body", "policy", "told"),
    [
        ("/v1/models", b"{}", None, "no path whose requests carry a conversation"),
        ("/v1/messages", b"[]", None, "can't be looked into"),
        ("/v1/messages", b'{"messages": [{"role": "user", "content": "1"}]}', "other", "no policy named 'other'"),
    ],
)
async def test_what_would_not_be_looked_at_is_told(path: str, body: bytes, policy: str | None, told: str) -> None:
    rows, total = await replay_bodies(SETTINGS, [(path, body)], policy)
    assert rows == []
    assert told in total["not_looked_at"]


def test_the_bill_knows_what_a_cache_had() -> None:
    bill = Bill()
    assert bill.add([b"a"], [100]) == 0.0
    assert bill.add([b"a", b"b"], [100, 300]) == 0.25
    assert bill.add([b"c", b"a", b"b"], [50, 100, 300]) == 0.0
    assert (bill.tokens, bill.breaks) == (950, 1)
    assert bill.cost == pytest.approx(100 * 1.25 + 100 * 0.1 + 300 * 1.25 + 450 * 1.25)
