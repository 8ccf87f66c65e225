"""The oracle's own count: what is read counts, what is opaque does not."""

from __future__ import annotations

import pytest

from .samples import anthropic, chat, content, gemini, items, reasoning, said, text, thinking, user
from .tokens import ITEM_TOKENS, MEDIA_TOKENS, Size, characters, measure


def test_characters_round_up() -> None:
    assert [characters(words) for words in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_a_size_is_head_and_items() -> None:
    size = measure("anthropic-messages", anthropic(user("a" * 40), tools=[], system="b" * 80))
    assert size == Size(20, (ITEM_TOKENS + 10,))
    assert size.total == 34


def test_a_string_input_is_one_item() -> None:
    assert measure("openai-responses", {"input": "a" * 8}).items == (ITEM_TOKENS + 2,)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (
            "anthropic-messages",
            anthropic(user({"type": "image", "source": {"type": "base64", "data": "A" * 9000}}), tools=[]),
        ),
        (
            "openai-chat",
            chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 9000}}]}),
        ),
        ("openai-responses", items({"role": "user", "content": [{"type": "input_image", "image_url": "A" * 9000}]})),
        ("gemini", gemini(content("user", {"inlineData": {"mimeType": "image/png", "data": "A" * 9000}}))),
    ],
)
def test_a_picture_counts_a_fixed_figure(form: str, body: dict[str, object]) -> None:
    assert measure(form, body).total == ITEM_TOKENS + MEDIA_TOKENS


def test_a_text_document_counts_its_words() -> None:
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a" * 400}}
    assert measure("anthropic-messages", anthropic(user(block), tools=[])).total == ITEM_TOKENS + 100


def test_opaque_fields_and_markers_count_nothing() -> None:
    plain = measure("anthropic-messages", anthropic(user("hi"), tools=[]))
    marked = anthropic(user(text("hi", cache_control={"type": "ephemeral"})), tools=[])
    assert measure("anthropic-messages", marked) == plain
    short = measure("anthropic-messages", anthropic(user(thinking("Hm.", "s")), tools=[]))
    assert measure("anthropic-messages", anthropic(user(thinking("Hm.", "s" * 999)), tools=[])) == short
    sealed = items(reasoning(encrypted_content="e" * 9999), said())
    assert measure("openai-responses", sealed) == measure("openai-responses", items(reasoning(), said()))


def test_arguments_count_as_json() -> None:
    short = gemini(content("model", {"functionCall": {"name": "read", "args": {"n": 1}}}))
    long = gemini(content("model", {"functionCall": {"name": "read", "args": {"n": 10**40}}}))
    assert measure("gemini", long).total == measure("gemini", short).total + 10


def test_a_counter_can_be_handed_in() -> None:
    assert (
        measure("openai-chat", chat(user("one two three")), count=lambda words: len(words.split())).total
        == ITEM_TOKENS + 3
    )
