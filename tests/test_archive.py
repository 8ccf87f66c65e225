"""What is kept of removed items: named, linked, readable as a whole, and without the weight of pictures."""

from __future__ import annotations

import base64
import json
import re
from random import Random
from typing import Any

import pytest

from app.archive import Draft, address_of, draft_archive, draft_of_result, full_document, id_in, sanitised
from app.edge.stores.memory import MemoryStore
from app.records import Archive
from tests.story import BASE, House, Talk, policy, words

CHAIN = [b"1" * 16, b"2" * 16]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + Random(1).randbytes(992)).decode()
WAV = base64.b64encode(b"RIFF" + Random(2).randbytes(999)).decode()


def draft(tenant: str = "t", session: str = "s", number: int = 1, chain: list[bytes] | None = None) -> Draft:
    return draft_archive(BASE, tenant, session, chain or CHAIN, number)


# Names


def test_the_name_tells_session_time_and_number() -> None:
    made = draft(number=7)
    assert re.fullmatch(r"compaction_s_\d{8}T\d{6}Z_7_[0-9a-f]{8}", made.id)
    assert re.fullmatch(r"[0-9a-f]{32}", made.capability)
    assert (
        made.address
        == address_of(BASE, made.id, made.capability)
        == f"{BASE}/compactd/archives/{made.id}/{made.capability}"
    )
    assert id_in(made.address) == made.id
    assert id_in("") == id_in("http://else.where/x") == ""


@pytest.mark.parametrize("session", ["../../etc", "a b/c?d#e", "é😀", "x" * 500, "", "a\nb"])
def test_a_name_is_safe_whatever_the_session_is_called(session: str) -> None:
    made = draft(session=session)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,120}", made.id)
    assert made.session == session


def test_the_secret_part_is_the_same_on_every_replica_and_for_nobody_else() -> None:
    assert draft().capability == draft().capability
    others = [draft(tenant="u"), draft(number=2), draft(chain=[b"3" * 16])]
    assert len({made.capability for made in [draft(), *others]}) == 4
    cut = draft_of_result(BASE, "t", "s", "key")
    assert (
        cut.capability
        == draft_of_result(BASE, "t", "other", "key").capability
        != draft_of_result(BASE, "u", "s", "key").capability
    )


# Documents


def test_a_document_says_where_it_comes_from() -> None:
    earlier = draft(number=1)
    record = draft(number=2).filled([(3, b'{"role": "user"}')], earlier.address, "summarize", 1, "openai-chat", "m")
    document = json.loads(record.document)
    assert document["items"] == [{"index": 3, "item": {"role": "user"}}]
    assert (document["id"], document["previous"], record.previous) == (record.id, earlier.id, earlier.id)
    assert (document["strategy"], document["level"], document["format"], document["model"]) == (
        "summarize",
        1,
        "openai-chat",
        "m",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["created"])
    assert (record.tenant, record.session) == ("t", "s")


def test_a_document_keeps_odd_text() -> None:
    record = draft().filled([(0, b'{"content":"\\ud800 \\u00e9", "n":1e2}')], "", "s", 1, "f", "m")
    assert json.loads(record.document)["items"][0]["item"] == {"content": "\ud800 é", "n": 100.0}


def made(number: int, indices: list[int], previous: str, tenant: str = "t") -> Archive:
    items = [(index, json.dumps({"from": number}).encode()) for index in indices]
    return draft(tenant=tenant, number=number).filled(items, previous, "s", 1, "f", "m")


def link(archive: Archive) -> str:
    return address_of(BASE, archive.id, archive.capability)


async def test_reading_gives_the_whole_chain_in_order() -> None:
    store = MemoryStore()
    first = made(1, [0, 1], "")
    second = made(2, [1, 4], link(first))
    third = made(3, [2], link(second))
    for archive in (first, second, third):
        await store.put_archive(archive)
    document = await full_document(store, third)
    assert [(item["index"], item["item"]["from"]) for item in document["items"]] == [(0, 1), (1, 2), (2, 3), (4, 2)]
    assert document["id"] == third.id


async def test_a_chain_ends_where_a_link_is_gone_or_somebody_elses() -> None:
    store = MemoryStore()
    theirs = made(1, [0], "", tenant="u")
    await store.put_archive(theirs)
    for previous in (link(theirs), "http://x/compactd/archives/gone/1", ""):
        assert len((await full_document(store, made(2, [3], previous)))["items"]) == 1


