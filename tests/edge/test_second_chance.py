"""After a refusal: the client's own request once, or a shorter one once; everything else is the client's to see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.edge.talks import HISTORY, Talk, compacted
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import Answer, Running, chunks, compactd, configured, taken, until
from tests.strict import errors
from tests.strict.answers import Reply
from tests.strict.server import Rejection, Seen, StrictProvider

LOW = {
    "name": "low",
    "strategy": "tool_result_clearing",
    "trigger_threshold": 1_500,
    "target_threshold": 800,
    "keep_recent_tool_results": 1,
}
LATE = {**LOW, "trigger_threshold": 5_000, "target_threshold": 2_000}
HIGH = {"name": "high", "strategy": "tool_result_clearing", "keep_recent_tool_results": 1}
FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
every = pytest.mark.parametrize("form", FORMS)
streaming = pytest.mark.parametrize("stream", [False, True])


@asynccontextmanager
async def between(provider: StrictProvider, policy: dict[str, Any], **sections: Any) -> AsyncIterator[Running]:
    async with provider.serve() as url, compactd(configured(url, policies=[policy], **sections)) as proxy:
        yield proxy


def refusing(
    message: str = "tool_result blocks are wrong", status: int = 400, **more: Any
) -> Callable[[Seen], Rejection | None]:
    """Refuses whatever compactd has changed."""
    return lambda seen: Rejection(status, message, **more) if compacted(seen.body) else None


def labels(answer: Answer) -> tuple[int, str, str]:
    return answer.status, *answer.told


@every
@streaming
async def test_refused_compaction_the_original_is_sent_and_answered(form: str, stream: bool) -> None:
    provider = StrictProvider(reject=refusing())
    async with between(provider, LOW) as proxy:
        talk = Talk(form).ask("Read.").rounds(8)
        answer = await proxy.ask(talk.request(stream=stream))
        assert labels(answer) == (200, "failed", "rejected")
        assert answer["x-compactd-tokens-after"] == answer["x-compactd-tokens-before"]
        assert answer["x-compactd-archive"] == ""
        assert proxy.metric("rejections_total", format=form, **{"class": "invalid_request"}) == 1
        assert (
            proxy.metric("requests_total", format=form, upstream="provider", outcome="failed", reason="rejected") == 1
        )
    first, second = provider.requests
    assert compacted(first.body)
    assert second.raw == talk.request(stream=stream).partition(b"\r\n\r\n")[2]
    assert second.header("content-length") == str(len(second.raw))
    assert b"Read " in answer.body or b"items" in answer.body


async def test_a_second_attempt_has_an_idempotency_key_of_its_own() -> None:
    """A provider would answer it from the first one, or refuse it: another body under the same key. A client's own retry keeps its key."""
    provider = StrictProvider(reject=refusing())
    async with between(provider, LOW) as proxy:
        request = (
            Talk("openai-chat").ask("Read.").rounds(8).request("idempotency-key: mine", "x-stainless-retry-count: 0")
        )
        assert (await proxy.ask(request)).status == 200
        assert (await proxy.ask(request)).status == 200
    assert [seen.header("idempotency-key") for seen in provider.requests] == ["mine", "mine-2", "mine"]
    assert {seen.header("x-stainless-retry-count") for seen in provider.requests} == {"0"}


@every
async def test_what_was_refused_is_never_sent_again(form: str) -> None:
    provider = StrictProvider(reject=refusing())
    async with between(provider, LOW) as proxy:
        talk = Talk(form).ask("Read.").rounds(8)
        assert labels(await proxy.ask(talk.request())) == (200, "failed", "rejected")
        refused = provider.requests[0].raw
        for more in range(8, 14):
            talk.rounds(1, first=more)
            assert (await proxy.ask(talk.request())).status == 200
        assert proxy.metric("rejections_total", format=form, **{"class": "invalid_request"}) <= 3
        last = await proxy.ask(talk.request())
        assert last.told == ("declined", "rejected_before")
    assert [seen.raw for seen in provider.requests].count(refused) == 1


