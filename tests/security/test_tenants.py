"""Two credentials, one history: nothing that is kept for one is ever used for, or shown to, the other.

Asked of every format over a real server, with a store that can be looked into. Both say the same, name the same session and come at the
same time; all that differs is the key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.archive import full_document
from app.edge.stores.memory import MemoryStore
from tests.edge.talks import HISTORY, MODELS, Talk, compacted, texts
from tests.edge.wire import Answer, Running, compactd, configured, request
from tests.story import House, policy
from tests.story import Talk as Story
from tests.strict.answers import Reply
from tests.strict.server import Rejection, StrictProvider

EVERY = pytest.mark.parametrize("form", MODELS)
POLICIES: list[dict[str, Any]] = [
    {"name": "clear", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1},
    {
        "name": "sum", "strategy": "summarize", "trigger_threshold": 1_000, "target_threshold": 500, "keep_user_messages": 0,
        "keep_values": 0,
    },
    {"name": "cap", "strategy": "sliding_window", "max_tool_result_tokens": 100},
]  # fmt: skip
SESSION = "x-compactd-session: the-very-same"


@asynccontextmanager
async def house(**sections: Any) -> AsyncIterator[tuple[Running, StrictProvider]]:
    provider = StrictProvider(answer=lambda *_: Reply(f"Summary number {len(provider.requests)}."))
    sections = {"policies": POLICIES, **sections}
    async with provider.serve() as url, compactd(configured(url, **sections)) as proxy:
        yield proxy, provider


def loop(form: str, key: str) -> Talk:
    return Talk(form, key=key).ask("Read all of it.").rounds(8, "line of a file\n" * 300)


def long(form: str, key: str) -> Talk:
    talk = Talk(form, key=key)
    for number in range(12):
        talk.ask(f"Question {number}. " + "word " * 100).say(f"Answer {number}.")
    return talk.ask("And now?")


def kept(proxy: Running) -> MemoryStore:
    store = proxy.app.store._store
    assert isinstance(store, MemoryStore)
    return store


@EVERY
async def test_a_window_that_one_clients_refusal_names_is_nobody_elses(form: str) -> None:
    """Providers quote what they refuse, so whoever sends a request can choose words of its refusal."""
    wide = [{"name": "wide", "strategy": "sliding_window", "keep_recent_messages": 3}]
    quoted = Rejection(400, "Invalid value: 'maximum context length is 1200 tokens'.")
    async with house(policies=wide) as (proxy, provider):
        provider.reject = lambda seen: None if compacted(seen.body) else quoted
        assert (await proxy.ask(long(form, "key-one").request())).told[0] == "compacted"
        provider.reject = None
        assert (await proxy.ask(long(form, "key-one").say("So.").ask("And?").request())).told[0] == "replayed"
        assert (await proxy.ask(long(form, "key-two").request())).told == ("passed", "below_threshold")


@pytest.mark.parametrize("form", ["openai-chat", "anthropic-messages", "gemini"])
async def test_a_quirk_that_one_clients_refusal_gives_away_is_nobody_elses(form: str) -> None:
    low = [
        {
            "name": "low",
            "strategy": "sliding_window",
            "keep_recent_messages": 3,
            "trigger_threshold": 1_000,
            "target_threshold": 500,
        }
    ]
    async with house(policies=low) as (proxy, provider):
        provider.reject = lambda seen: Rejection(400, "roles must alternate") if compacted(seen.body) else None
        assert (await proxy.ask(long(form, "key-one").request())).told == ("failed", "rejected")
        provider.reject = None
        for key, alone in (("key-one", False), ("key-two", True)):
            assert (await proxy.ask(long(form, key).say("So.").ask("And?").request())).told[0] == "compacted"
            first, *_ = provider.requests[-1].body[HISTORY[form]]  # type: ignore[index]
            assert ("And now?" not in json.dumps(first)) is alone


@EVERY
async def test_no_checkpoint_is_shared(form: str) -> None:
    async with house() as (proxy, provider):
        first = await proxy.ask(loop(form, "key-one").request("x-compactd-policy: clear"))
        assert first.told[0] == "compacted"
        other = await proxy.ask(loop(form, "key-two").request("x-compactd-policy: clear"))
        assert other.told == ("compacted", "threshold")
        again = await proxy.ask(loop(form, "key-one").request("x-compactd-policy: clear"))
        assert again.told[0] == "replayed"
        owners = {tenant for tenant, _ in kept(proxy)._checkpoints._entries}
        assert len(owners) == 2
        assert not any("key-" in owner for owner in owners)
    assert first["x-compactd-archive"] != other["x-compactd-archive"]
    assert again["x-compactd-archive"] == first["x-compactd-archive"]
    mine, theirs = (json.dumps(seen.body) for seen in provider.requests[:2])
    address = first["x-compactd-archive"].rsplit("/", 1)[1]
    assert address in mine
    assert address not in theirs


@EVERY
async def test_no_recap_is_shared_though_both_come_at_once(form: str) -> None:
    """One flight for each: who waits for the other's summary would get it."""
    async with house() as (proxy, provider):
        asked = [long(form, key).request("x-compactd-policy: sum", SESSION) for key in ("key-one", "key-two")]
        answers = await asyncio.gather(*(proxy.ask(data) for data in asked))
        assert [answer.told[0] for answer in answers] == ["compacted"] * 2
    summaries = [seen for seen in provider.requests if b"<transcript>" in seen.raw]
    assert len(summaries) == 2
    recaps = [
        next(text for text in texts(seen.body) if "<compaction_summary>" in text)
        for seen in provider.requests
        if b"<transcript>" not in seen.raw
    ]
    assert len(set(recaps)) == 2
    keys = [{value for name, value in seen.headers if "key-" in value} for seen in summaries]
    assert keys[0] != keys[1]


