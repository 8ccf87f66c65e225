"""The simulated prompt cache: what a second request finds of the first."""

from __future__ import annotations

from typing import Any

from .prefix_cache import PrefixCache, Usage
from .samples import anthropic, assistant, chat, content, gemini, text, user
from .tokens import measure

LONG = "word " * 1000
MARK = {"cache_control": {"type": "ephemeral"}}


def use(cache: PrefixCache, form: str, body: dict[str, Any], owner: str = "me", model: str = "m") -> Usage:
    return cache.use(owner, form, model, body, measure(form, body))


def test_openai_counts_the_longest_known_prefix_in_steps() -> None:
    cache = PrefixCache()
    first, longer = chat(user(LONG)), chat(user(LONG), assistant("Fine."), user("And?"))
    assert use(cache, "openai-chat", first).cached == 0
    again = use(cache, "openai-chat", longer)
    assert again.cached == 1152  # 1,254 tokens in steps of 128
    assert again.prompt > again.cached
    assert use(cache, "openai-chat", chat(user(LONG + "!"), user("And?"))).cached == 0


def test_a_short_prefix_is_not_cached() -> None:
    cache = PrefixCache()
    assert [use(cache, "openai-chat", chat(user("hi"))).cached for _ in range(2)] == [0, 0]
    small = PrefixCache(minimum=1, step=1)
    assert [use(small, "openai-chat", chat(user("hi"))).cached for _ in range(2)] == [0, 5]


def test_credentials_and_models_do_not_share() -> None:
    cache = PrefixCache()
    body = gemini(content("user", LONG))
    assert use(cache, "gemini", body).cached == 0
    assert use(cache, "gemini", body, owner="other").cached == 0
    assert use(cache, "gemini", body, model="other").cached == 0
    assert use(cache, "gemini", body).cached == 1254


def test_other_tools_are_another_prefix() -> None:
    cache = PrefixCache()
    use(cache, "openai-chat", chat(user(LONG), tools=[{"name": "a"}]))
    assert use(cache, "openai-chat", chat(user(LONG), tools=[{"name": "b"}])).cached == 0
    assert use(cache, "openai-chat", chat(user(LONG), tools=[{"name": "a"}])).cached > 0


def test_anthropic_writes_only_at_markers() -> None:
    cache = PrefixCache()
    assert use(cache, "anthropic-messages", anthropic(user(LONG), tools=[])) == Usage(1254)
    marked = anthropic(user(text(LONG, **MARK)), tools=[])
    assert use(cache, "anthropic-messages", marked) == Usage(1254, cached=0, written=1254)
    assert use(cache, "anthropic-messages", marked) == Usage(1254, cached=1254, written=0)


def test_anthropic_reads_behind_a_marker_that_moved() -> None:
    cache = PrefixCache()
    use(cache, "anthropic-messages", anthropic(user(text(LONG, **MARK)), tools=[]))
    grown = anthropic(user(LONG), assistant("Fine."), user(text("And?", **MARK)), tools=[])
    usage = use(cache, "anthropic-messages", grown)
    assert (usage.cached, usage.written) == (1254, usage.prompt - 1254)


def test_anthropic_looks_back_20_blocks() -> None:
    def grown(blocks: int) -> int:
        cache = PrefixCache()
        use(cache, "anthropic-messages", anthropic(user(text(LONG, **MARK)), tools=[]))
        between = [assistant("Fine."), user("And?")] * (blocks // 2)
        return use(
            cache, "anthropic-messages", anthropic(user(LONG), *between, user(text("Now?", **MARK)), tools=[])
        ).cached

    assert grown(18) == 1254
    assert grown(22) == 0


def test_anthropic_automatic_marker_is_on_the_last_item() -> None:
    cache = PrefixCache()
    body = anthropic(user(LONG), tools=[], **MARK)
    assert use(cache, "anthropic-messages", body).written == 1254
    assert use(cache, "anthropic-messages", body).cached == 1254


def test_half_a_surrogate_pair_is_a_character_like_others() -> None:
    cache = PrefixCache(minimum=0, step=1)
    body = {"model": "\ud800", "messages": [{"role": "user", "content": "\ud83d"}]}
    size = measure("openai-chat", body)
    assert cache.use("k", "openai-chat", "\ud800", body, size).cached == 0
    assert cache.use("k", "openai-chat", "\ud800", body, size).cached == size.total > 0