async def test_a_replayed_compaction_that_is_refused_is_quarantined_too() -> None:
    provider = StrictProvider()
    async with between(provider, LOW) as proxy:
        talk = Talk("openai-chat").ask("Read.").rounds(8)
        assert (await proxy.ask(talk.request())).told == ("compacted", "threshold")
        talk.rounds(1, first=8)
        provider.reject = refusing()
        assert (await proxy.ask(talk.request())).told == ("failed", "rejected")
        provider.reject = None
        assert (await proxy.ask(talk.request())).told[0] != "replayed"


@every
@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 429, 500, 502, 503, 529])
async def test_other_errors_are_never_tried_again(form: str, status: int) -> None:
    provider = StrictProvider(
        reject=lambda _: Rejection(status, "no", headers=(("retry-after", "9"),), body={"odd": [status]})
    )
    async with between(provider, LOW) as proxy:
        answer = await proxy.ask(Talk(form).ask("Read.").rounds(8).request())
        assert labels(answer) == (status, "compacted", "threshold")
    assert len(provider.requests) == 1
    assert json.loads(answer.body) == {"odd": [status]}
    assert answer["retry-after"] == "9"


def two_users_in_a_row(body: Any) -> bool:
    roles = [item["role"] for item in body["messages"]]
    return any(pair == ("user", "user") for pair in pairwise(roles))


EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TEMPLATE = "\n------------\nWhile executing CallExpression at line 19, column 27 in source:\nError: Jinja Exception: "


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_chat_template_that_refuses_the_note_is_known_by_its_words_and_minded_from_then_on(status: int) -> None:
    """llama.cpp and what is built on it say by a 500 that the model's template does not take these roles."""
    said = Rejection(status, f"{TEMPLATE}Conversation roles must alternate user/assistant/user/assistant/...")
    provider = StrictProvider(reject=lambda seen: said if two_users_in_a_row(seen.body) else None)
    window = {**LOW, "strategy": "sliding_window", "keep_recent_messages": 3}
    async with between(provider, window) as proxy:
        talk = Talk("openai-chat", model="my-own")
        for number in range(8):
            talk.ask(f"Question {number}? " + "It matters. " * 90).say("Yes. " * 10)
        assert labels(await proxy.ask(talk.ask("Well?").request())) == (200, "failed", "rejected")
        assert proxy.metric("rejections_total", format="openai-chat", **{"class": "alternating_roles"}) == 1
        talk.say("Well.").ask("And now?")
        assert labels(await proxy.ask(talk.request())) == (200, "compacted", "threshold")
        talk.say("Now.").ask("And then?")
        assert labels(await proxy.ask(talk.request())) == (200, "replayed", "checkpoint")
    assert [seen.status for seen in provider.requests] == [status, 200, 200, 200]
    assert "removed here by compaction" in provider.requests[-1].body["messages"][0]["content"]  # type: ignore[index]


IN_A_STREAM = json.dumps(
    {"error": {"message": f"Error rendering prompt with jinja template: {TEMPLATE}roles must alternate"}}
)


def chat_with_a_note() -> Talk:
    """Whose compaction puts two messages of the user's in a row."""
    talk = Talk("openai-chat", model="my-own")
    for number in range(8):
        talk.ask(f"Question {number}? " + "It matters. " * 90).say("Yes. " * 10)
    return talk.ask("Well?")


