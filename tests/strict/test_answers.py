"""The grammars: a stream says the same as the whole answer, in the events that the provider documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .answers import Answer, Call, Reply, chat, generate, messages, pieces, responses
from .prefix_cache import Usage

REPLY = Reply(
    "Here is a somewhat longer answer.", (Call("read", {"path": "a.py"}), Call("list")), "Let me think a bit."
)
ANSWER = Answer(REPLY, Usage(1000, 50, 640, 100, 5), "m-1", "0123456789abcdef" * 2, "seal")


def events(raw: Any) -> list[tuple[str, Any]]:
    """(event name, data) of each server-sent event."""
    parsed = []
    for block in b"".join(raw).decode().replace("\r\n", "\n").strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        parsed.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return parsed


def test_pieces_add_up() -> None:
    assert "".join(pieces("a" * 50)) == "a" * 50
    assert list(pieces("")) == []


def test_chat_chunks_add_up_to_the_message() -> None:
    *chunks, usage, done = [data for _, data in events(chat.events(ANSWER))]
    message = chat.whole(ANSWER)["choices"][0]["message"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    for n, call in enumerate(message["tool_calls"]):
        mine = [part for part in calls if part["index"] == n]
        assert mine[0]["id"] == call["id"]
        assert "".join(part["function"]["arguments"] for part in mine) == call["function"]["arguments"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "tool_calls"]
    assert (usage["choices"], usage["usage"], done) == ([], chat.usage(ANSWER), "[DONE]")


def test_U2_chat_usage_comes_only_if_asked() -> None:
    assert {chunk["usage"] for _, chunk in events(chat.events(ANSWER))[:-2]} == {None}
    unasked = Answer(REPLY, ANSWER.usage, "m-1", ANSWER.seed, with_usage=False)
    chunks = [data for _, data in events(chat.events(unasked))][:-1]
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_U1_chat_counts_cached_tokens_in() -> None:
    use = chat.usage(ANSWER)
    assert (use["prompt_tokens"], use["prompt_tokens_details"]["cached_tokens"], use["total_tokens"]) == (
        1000,
        640,
        1050,
    )


def test_responses_events_add_up_to_the_response() -> None:
    stream = events(responses.events(ANSWER))
    assert [data["sequence_number"] for _, data in stream] == list(range(len(stream)))
    assert all(name == data["type"] for name, data in stream)
    names = [name for name, _ in stream]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert stream[-1][1]["response"] == responses.whole(ANSWER)
    output = responses.output(ANSWER)
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert [data["item"] for name, data in stream if name == "response.output_item.done"] == output
    for kind, whole in (("output_text", REPLY.text), ("reasoning_summary_text", REPLY.thinking)):
        assert "".join(data["delta"] for name, data in stream if name == f"response.{kind}.delta") == whole
    for item in output[2:]:
        deltas = [data for name, data in stream if name == "response.function_call_arguments.delta"]
        assert "".join(data["delta"] for data in deltas if data["item_id"] == item["id"]) == item["arguments"]
    for kind in ("output_item", "content_part", "reasoning_summary_part"):
        assert names.count(f"response.{kind}.added") == names.count(f"response.{kind}.done") > 0


def test_U5_responses_usage() -> None:
    use = responses.usage(ANSWER)
    assert (use["input_tokens"], use["input_tokens_details"]["cached_tokens"], use["total_tokens"]) == (1000, 640, 1050)
    assert use["output_tokens_details"]["reasoning_tokens"] == 5


def test_anthropic_events_add_up_to_the_message() -> None:
    stream = events(messages.events(ANSWER))
    names = [name for name, _ in stream]
    assert all(name == data["type"] for name, data in stream)
    assert (names[:2], names[-2:]) == (["message_start", "ping"], ["message_delta", "message_stop"])
    whole = messages.whole(ANSWER)
    blocks: list[Any] = []
    for name, data in stream:
        if name == "content_block_start":
            blocks.append(dict(data["content_block"], partial=""))
        elif name == "content_block_delta":
            block, delta = blocks[data["index"]], data["delta"]
            key = {"input_json_delta": "partial_json"}.get(delta["type"], delta["type"].removesuffix("_delta"))
            target = "partial" if key == "partial_json" else key
            block[target] += delta[key]
    for block in blocks:
        partial = block.pop("partial")
        if block["type"] == "tool_use":
            block["input"] = json.loads(partial or "{}")
    assert blocks == whole["content"]
    assert names.count("content_block_stop") == len(blocks)
    delta = stream[-2][1]
    assert (delta["delta"]["stop_reason"], delta["usage"]) == (whole["stop_reason"], whole["usage"])
    assert stream[0][1]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]


def test_U7_anthropic_input_leaves_the_cache_out() -> None:
    use = messages.usage(ANSWER, 50)
    assert [use[f"{key}input_tokens"] for key in ("", "cache_creation_", "cache_read_")] == [260, 100, 640]
    assert use["cache_creation"] == {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 0}


@pytest.mark.parametrize("framing", ["sse", "array"])
def test_gemini_chunks_add_up_to_the_candidate(framing: str) -> None:
    if framing == "sse":
        assert all(event.endswith(b"\r\n\r\n") for event in generate.events(ANSWER))
        chunks = [data for _, data in events(generate.events(ANSWER))]
    else:
        chunks = json.loads(b"".join(generate.array(ANSWER)))
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    whole = generate.whole(ANSWER)["candidates"][0]
    spoken = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    assert "".join(spoken) == REPLY.text
    assert [part for part in parts if "functionCall" in part] == whole["content"]["parts"][2:]
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks[-2:]] == [None, "STOP"]


def test_G15_a_signature_is_on_the_first_call_or_the_last_text() -> None:
    parts = generate.whole(ANSWER)["candidates"][0]["content"]["parts"]
    assert [index for index, part in enumerate(parts) if "thoughtSignature" in part] == [2]
    words = generate.whole(Answer(Reply("Hello."), Usage(9, 1), "m", ANSWER.seed, "seal"))
    assert words["candidates"][0]["content"]["parts"] == [{"text": "Hello.", "thoughtSignature": "seal"}]


def test_U11_gemini_counts_thoughts_apart() -> None:
    use = generate.usage(ANSWER)
    assert [use[f"{key}TokenCount"] for key in ("prompt", "cachedContent", "candidates", "thoughts", "total")] == [
        1000,
        640,
        45,
        5,
        1050,
    ]
