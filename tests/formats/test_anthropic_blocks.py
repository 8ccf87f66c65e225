"""What can be read in Anthropic blocks, what it weighs, which of them pair."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from app.core.media import Image
from app.formats.anthropic_blocks import assistant_pairs, blocks_of, canonical, readable, results_of
from app.formats.base import Part
from app.formats.media import image_of

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 750, 1000) + b"x" * 90).decode()


def parts(value: Any) -> list[Part]:
    return list(readable(value, "text"))


def test_content_is_a_string_or_a_list_of_objects() -> None:
    assert blocks_of("a") == [{"type": "text", "text": "a"}]
    assert blocks_of("") == []
    assert blocks_of([{"type": "x"}]) == [{"type": "x"}]
    assert blocks_of(None) is blocks_of(["a"]) is blocks_of({}) is None


@pytest.mark.parametrize(
    ("source", "name", "image"),
    [
        ({"type": "base64", "media_type": "image/png", "data": PNG}, "image/png", image_of(PNG)),
        ({"type": "base64", "media_type": "image/png", "data": "????"}, "image/png", Image()),
        ({"type": "url", "url": "https://x/y.png"}, "image", Image()),
        (None, "image", Image()),
    ],
)
def test_image_weighs_by_its_pixels(source: Any, name: str, image: Image) -> None:
    assert parts({"type": "image", "source": source}) == [Part("media", name, image=image)]
    assert image_of(PNG).width > 0


def test_document_weighs_by_its_pages_or_its_text() -> None:
    def document(**source: Any) -> list[Part]:
        return parts({"type": "document", "source": source})

    small, large = (document(type="base64", media_type="application/pdf", data="A" * n) for n in (1_000, 1_000_000))
    assert small == [Part("media", "application/pdf", tokens=2_400)]
    assert large == [Part("media", "application/pdf", tokens=16 * 2_400)]
    assert document(type="file", file_id="file_1")[0].tokens == 1_500
    assert document(type="text", media_type="text/plain", data="words") == [Part("text", "words")]
    assert document(type="content", content=[{"type": "text", "text": "w"}]) == [Part("text", "w")]


def test_sealed_content_weighs_by_its_length_and_is_not_read() -> None:
    told = parts({"type": "web_search_result", "title": "T", "encrypted_content": "x" * 1_600})
    assert told == [Part("text", "T"), Part("media", "encrypted content", tokens=301)]


def test_signatures_markers_and_citations_are_not_read() -> None:
    block = {
        "type": "text", "text": "t", "signature": "s", "cache_control": {"type": "ephemeral"}, "citations": [{"cited_text": "c"}],
    }  # fmt: skip
    assert parts(block) == [Part("text", "t")]


def test_pairs_within_a_message_are_left_out() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {}}
    told = {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}
    assert assistant_pairs([use, told]) == ((), ())
    calls, results = assistant_pairs([use])
    assert ([one.id for one in calls], calls[0].clearable, results) == (["srvtoolu_1"], False, ())
    calls, results = assistant_pairs([told])
    assert (calls, [one.id for one in results], results[0].clearable) == ((), ["srvtoolu_1"], False)


def test_odd_blocks_do_not_break_pairing() -> None:
    odd: list[dict[str, Any]] = [
        {"type": ["tool_use"], "id": {}},
        {"type": "tool_use", "id": [], "name": 3, "input": None, "caller": "x"},
    ]
    calls, results = assistant_pairs(odd)
    assert [(one.id, one.tool, one.size, one.clearable) for one in calls] == [("", "", 0, False)]
    assert results == ()
    assert results_of([{"type": "tool_result", "tool_use_id": 4, "content": [7, {"type": []}]}])[0].id == ""


def test_canonical_drops_markers_at_any_depth_but_not_in_inputs() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    inner = [{"type": "text", "text": "x", **mark}, {"type": "image", **mark}]
    still = [{"type": "text", "text": "x"}, {"type": "image"}]
    result = {"type": "tool_result", "tool_use_id": "t"}
    assert canonical([{**result, "content": inner, **mark}]) == [{**result, "content": still}]
    call = [
        {
            "type": "tool_use",
            "id": "t",
            "name": "n",
            "input": {**mark, "content": [{"type": "text", "text": "x"}], "none": None},
        }
    ]
    assert canonical(call) == call