@asynccontextmanager
async def refusing_in_a_stream(
    refuses: Callable[[Any], bool], pieces: int = 1, wait: float = 0.0
) -> AsyncIterator[tuple[Running, list[Any]]]:
    """A server that has said 200 by the time it finds out, and the bodies that it gets. Its first event comes in so many pieces, and only
    after the second one that many seconds later."""
    bodies: list[Any] = []

    async def script(peer: Peer) -> None:
        while True:
            bodies.append(json.loads((await taken(peer)).body))
            event = f"event: error\ndata: {IN_A_STREAM}\n\n" if refuses(bodies[-1]) else "data: [DONE]\n\n"
            await peer.send(EVENTS)
            await asyncio.sleep(wait)
            size = -(-len(event) // pieces)
            for at in range(0, len(event), size):
                piece = event[at : at + size].encode()
                await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(0.01)
            await peer.send(b"0\r\n\r\n")

    window = {**LOW, "strategy": "sliding_window", "keep_recent_messages": 3}
    async with serve(script) as server, compactd(configured(server.url, policies=[window])) as proxy:
        yield proxy, bodies


@pytest.mark.parametrize("pieces", [1, 2, 5])
async def test_a_template_that_refuses_in_a_stream_that_has_begun_costs_no_answer(pieces: int) -> None:
    """LM Studio has said 200 by then."""
    async with refusing_in_a_stream(two_users_in_a_row, pieces) as (proxy, bodies):
        talk = chat_with_a_note()
        first = await proxy.ask(talk.request(stream=True))
        assert labels(first) == (200, "failed", "rejected")
        assert first.body == b"data: [DONE]\n\n"
        assert bodies[-1]["messages"] == talk.items
        again = await proxy.ask(talk.say("?").ask("Once more?").request(stream=True))
        assert labels(again) == (200, "compacted", "threshold")
        assert again.body == b"data: [DONE]\n\n"
        assert proxy.metric("rejections_total", format="openai-chat", **{"class": "alternating_roles"}) == 1
    assert "removed here by compaction" in bodies[-1]["messages"][0]["content"]


async def test_what_is_refused_late_in_a_stream_is_minded_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head is not held back for long. That one answer is lost; it must not be the same for ever after."""
    monkeypatch.setattr("app.edge.refusals.FIRST_EVENT_SECONDS", 0.05)
    async with refusing_in_a_stream(two_users_in_a_row, wait=0.5) as (proxy, bodies):
        talk = chat_with_a_note()
        first = await proxy.ask(talk.request(stream=True))
        assert labels(first) == (200, "compacted", "threshold")
        assert b"jinja" in first.body
        await until(
            lambda: proxy.metric("rejections_total", format="openai-chat", **{"class": "alternating_roles"}) == 1
        )
        again = await proxy.ask(talk.say("?").ask("Once more?").request(stream=True))
        assert labels(again) == (200, "compacted", "threshold")
        assert again.body == b"data: [DONE]\n\n"
    assert "removed here by compaction" in bodies[-1]["messages"][0]["content"]


@asynccontextmanager
async def endless(first: bytes) -> AsyncIterator[tuple[Running, asyncio.Event, asyncio.Event]]:
    """A server whose stream to a compacted request begins so and never ends; whether it was asked, and whether its client has gone."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        if two_users_in_a_row(json.loads((await taken(peer)).body)):
            await peer.send(EVENTS, chunks([first])[: -len(b"0\r\n\r\n")])
            asked.set()
            await peer.gone()
            gone.set()
        else:
            await peer.send(EVENTS, chunks([b"data: [DONE]\n\n"]))

    window = {**LOW, "strategy": "sliding_window", "keep_recent_messages": 3}
    async with serve(script) as server, compactd(configured(server.url, policies=[window])) as proxy:
        yield proxy, asked, gone


async def test_a_stream_that_goes_on_behind_its_refusal_is_broken_off() -> None:
    async with endless(f"data: {IN_A_STREAM}\n\n".encode()) as (proxy, _, gone):
        answer = await proxy.ask(chat_with_a_note().request(stream=True))
        assert labels(answer) == (200, "failed", "rejected")
        assert answer.body == b"data: [DONE]\n\n"
        await until(gone.is_set)


async def test_a_client_that_leaves_while_the_first_event_is_waited_for_ends_the_providers_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.edge.refusals.FIRST_EVENT_SECONDS", 60.0)
    async with endless(b": at work\n\n") as (proxy, asked, gone):
        client = await proxy.connect()
        await client.send(chat_with_a_note().request(stream=True))
        await asked.wait()
        client.leave()
        await until(gone.is_set)


async def test_a_stream_that_refuses_the_original_too_is_handed_on() -> None:
    async with refusing_in_a_stream(lambda _: True) as (proxy, bodies):
        talk = chat_with_a_note()
        answer = await proxy.ask(talk.request(stream=True))
        assert labels(answer) == (200, "failed", "rejected")
        assert answer.body == f"event: error\ndata: {IN_A_STREAM}\n\n".encode()
        assert len(bodies) == 2
        assert bodies[-1]["messages"] == talk.items


async def test_a_template_that_refuses_the_original_too_says_nothing_about_the_compaction() -> None:
    provider = StrictProvider(reject=lambda _: Rejection(500, f"{TEMPLATE}Value is not callable: null"))
    async with between(provider, LOW) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Read.").rounds(8).request())
        assert labels(answer) == (500, "failed", "rejected")
        assert proxy.metric("rejections_total", format="openai-chat", **{"class": "original_too"}) == 1
    assert [compacted(seen.body) for seen in provider.requests] == [True, False]


@every
async def test_error_that_the_original_gets_as_well_says_nothing_about_the_compaction(form: str) -> None:
    """No credit left, a bad parameter, a content filter: the client sees it, the checkpoint stays in force, and the same request costs only
    one refusal more each time that it is tried again."""
    refusal: Rejection | None = Rejection(400, "Your credit balance is too low")
    provider = StrictProvider(reject=lambda _: refusal)
    async with between(provider, LOW) as proxy:
        talk = Talk(form).ask("Read.").rounds(8)
        for _ in range(5):
            answer = await proxy.ask(talk.request())
            assert labels(answer) == (400, "failed", "rejected")
            assert b"credit balance" in answer.body
        assert [compacted(seen.body) for seen in provider.requests] == [True, *[False] * 5]
        assert proxy.metric("rejections_total", format=form, **{"class": "invalid_request"}) == 0
        assert proxy.metric("rejections_total", format=form, **{"class": "original_too"}) == 1
        refusal = None
        talk.ask("Is it paid now?")
        assert labels(await proxy.ask(talk.request())) == (200, "replayed", "checkpoint")
    assert len(provider.requests) == 7


async def test_what_was_refused_either_way_is_tried_in_its_shorter_form_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.edge.second_chance.HOPELESS_SECONDS", 0)
    provider = StrictProvider(reject=lambda _: Rejection(400, "Your credit balance is too low"))
    async with between(provider, LOW) as proxy:
        talk = Talk("openai-chat").ask("Read.").rounds(8)
        for _ in range(2):
            assert labels(await proxy.ask(talk.request())) == (400, "failed", "rejected")
    assert [compacted(seen.body) for seen in provider.requests] == [True, False] * 2


async def test_another_tenants_refusal_spares_nobody() -> None:
    provider = StrictProvider(
        reject=lambda seen: Rejection(400, "no credit") if seen.header("authorization") == "Bearer other" else None
    )
    async with between(provider, LOW) as proxy:
        for key in ("other", "mine"):
            answer = await proxy.ask(Talk("openai-chat", key=key).ask("Read.").rounds(8).request())
        assert answer.told == ("compacted", "threshold")


async def test_client_error_on_an_unchanged_request_is_passed_on_at_once() -> None:
    provider = StrictProvider(reject=lambda _: Rejection(400, "bad parameter"))
    async with between(provider, LOW) as proxy:
        assert labels(await proxy.ask(Talk("openai-chat").ask("Hi.").request())) == (400, "passed", "below_threshold")
    assert len(provider.requests) == 1


async def test_refused_server_side_compaction_that_was_left_out_is_sent_after_all() -> None:
    """compactd takes out an edit that the model is known to refuse; where the rest is refused as well, the client's own bytes decide."""
    provider = StrictProvider(reject=lambda _: Rejection(400, "max_tokens: must be lower"))
    managed = {"context_management": {"edits": [{"type": "compact_20260112"}, {"type": "clear_tool_uses_20250919"}]}}
    async with between(provider, HIGH) as proxy:
        talk = Talk("anthropic-messages", model="claude-haiku-4-5").ask("Hi.")
        beta = "anthropic-beta: compact-2026-01-12,context-management-2025-06-27"
        answer = await proxy.ask(talk.request(beta, **managed))
        assert (answer.status, b"must be lower" in answer.body) == (400, True)
    first, second = provider.requests
    assert (b"compact_" in first.raw, b"compact_" in second.raw) == (False, True)
    assert second.header("anthropic-beta") == beta.partition(": ")[2]


# Too long


@every
@streaming
@pytest.mark.parametrize("gzip", [False, True])
async def test_overflow_is_compacted_and_tried_once_more(form: str, stream: bool, gzip: bool) -> None:
    """Below the trigger by our count, which knows the window too large."""
    provider = StrictProvider(window=2_000, gzip=gzip)
    async with between(provider, HIGH) as proxy:
        talk = Talk(form).ask("Read.").rounds(12)
        answer = await proxy.ask(talk.request(stream=stream))
        assert answer.status == 200, answer.body
        assert answer.told[0] == "compacted"
        assert proxy.metric("overflows_total", format=form) == 1
    first, second = provider.requests
    assert (compacted(first.body), compacted(second.body)) == (False, True)
    assert len(second.body[HISTORY[form]]) == len(talk.items)  # type: ignore[index]


@every
async def test_the_window_is_learned(form: str) -> None:
    """With a provider that names it; the next conversation is compacted before it is refused."""
    provider = StrictProvider(window=2_000)
    async with between(provider, HIGH) as proxy:
        assert (await proxy.ask(Talk(form).ask("Read.").rounds(12).request())).status == 200
        asked = len(provider.requests)
        answer = await proxy.ask(
            Talk(form).ask("Read something else.").rounds(13, "line of another file\n" * 50).request()
        )
        assert answer.status == 200
        if form != "openai-responses":  # that one does not say how large the window is
            assert len(provider.requests) == asked + 1
            assert labels(answer) == (200, "compacted", "threshold")


@pytest.mark.parametrize("vendor", sorted(errors.VENDORS))
async def test_every_vendors_overflow_is_understood(vendor: str) -> None:
    provider = StrictProvider(window=2_000, vendor=vendor)
    async with between(provider, HIGH) as proxy:
        assert (await proxy.ask(Talk("openai-chat").ask("Read.").rounds(12).request())).status == 200
    assert len(provider.requests) == 2


@every
async def test_a_window_below_what_the_provider_has_taken_is_a_quotation_and_teaches_nothing(form: str) -> None:
    """Validation errors quote requests, and agents talk about windows."""
    provider = StrictProvider()
    async with between(provider, LATE) as proxy:
        talk = Talk(form).ask("Why does our server say 'maximum context length is 1200 tokens'?").rounds(14)
        assert labels(await proxy.ask(talk.request())) == (200, "passed", "below_threshold")
        await until(lambda: not proxy.app.relay._background)
        provider.reject = lambda _: Rejection(400, "bad field: 'maximum context length is 1200 tokens'")
        assert labels(await proxy.ask(talk.rounds(1, first=14).request())) == (400, "passed", "below_threshold")
        provider.reject = None
        assert labels(await proxy.ask(talk.request())) == (200, "passed", "below_threshold")
        assert proxy.metric("overflows_total", format=form) == 0
    assert not [seen for seen in provider.requests if compacted(seen.body)]


@every
async def test_a_quotation_far_below_the_threshold_teaches_nothing_either(form: str) -> None:
    """Nothing is known of such a session: the request is not even counted."""
    said = "'maximum context length is 1200 tokens'"
    provider = StrictProvider(
        reject=lambda seen: Rejection(400, f"bad field: {said}") if said in str(seen.body) else None
    )
    async with between(provider, HIGH) as proxy:
        asked = Talk(form).ask(f"Why does our server say {said}?").rounds(14).request()
        assert labels(await proxy.ask(asked)) == (400, "passed", "below_threshold")
        other = Talk(form).ask("Read.").rounds(14).request()
        assert labels(await proxy.ask(other)) == (200, "passed", "below_threshold")


async def test_a_window_quoted_in_a_stream_that_has_begun_teaches_nothing_either() -> None:
    said = json.dumps({"error": {"message": "bad field: 'maximum context length is 1200 tokens'"}})
    answers = iter(['{"choices": [], "usage": {"prompt_tokens": 3000, "completion_tokens": 1}}', said, "[DONE]"])

    async def script(peer: Peer) -> None:
        while True:
            await taken(peer)
            await peer.send(EVENTS + chunks([f"data: {next(answers)}\n\n".encode()]))

    async with serve(script) as server, compactd(configured(server.url, policies=[HIGH])) as proxy:
        talk = Talk("openai-chat").ask("Why does it say 'maximum context length is 1200 tokens'?").rounds(14)
        for _ in range(3):
            answer = await proxy.ask(talk.request(stream=True))
            assert labels(answer) == (200, "passed", "below_threshold")
            await until(lambda: not proxy.app.relay._background)


@pytest.mark.parametrize("form", ["openai-chat", "anthropic-messages", "gemini"])
async def test_a_window_that_has_become_smaller_is_an_overflow(form: str) -> None:
    """A server that was started anew, or another one behind the same name: what was taken before says nothing about it."""
    provider = StrictProvider()
    async with between(provider, LATE) as proxy:
        talk = Talk(form).ask("Read.").rounds(14)
        assert labels(await proxy.ask(talk.request())) == (200, "passed", "below_threshold")
        await until(lambda: not proxy.app.relay._background)
        provider.window = 2_003
        assert labels(await proxy.ask(talk.rounds(1, first=14).request())) == (200, "compacted", "threshold")


async def test_overflow_that_is_told_by_a_500_is_one_too() -> None:
    """llama.cpp's older servers."""
    said = Rejection(500, "the request exceeds the available context size, try increasing the context size")
    provider = StrictProvider(reject=lambda seen: None if compacted(seen.body) else said)
    async with between(provider, HIGH) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Read.").rounds(12).request())
        assert labels(answer) == (200, "compacted", "threshold")
        assert proxy.metric("overflows_total", format="openai-chat") == 1


@every
@streaming
async def test_overflow_that_can_not_be_helped_is_shown_as_the_provider_said_it(form: str, stream: bool) -> None:
    """One question that is too long by itself: agents match the wording to start a compaction of their own."""
    provider = StrictProvider(window=2_000)
    talk = Talk(form).ask("Old question.").say("Old answer.").ask("word " * 4_000)
    async with provider.serve() as url, compactd(configured(url, policies=[HIGH])) as proxy:
        answer = await proxy.ask(talk.request(stream=stream))
        assert answer.status == 400
        assert not [seen for seen in provider.requests if compacted(seen.body)]
        async with compactd(configured(url, policies=[{**HIGH, "mode": "off"}])) as straight:
            direct = await straight.ask(talk.request(stream=stream))
    assert answer.body == direct.body
    assert len(provider.requests) == 2


@every
async def test_overflow_after_which_the_shorter_one_is_refused_shows_the_overflow(form: str) -> None:
    provider = StrictProvider(window=2_000, reject=refusing())
    async with between(provider, HIGH) as proxy:
        talk = Talk(form).ask("Read.").rounds(12)
        answer = await proxy.ask(talk.request())
        assert answer.status == 400
        assert b"tool_result blocks are wrong" not in answer.body
        assert proxy.metric("rejections_total", format=form, **{"class": "invalid_request"}) == 1
        refused = provider.requests[1].raw
        await proxy.ask(talk.request())
        assert [seen.raw for seen in provider.requests].count(refused) == 1


@every
async def test_overflow_after_which_the_provider_is_busy_shows_that(form: str) -> None:
    provider = StrictProvider(window=2_000, reject=refusing("slow down", 429))
    async with between(provider, HIGH) as proxy:
        answer = await proxy.ask(Talk(form).ask("Read.").rounds(12).request())
        assert answer.status == 429
        assert b"slow down" in answer.body
    assert len(provider.requests) == 2


@every
async def test_compacted_request_that_overflows_is_compacted_more_at_most_once(form: str) -> None:
    provider = StrictProvider(window=60)
    async with between(provider, LOW) as proxy:
        answer = await proxy.ask(Talk(form).ask("Read.").rounds(8).request())
        assert answer.status == 400
        assert proxy.metric("overflows_total", format=form) == 1
    assert len(provider.requests) <= 2


@every
@pytest.mark.parametrize("policy", [{"mode": "observe"}, {"mode": "off"}])
async def test_policy_that_changes_nothing_gets_no_second_chance(form: str, policy: dict[str, str]) -> None:
    provider = StrictProvider(window=2_000)
    async with between(provider, HIGH | policy) as proxy:
        assert (await proxy.ask(Talk(form).ask("Read.").rounds(12).request())).status == 400
    assert len(provider.requests) == 1
    assert not compacted(provider.requests[0].body)


async def test_overflow_inside_a_stream_passes_as_it_is() -> None:
    """Responses reports it as an event of a stream that has begun (E2, F7)."""
    provider = StrictProvider(window=2_000, overflow_in_stream=True)
    async with between(provider, HIGH) as proxy:
        answer = await proxy.ask(Talk("openai-responses").ask("Read.").rounds(12).request(stream=True))
    assert answer.status == 200
    assert b"response.failed" in answer.body
    assert len(provider.requests) == 1


async def test_reasoning_that_was_made_behind_a_compaction_is_dropped_where_that_is_undone() -> None:
    """It fits no other prefix (AB1): the client's own request would be refused for it, though it did nothing wrong."""
    more = {"thinking": {"type": "adaptive"}, "max_tokens": 2_048}
    provider = StrictProvider(answer=lambda *_: Reply("So it is.", thinking="Let me see."), binds_thinking=True)
    async with between(provider, LOW) as proxy:
        talk = Talk("anthropic-messages", model="claude-opus-5-1").ask("Read.").rounds(8).say("Read.").ask("And?")
        answer = await proxy.ask(talk.request(**more))
        assert answer.told == ("compacted", "threshold")
        talk.heard(json.loads(answer.body))
        talk.ask("And now?")
        asked = len(provider.requests)
        provider.reject = refusing()
        request = talk.request(**more)
        answer = await proxy.ask(request)
        assert labels(answer) == (200, "failed", "bound_reasoning_dropped")
        for number in range(3):
            talk.heard(json.loads(answer.body))
            answer = await proxy.ask(talk.ask(f"And {number}?").request(**more))
            assert (answer.status, answer["x-compactd-reason"]) == (200, "bound_reasoning_dropped")
    compacted_one, own, dropping, *later = provider.requests[asked:]
    assert [seen.status for seen in later] == [200] * 3  # known by then
    assert (compacted_one.status, own.status, dropping.status) == (400, 400, 200)
    assert own.raw == request.partition(b"\r\n\r\n")[2]
    assert dropping.body is not None
    assert dropping.body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    assert {**dropping.body, "thinking": more["thinking"]} == own.body
    assert dropping.dropped_thinking == 1
