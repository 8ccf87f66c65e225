"""The preview: what would be forwarded for a body, and why; nothing is sent or stored."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from app.edge.preview import MODEL_IN_PATH, Preview, guessed_path, preview
from app.settings import Settings
from tests.edge.talks import Talk, compacted
from tests.edge.wire import PATHS

LOW = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]


def settings(*policies: dict[str, Any], **sections: Any) -> Settings:
    return Settings(policies=policies or (LOW,), **sections)


async def told(request: dict[str, Any], *policies: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return await preview(settings(*policies, **sections), Preview(**request))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_text", [False, True])
async def test_a_compaction(form: str, as_text: bool) -> None:
    body = Talk(form).ask("Read.").rounds(8).body
    found = await told({"path": PATHS[form], "body": json.dumps(body) if as_text else body})
    assert (found["outcome"], found["reason"], found["policy"], found["format"]) == (
        "compacted",
        "threshold",
        "low",
        form,
    )
    assert (found["strategy"], found["level"], found["trigger_tokens"]) == ("tool_result_clearing", 2, 1_500)
    assert found["tokens_after"] < found["tokens_before"]
    assert (found["bytes_after"], found["bytes_after"] < found["bytes_before"]) == (len(found["body"].encode()), True)
    assert compacted(json.loads(found["body"]))


@pytest.mark.parametrize("form", FORMS)
async def test_a_format_is_known_by_the_bodys_keys(form: str) -> None:
    assert (await told({"body": Talk(form).ask("Read.").rounds(2).body}))["format"] == form


async def test_a_body_as_text_comes_back_byte_for_byte() -> None:
    text = '{"model":"gpt-4o" , "messages": [ {"role":"user","content":"\\u00e4", "n": 1e2} ]}'
    found = await told({"body": text})
    assert (found["outcome"], found["reason"], found["body"]) == ("passed", "below_threshold", text)


async def test_a_summary_can_not_be_made_offline() -> None:
    body = Talk("openai-chat").ask("One?").say("word " * 2_000).ask("Two?").say("word " * 2_000).ask("Three?").body
    policy = {
        "strategy": "summarize",
        "trigger_threshold": 1_500,
        "keep_recent_messages": 1,
        "summary_fallback": "pass",
    }
    found = await told({"body": body}, policy)
    assert (found["outcome"], found["reason"]) == ("declined", "summary_failed")
    assert found["warnings"] == ["No model is asked here: the policy's `summary_fallback` was taken, pass."]


def nowhere(context: object) -> str:  # noqa: ARG001
    return "nowhere"


async def test_why_a_strategy_of_ones_own_failed_is_told() -> None:
    """It is where such code is tried out, and there is no log to look into."""
    policy = {"strategy": f"{__name__}:nowhere", "trigger_threshold": 1, "min_messages_before_compaction": 0}
    found = await told({"body": Talk("openai-chat").ask("One?").say("Yes.").ask("Two?").body}, policy)
    assert found["reason"] == "own_strategy_failed"
    assert found["warnings"] == [
        f"own_strategy_failed: {__name__}:nowhere; it returned a str; a CompactionPlan, a list of messages or None was expected"
    ]


async def test_a_gemini_body_alone_has_no_model_to_look_up() -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}
    assert (await told({"body": body}))["warnings"] == [MODEL_IN_PATH]
    assert not (await told({"path": PATHS["gemini"], "body": body}))["warnings"]


async def test_a_policy_by_name_and_a_model_that_is_not_known() -> None:
    body = {"model": "made-up", "messages": [{"role": "user", "content": "Hi."}]}
    found = await told({"body": body, "policy": "other"}, LOW, {**LOW, "name": "other", "trigger_threshold": 9})
    assert (found["policy"], found["trigger_tokens"], found["context_window"]) == ("other", 9, 128_000)
    assert "made-up" in found["warnings"][0]


async def test_an_upstreams_quirks_count() -> None:
    """Where users and model must alternate, a notice goes into the item that follows it."""
    upstreams = {
        "local": {"base_url": "http://localhost:8000", "formats": ["openai-chat"], "quirks": ["alternating_roles"]}
    }
    talk = Talk("openai-chat", model="local-1")
    for number in range(6):
        talk.ask(f"Question {number}?").say("word " * 400)
    policy = {"strategy": "sliding_window", "trigger_threshold": 1_500, "keep_recent_messages": 2}
    found = await told({"body": talk.ask("And now?").body}, policy, upstreams=upstreams)
    assert found["outcome"] == "compacted"
    roles = [message["role"] for message in json.loads(found["body"])["messages"]]
    assert all(one != following for one, following in pairwise(roles))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"path": "/v1/embeddings", "body": {}}, "/v1/embeddings is no path"),
        ({"body": "no json"}, "not_json"),
        ({"body": {}}, "no_history"),
        ({"body": {"messages": []}, "policy": "nosuch"}, "no policy named 'nosuch'"),
    ],
)
async def test_what_can_not_be_previewed(request_: dict[str, Any], words: str) -> None:
    assert words in (await told(request_))["error"]


async def test_no_policy_matches() -> None:
    found = await told({"body": {"messages": []}}, {**LOW, "match": {"formats": ["gemini"]}})
    assert found == {"error": "No policy matches; the request would pass untouched."}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": 10**30}]},
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"messages": [{"role": "user", "content": 1e308}], "n": -0.0},
        {"messages": [None, 7, [], {}]},
        {"messages": [{"role": "tool", "tool_call_id": "lost", "content": "x" * 20_000}]},
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)
async def test_odd_bodies_are_previewed_all_the_same(body: Any) -> None:
    found = await told({"body": body})
    assert found.get("outcome") or "can't be looked into" in found["error"]


async def test_query_and_prefix_of_a_path_are_understood() -> None:
    body = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hi."}]}
    found = await told({"path": "/anthropic/v1/messages?beta=true", "body": body})
    assert (found["upstream"], found["format"]) == ("anthropic", "anthropic-messages")


@pytest.mark.parametrize("form", FORMS)
def test_a_body_tells_its_format(form: str) -> None:
    body = Talk(form).ask("Read.").rounds(1).body
    guessed = guessed_path(json.dumps(body)).replace("gemini:", "m:")
    assert guessed.rpartition("/")[2] == PATHS[form].rpartition("/")[2].replace("gemini-2.5-flash:", "m:")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"messages": null}', '{"messages": [1, {"content": [null]}]}', "[" * 100_000]
)
def test_what_tells_nothing_counts_as_chat(text: str) -> None:
    assert guessed_path(text) == "/v1/chat/completions"