async def test_a_chain_that_bites_its_tail_ends() -> None:
    store = MemoryStore()
    first = made(1, [0], "")
    second = made(2, [1], link(first))
    await store.put_archive(Archive(first.id, "", "t", "s", 0.0, second.id, first.document))
    await store.put_archive(second)
    assert len((await full_document(store, second))["items"]) == 2


@pytest.mark.parametrize(
    "rules",
    [policy(), policy(strategy="summarize"), policy(strategy="tool_result_clearing"), policy(strategy="combined")],
)
async def test_every_item_that_left_is_in_it(rules: Any) -> None:
    """Over several compactions, in the state that the client sent it in."""
    house = House()
    talk = Talk()
    for n in range(12):
        talk.ask(f"{n}. {words(60)}").round(150, ident=f"r{n}").answer()
        outcome = await house.decide(talk.ask("And?"), rules)
        kept = {json.dumps(item) for item in json.loads(outcome.body)["messages"]}
        gone = [item for item in talk.items if json.dumps(item) not in kept]
        if gone:
            found = await full_document(house.store, await house.archive(outcome))
            there = {item["index"]: item["item"] for item in found["items"]}
            assert all(there[talk.items.index(item)] == item for item in gone)
            assert all(talk.items[index] == item for index, item in there.items())
        talk.answer()
    assert gone


# Media


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"type": "base64", "media_type": "image/png", "data": PNG}, "[base64 image data: 1008 bytes, image/png]"),
        ({"mimeType": "audio/wav", "data": WAV}, "[base64 audio data: 1003 bytes, audio/wav]"),
        ({"mime_type": "application/pdf", "data": WAV}, "[base64 data: 1003 bytes, application/pdf]"),
        ({"data": WAV, "format": "wav"}, "[base64 audio data: 1003 bytes, wav]"),
        ({"media_type": "image/png", "data": PNG.rstrip("=")}, "[base64 image data: 1008 bytes, image/png]"),
    ],
)
def test_a_mediums_data_becomes_a_line(value: dict[str, Any], said: str) -> None:
    assert sanitised(value) == {**value, "data": said}
    assert sanitised([{"deep": [value]}]) == [{"deep": [{**value, "data": said}]}]


def test_a_data_url_becomes_a_line_and_what_stands_around_it_stays() -> None:
    said = "[base64 image data: 1008 bytes, image/png]"
    url = f"data:image/png;base64,{PNG}"
    assert sanitised({"image_url": {"url": url, "detail": "low"}}) == {"image_url": {"url": said, "detail": "low"}}
    assert sanitised(f"data:image/png;charset=x;base64,{PNG}") == said
    assert sanitised(f"Here: {url} and {url}.") == f"Here: {said} and {said}."
    assert sanitised(json.dumps({"a": url})) == json.dumps({"a": said})


def test_a_picture_without_a_word_about_it_becomes_a_line() -> None:
    said = "[base64 image data: 1008 bytes, image/png]"
    assert sanitised({"type": "image_generation_call", "result": PNG}) == {
        "type": "image_generation_call",
        "result": said,
    }


@pytest.mark.parametrize(
    "value",
    [
        "a" * 5_000,
        {"data": "a" * 5_000},
        {"data": "0123456789abcdef" * 100, "format": "hex"},
        {"format": "text/plain", "data": words(900)},
        {"media_type": 7, "data": "a" * 900},
        {"data": {"data": [1, None, True, 2.5]}},
        "data:text/plain;base64,QUFB and a question",
        "/9j/ is how it begins " + words(500),
        PNG[:300],
    ],
)
def test_all_other_text_stays_word_for_word(value: Any) -> None:
    assert sanitised(value) == value


def test_the_name_gives_nothing_of_the_capability_away() -> None:
    """Names are seen where addresses are not: in lists, and as names of files."""
    drafts = [draft_archive("http://h", "t", "s", [bytes([n]) * 16], 1) for n in range(50)]
    drafts += [draft_of_result("http://h", "t", "s", f"key{n}") for n in range(50)]
    tags = [draft.id.rsplit("_", 1)[1] for draft in drafts]
    assert len(set(tags)) == len(tags)
    assert not any(tag in draft.capability for tag, draft in zip(tags, drafts, strict=True))
    assert {len(draft.capability) for draft in drafts} == {32}