@EVERY
async def test_no_session_is_shared_whatever_a_client_calls_it(form: str) -> None:
    async with house() as (proxy, _):
        counts = []
        for key in ("key-one", "key-one", "key-two"):
            talk = loop(form, key).rounds(8 * (counts.count("1") or 0), first=8)
            answer = await proxy.ask(talk.request("x-compactd-policy: clear", SESSION))
            counts.append(answer["x-compactd-compactions"])
        assert counts == ["1", "2", "1"]
        sessions = [name for _, name in kept(proxy)._sessions._entries]
        assert sessions == ["the-very-same"] * 2


@EVERY
async def test_no_archive_of_a_result_is_shared(form: str) -> None:
    async with house() as (proxy, provider):
        for key in ("key-one", "key-two"):
            await proxy.ask(loop(form, key).request("x-compactd-policy: cap"))
        found = [{text for text in texts(seen.body) if "/compactd/archives/" in text} for seen in provider.requests]
        assert all(found)
        assert not found[0] & found[1]


async def test_reading_an_archive_never_follows_a_link_into_anothers() -> None:
    """A forged link: an archive that names another tenant's as the one before it."""
    first, second = House(), House()
    store = first.store
    talk = Story().ask("Read.")
    for _ in range(12):
        talk.round()
    rules = policy(strategy="tool_result_clearing", keep_recent_tool_results=1)
    theirs = await first.archive(await first.decide(talk, rules, tenant="theirs"))
    mine = await second.archive(await second.decide(talk, rules, tenant="mine"))
    forged = replace(mine, previous=theirs.id)
    own = {item["index"] for item in (await full_document(store, mine))["items"]}
    assert {item["index"] for item in (await full_document(store, forged))["items"]} == own
    assert forged.previous
    linked = replace(mine, previous=theirs.id, tenant="theirs", document=b'{"items": []}')
    assert (await full_document(store, linked))["items"], "the link would have been followed for its owner"


async def test_leases_are_named_by_tenant() -> None:
    names: list[str] = []

    class Watched(MemoryStore):
        async def acquire(self, name: str, seconds: float) -> str | None:
            names.append(name)
            return await super().acquire(name, seconds)

    one = House(store=Watched())
    for tenant in ("one", "two"):
        await one.decide(Story.of(12), policy(strategy="summarize"), tenant=tenant)
    assert len(set(names)) == len(names) >= 2
    half = len(names) // 2
    assert ["one" in name.split(" ") for name in names] == [True] * half + [False] * half
    assert ["two" in name.split(" ") for name in names] == [False] * half + [True] * half


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("authorization: Bearer key-one", ""),
        ("x-api-key: key-one", ""),
        ("x-goog-api-key: key-one", ""),
        ("api-key: key-one", ""),
        ("x-none: 1", "?key=key-one"),
    ],
)
async def test_every_way_to_bring_a_key_makes_a_tenant(line: str, query: str) -> None:
    async with house() as (proxy, _):

        async def ask(line: str, query: str) -> Answer:
            body = json.dumps(loop("openai-chat", "").body).encode()
            return await proxy.ask(
                request("POST", f"/v1/chat/completions{query}", line, "x-compactd-policy: clear", body=body)
            )

        first = await ask(line, query)
        other = await ask(line.replace("key-one", "key-two"), query.replace("key-one", "key-two"))
        again = await ask(line, query)
        assert [answer.told[0] for answer in (first, other, again)] == ["compacted", "compacted", "replayed"]
        assert (await ask("x-none: 1", "")).told[0] == "compacted"  # nobody is a tenant too
