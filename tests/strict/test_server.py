"""The provider over ASGI: what it accepts, refuses, reports and records."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
import zstandard

from .answers import Call, Reply
from .anthropic_betas import BINDING_CONTROLS
from .samples import anthropic, assistant, calls, chat, content, function, gemini, items, response, tool, user
from .server import Rejection, StrictProvider

ANTHROPIC = {"anthropic-version": "2023-06-01", "x-api-key": "key"}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:generateContent",
}
GOOD: dict[str, dict[str, Any]] = {
    "openai-chat": chat(user("Read it.")),
    "openai-responses": items({"role": "user", "content": "Read it."}),
    "anthropic-messages": anthropic(user("Read it.")),
    "gemini": gemini(content("user", "Read it.")),
}
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("C2", chat(tool("a"))),
    "openai-responses": ("R1", items({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"})),
    "anthropic-messages": ("A15", anthropic(assistant("Hello."), user("Hi."))),
    "gemini": ("G6", gemini(content("model", "Hello."))),
}


def client(provider: StrictProvider) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(provider), base_url="http://provider", headers=ANTHROPIC)


async def post(provider: StrictProvider, path: str, body: Any, **more: Any) -> httpx.Response:
    async with client(provider) as http:
        return await http.post(path, json=body, **more)


@pytest.mark.parametrize("form", sorted(PATHS))
async def test_a_good_body_is_answered_and_recorded(form: str) -> None:
    provider = StrictProvider()
    answers = [await post(provider, PATHS[form], GOOD[form]) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content  # the same request gets the same answer
    assert "Read 1 items." in answers[0].text
    seen = provider.requests[0]
    assert (seen.form, seen.path, seen.status, seen.violations, seen.finished) == (form, PATHS[form], 200, [], True)
    assert json.loads(seen.raw) == seen.body == GOOD[form]
    assert seen.usage is not None
    assert seen.tokens == seen.usage.prompt > 0


@pytest.mark.parametrize("form", sorted(PATHS))
async def test_a_broken_body_is_refused_in_the_providers_shape(form: str) -> None:
    provider = StrictProvider()
    rule, body = BROKEN[form]
    answer = await post(provider, PATHS[form], body)
    assert answer.status_code == 400
    violation = provider.requests[0].violations[0]
    assert (violation.rule, answer.json()["error"]["message"]) == (rule, violation.message)
    assert provider.requests[0].usage is None


async def test_quirks_belong_to_the_provider() -> None:
    body = chat(user("a"), user("b"))
    assert (await post(StrictProvider(), PATHS["openai-chat"], body)).status_code == 200
    strict = StrictProvider(quirks=frozenset({"alternating_roles"}))
    assert (await post(strict, PATHS["openai-chat"], body)).status_code == 400


@pytest.mark.parametrize("form", sorted(PATHS))
async def test_a_prompt_above_the_window_overflows(form: str) -> None:
    provider = StrictProvider(window=10)
    answer = await post(provider, PATHS[form], json.loads(json.dumps(GOOD[form]).replace("Read it.", "word " * 20)))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert any(word in error["message"] for word in ("context", "too long", "exceeds"))
    assert provider.requests[0].violations == []


async def test_E2_an_overflow_can_come_inside_the_stream() -> None:
    provider = StrictProvider(window=10, overflow_in_stream=True)
    body = items({"role": "user", "content": "word " * 20}, stream=True)
    answer = await post(provider, PATHS["openai-responses"], body)
    assert answer.status_code == 200
    assert [line for line in answer.text.splitlines() if line.startswith("event")][-1] == "event: response.failed"
    assert "context_length_exceeded" in answer.text


async def test_E5_older_claudes_count_max_tokens_in() -> None:
    provider = StrictProvider(window=1000)
    old = anthropic(user("hi"), tools=[], model="claude-opus-4-1", max_tokens=999)
    assert "exceed context limit" in (await post(provider, PATHS["anthropic-messages"], old)).text
    assert (await post(provider, PATHS["anthropic-messages"], old | {"model": "claude-opus-4-5"})).status_code == 200


async def test_E6_a_body_over_32_mb_is_too_large() -> None:
    async with client(StrictProvider()) as http:
        answer = await http.post("/v1/messages", content=b" " * (32 * 1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")


async def test_E8_a_streamed_gemini_error_without_sse_is_an_array() -> None:
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    bare = await post(StrictProvider(), path, BROKEN["gemini"][1])
    framed = await post(StrictProvider(), path + "?alt=sse", BROKEN["gemini"][1])
    assert bare.json() == [framed.json()]


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("/v1/messages/count_tokens", {"model": "claude-opus-5", "messages": [user("a" * 40)]}, {"input_tokens": 14}),
        (
            "/v1/responses/input_tokens",
            items({"role": "user", "content": "a" * 40}),
            {"object": "response.input_tokens", "input_tokens": 14},
        ),
    ],
)
async def test_counting(path: str, body: Any, answer: Any) -> None:
    assert (await post(StrictProvider(), path, body)).json() == answer


async def test_T2_counting_validates() -> None:
    answer = await post(StrictProvider(), "/v1/messages/count_tokens", BROKEN["anthropic-messages"][1])
    assert answer.status_code == 400


async def test_T1_max_tokens_belongs_to_messages_only() -> None:
    provider = StrictProvider()
    body = anthropic(user("hi"))
    assert (await post(provider, "/v1/messages/count_tokens", body)).status_code == 400
    del body["max_tokens"]
    assert (await post(provider, "/v1/messages/count_tokens", body)).status_code == 200
    assert (await post(provider, "/v1/messages", body)).status_code == 400
    assert [[violation.rule for violation in seen.violations] for seen in provider.requests] == [["T1"], [], ["T1"]]


async def test_T6_gemini_counts_contents_or_a_request() -> None:
    path = "/v1beta/models/gemini-2.5-flash:countTokens"
    inner = gemini(content("user", "a" * 40))
    plain = await post(StrictProvider(), path, inner)
    assert plain.json()["totalTokens"] == 14
    assert (await post(StrictProvider(), path, {"generateContentRequest": inner})).json() == plain.json()
    assert (await post(StrictProvider(), path, {"generateContentRequest": inner} | inner)).status_code == 400


async def test_R35_compact_answers_a_window() -> None:
    ask = {"role": "user", "content": "Read it."}
    answer = await post(
        StrictProvider(), "/v1/responses/compact", items(ask, {"role": "assistant", "content": "Done."})
    )
    assert answer.json()["object"] == "response.compaction"
    assert [answer.json()["output"][0], answer.json()["output"][1]["type"]] == [ask, "compaction"]
    assert (await post(StrictProvider(), PATHS["openai-responses"], items(*answer.json()["output"]))).status_code == 200


async def test_F1_the_version_header_is_required() -> None:
    provider = StrictProvider()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(provider), base_url="http://provider") as http:
        assert (await http.post("/v1/messages", json=GOOD["anthropic-messages"])).status_code == 400
    assert [violation.rule for violation in provider.requests[0].violations] == ["F1"]


async def test_Q21_azure_needs_its_version_but_no_model() -> None:
    path = "/openai/deployments/d1/chat/completions"
    body = {"messages": [user("hi")]}
    assert (await post(StrictProvider(), path + "?api-version=2026-01-01", body)).json()["model"] == "d1"
    assert (await post(StrictProvider(), path, body)).status_code == 400
    assert (await post(StrictProvider(), PATHS["openai-chat"], body)).status_code == 400


async def test_unknown_paths_credentials_and_bodies() -> None:
    provider = StrictProvider(keys=frozenset({"key"}))
    async with client(provider) as http:
        assert (await http.post("/v1/embeddings", json={})).status_code == 404
        assert (await http.get("/v1/messages")).json()["error"]["type"] == "not_found_error"
        assert (await http.post("/v1/messages", content=b"{")).status_code == 400
        assert (await http.post("/v1/messages", content=b"[]")).status_code == 400
        assert (
            await http.post("/v1/messages", json={"model": "m", "max_tokens": 9, "messages": [7]})
        ).status_code == 400
        assert (await http.get("/v1/models", headers={"x-api-key": "other"})).status_code == 401
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "strict-1"
        assert (await http.get("/v1/models/strict-1")).json() == {"id": "strict-1", "type": "model"}
        assert (await http.get("/v1/models/nope")).status_code == 404
        assert (await http.get("/v1beta/models")).json()["models"][0]["name"] == "models/strict-1"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)])
async def test_F3_compressed_bodies_are_read(coding: str, pack: Any) -> None:
    provider = StrictProvider()
    raw = pack(json.dumps(GOOD["openai-responses"]).encode())
    async with client(provider) as http:
        answer = await http.post("/v1/responses", content=raw, headers={"content-encoding": coding})
        broken = await http.post("/v1/responses", content=b"x" + raw, headers={"content-encoding": coding})
    assert (answer.status_code, broken.status_code) == (200, 400)
    assert (provider.requests[0].raw, provider.requests[0].body) == (raw, GOOD["openai-responses"])


async def test_a_rejection_comes_before_all_rules() -> None:
    rejections = iter(
        [Rejection(429, "slow down", headers=(("retry-after", "7"),)), None, Rejection(500, body={"own": 1})]
    )
    provider = StrictProvider(reject=lambda seen: next(rejections) if seen.body else None)
    first, second, third = [await post(provider, PATHS["openai-chat"], GOOD["openai-chat"]) for _ in range(3)]
    assert (first.status_code, first.headers["retry-after"]) == (429, "7")
    assert first.json()["error"]["code"] == "rate_limit_exceeded"
    assert (second.status_code, third.status_code, third.json()) == (200, 500, {"own": 1})


async def test_usage_tells_what_the_cache_knew() -> None:
    provider = StrictProvider()
    words = "word " * 1000
    use = (await post(provider, PATHS["openai-chat"], chat(user(words)))).json()["usage"]
    assert (use["prompt_tokens"], use["prompt_tokens_details"]["cached_tokens"]) == (1254, 0)
    use = (await post(provider, PATHS["openai-chat"], chat(user(words), assistant("Fine."), user("And?")))).json()[
        "usage"
    ]
    assert use["prompt_tokens_details"]["cached_tokens"] == 1152

    marked = {"role": "user", "content": [{"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}]}
    uses = [
        (await post(provider, PATHS["anthropic-messages"], anthropic(marked, tools=[]))).json()["usage"] for _ in "12"
    ]
    counts = [[use[f"{key}input_tokens"] for key in ("", "cache_creation_", "cache_read_")] for use in uses]
    assert counts == [[0, 1254, 0], [0, 0, 1254]]

    uses = [
        (await post(provider, PATHS["gemini"], gemini(content("user", words)))).json()["usageMetadata"] for _ in "12"
    ]
    assert [use.get("cachedContentTokenCount") for use in uses] == [None, 1254]
    assert [use["promptTokenCount"] for use in uses] == [1254, 1254]


async def test_AB1_thinking_is_bound_if_asked_for() -> None:
    provider = StrictProvider(binds_thinking=True)
    body = anthropic(user("Read it."), model="claude-opus-5-1", thinking={"type": "adaptive"})
    blocks = (await post(provider, "/v1/messages", body)).json()["content"]
    assert blocks[0]["type"] == "thinking"
    body["messages"] += [{"role": "assistant", "content": blocks}, user("And?")]
    assert (await post(provider, "/v1/messages", body)).status_code == 200
    body["messages"][0] = user("Summary of before.")
    refused = await post(provider, "/v1/messages", body)
    assert "bound to a different conversation" in refused.json()["error"]["message"]
    body["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    assert (await post(provider, "/v1/messages", body)).status_code == 400
    assert (await post(provider, "/v1/messages", body, headers={"anthropic-beta": BINDING_CONTROLS})).status_code == 200
    assert [[violation.rule for violation in seen.violations] for seen in provider.requests] == [
        [],
        [],
        ["AB1"],
        ["AB2", "AB1"],
        [],
    ]
    assert provider.requests[-1].dropped_thinking == 1


async def test_R10_the_provider_knows_which_reasoning_it_gave() -> None:
    provider = StrictProvider()
    ask = {"role": "user", "content": "Read it."}
    output = (await post(provider, "/v1/responses", items(ask, reasoning={"effort": "low"}))).json()["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert (await post(provider, "/v1/responses", items(ask, *output, ask))).status_code == 200
    answer = await post(provider, "/v1/responses", items(ask, output[1], ask))
    assert answer.json()["error"]["message"].endswith(f"without its required 'reasoning' item: '{output[0]['id']}'.")


async def test_a_scripted_tool_loop_is_accepted_back() -> None:
    def answer(_form: str, body: dict[str, Any]) -> Reply:
        started = len(body.get("messages") or body.get("contents") or ()) > 1
        return Reply("Done.") if started else Reply(calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})))

    provider = StrictProvider(answer=answer)
    asked = (await post(provider, PATHS["openai-chat"], GOOD["openai-chat"])).json()["choices"][0]
    assert asked["finish_reason"] == "tool_calls"
    results = [tool(call["id"]) for call in asked["message"]["tool_calls"]]
    back = await post(provider, PATHS["openai-chat"], chat(user("Read it."), asked["message"], *results))
    assert back.json()["choices"][0]["message"]["content"] == "Done."
    assert calls("a")["tool_calls"][0].keys() == asked["message"]["tool_calls"][0].keys()

    path = "/v1beta/models/gemini-3-pro:generateContent"
    step = (await post(provider, path, GOOD["gemini"])).json()["candidates"][0]["content"]
    assert [("thoughtSignature" in part) for part in step["parts"]] == [True, False]
    answers = content("user", response(), response())
    assert (await post(provider, path, gemini(content("user", "Read it."), step, answers))).status_code == 200
    unsigned = content("model", function(), function())
    assert (await post(provider, path, gemini(content("user", "Read it."), unsigned, answers))).status_code == 400
