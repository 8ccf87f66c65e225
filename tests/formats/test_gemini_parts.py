"""Gemini's parts: what calls, what answers, what can be read."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from app.core.media import Image
from app.formats.gemini_parts import (
    Answers,
    calls_of,
    camel,
    canonical_parts,
    is_known,
    open_ends,
    parts_of,
    results_of,
    says_something,
)
from app.formats.media import image_of

PNG = "iVBORw0KGgoAAAANSUhEUgAAAgAAAAIACAIAAAB7GkOtAAAAAElFTkSuQmCC"  # 512 x 512


def called(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"path": "a"}, **more}}


def answered(name: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": text}, **more}}


def test_G33_both_spellings_are_read_and_kept_in_paths() -> None:
    snake = [{"function_call": {"name": "ls", "args": {"path": "a"}}}, {"text": "x"}]
    assert [(call.tool, call.path) for call in calls_of(snake)] == [("ls", ("parts", 0, "function_call", "args"))]
    assert [call.path for call in calls_of([called("ls")])] == [("parts", 0, "functionCall", "args")]
    answer = [{"function_response": {"name": "ls", "response": {"output": "x"}}}]
    assert [result.path for result in results_of(answer)] == [("parts", 0, "function_response", "response")]
    assert camel({"thought_signature": "s", "inlineData": {}, "null": None}) == {
        "thoughtSignature": "s",
        "inlineData": {},
    }


def test_G9_second_answer_to_one_id_belongs_to_the_first() -> None:
    parts = [answered("ls", id="1"), answered("ls", id="2"), answered("ls", id="1"), answered("ls", id="2")]
    results = list(results_of(parts))
    assert [(result.id, result.path[1]) for result in results] == [("1", 0), ("2", 1)]
    assert [at for at, _, _ in Answers(parts).at(results[1].path)] == [1, 3]


def test_G3_answers_without_ids_each_count() -> None:
    parts = [answered("ls"), answered("ls")]
    results = list(results_of(parts))
    assert [(result.id, result.tool) for result in results] == [("", "ls"), ("", "ls")]
    assert [at for at, _, _ in Answers(parts).at(results[0].path)] == [0]


def test_G11_a_signed_call_keeps_its_arguments() -> None:
    (call,) = calls_of([called("ls")])
    assert call.clearable
    assert call.size == len('{"path":"a"}')
    for key in ("thoughtSignature", "thought_signature"):
        (call,) = calls_of([called("ls") | {key: "c2ln"}])
        assert not call.clearable
    (call,) = calls_of([{"functionCall": {"name": "now"}}])
    assert not call.clearable, "nothing to clear"


def test_G25_G26_what_the_provider_ran_pairs_only_across_contents() -> None:
    code, result = {"executableCode": {"code": "1+1"}}, {"codeExecutionResult": {"output": "2"}}
    call, response = (
        {"toolCall": {"id": "t1", "toolType": "URL_CONTEXT"}},
        {"toolResponse": {"id": "t1", "response": {}}},
    )
    assert open_ends([{"text": "x"}, code, result, call, response]) == ([], [])
    calls, results = open_ends([result, response, code, call])
    assert [one.id for one in calls] == ["t1", ""]
    assert [one.id for one in results] == ["t1", ""]
    assert not any(one.clearable for one in (*calls, *results))


@pytest.mark.parametrize(
    "part",
    [{}, {"text": ""}, {"thoughtSignature": "s"}, {"inline_data": {}}, called("ls"), {"text": "x", "newHint": 1}],
)
def test_known_parts(part: dict[str, Any]) -> None:
    assert is_known(part)


@pytest.mark.parametrize("part", [{"hologram": {}}, {"thoughtSignature": "s", "hologram": {}}, "text", None, 3, []])
def test_X5_unknown_parts(part: Any) -> None:
    assert not is_known(part)


def test_says_something() -> None:
    assert says_something({"text": "x"})
    assert says_something({"inlineData": {"data": "AA"}})
    assert not says_something({"text": "", "thoughtSignature": "s"})
    assert not says_something({})


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"text": "hi"}, [("text", "hi", "")]),
        ({"text": "hm", "thought": True}, [("reasoning", "hm", "")]),
        (called("ls"), [("call", '{"path":"a"}', "ls")]),
        (answered("ls", "a.py"), [("result", "a.py", "")]),
        ({"functionResponse": {"name": "f", "response": {"a": 1, "b": 2}}}, [("result", '{"a":1,"b":2}', "")]),
        ({"executable_code": {"language": "PYTHON", "code": "1+1"}}, [("call", "1+1", "code_execution")]),
        ({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}, [("result", "2", "")]),
        ({"toolCall": {"toolType": "URL_CONTEXT", "args": {"u": 1}}}, [("call", '{"u":1}', "URL_CONTEXT")]),
        ({"inlineData": {"mimeType": "audio/wav", "data": "AA"}}, [("media", "audio/wav", "")]),
        ({"file_data": {"mime_type": "video/mp4", "file_uri": "https://x"}}, [("media", "video/mp4", "")]),
        ({"hologram": {"a": 1}}, [("text", '{"hologram":{"a":1}}', "")]),
        ({}, []),
    ],
)
def test_parts(part: dict[str, Any], read: list[tuple[str, str, str]]) -> None:
    assert [(found.kind, found.text, found.name) for found in parts_of([part])] == read


def test_pictures_count_by_their_size_also_inside_an_answer() -> None:
    shown = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    (media,) = parts_of([shown])
    assert media.image == image_of(PNG) != Image()
    (closely,) = parts_of([{**shown, "mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"}}])
    assert closely.image == image_of(PNG, "MEDIA_RESOLUTION_HIGH")
    inside = [part for part in parts_of([answered("shot", parts=[shown])]) if part.kind == "media"]
    assert inside == [media]


def test_canonical_parts_are_what_clients_do_not_change() -> None:
    signed = [
        {"text": "hm", "thought": True},
        called("ls", id="1") | {"thoughtSignature": "c2ln"},
        {"text": "", "thought_signature": "s"},
    ]
    assert canonical_parts(signed) == canonical_parts([called("ls", id="1")])
    assert canonical_parts([answered("ls", id="1"), answered("ls", id="1")]) == canonical_parts(
        [answered("ls", id="1")]
    )
    assert canonical_parts([answered("ls"), answered("ls")]) != canonical_parts([answered("ls")])
    assert canonical_parts([answered("ls", "x", id="1"), answered("ls", "y", id="1")]) != canonical_parts(
        [answered("ls", id="1")]
    )
    assert canonical_parts([{"function_call": {"name": "ls", "args": {}}}]) == canonical_parts(
        [{"functionCall": {"name": "ls", "args": {}}}]
    )


def test_recordings_and_pages_count_by_their_length() -> None:
    def tokens(kind: str, data: str) -> int:
        return sum(part.tokens for part in parts_of([{"inlineData": {"mimeType": kind, "data": data}}]))

    minute = base64.b64encode(
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + struct.pack("<II", 16_000, 32_000) + b"\0" * 60 * 32_000
    )
    assert tokens("audio/wav", minute.decode()) == pytest.approx(60 * 32, rel=0.01)
    assert tokens("video/mp4", "A" * 4_000_000) == pytest.approx(24 * 300, rel=0.01)
    assert (
        tokens("application/pdf", base64.b64encode(b"%PDF-1.4" + b"<< /Type /Page >>" * 3 + b" " * 2_000).decode())
        == 3 * 560
    )
