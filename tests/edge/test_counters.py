"""The provider's own count, near the threshold: asked rightly, believed, and never in the way."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.compactor import Compactor
from app.edge.counters import PATIENCE, PAUSE, ProviderCounter
from app.edge.stores import Guarded, MemoryStore
from app.edge.upstream import Upstream
from app.errors import SummaryFailed
from app.formats import FORMATS
from app.formats.reading import open_body
from app.main import _wiring
from app.ports import Summary, SummaryJob
from app.registry import Model
from app.request import Ask
from app.settings import Policy
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import PATHS, Answer, Running, compactd, configured, request, taken
from tests.strict.server import Rejection, Seen, StrictProvider

TRIGGER = 4_000
SENTENCE = "The weather was fine and nobody minded the walk to the harbour. "
COUNTING = ["anthropic-messages", "openai-responses", "gemini"]
MODELS = {"openai-chat": "gpt-4o", "openai-responses": "gpt-5.1", "anthropic-messages": "claude-sonnet-4-5"}
KEYS = {
    "anthropic-messages": (
        "x-api-key: k-1",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: token-efficient-tools-2025-02-19",
    ),
    "openai-responses": ("authorization: Bearer k-1", "openai-organization: org-1"),
    "gemini": ("x-goog-api-key: k-1",),
    "openai-chat": ("authorization: Bearer k-1",),
}
ASKED = {
    "anthropic-messages": "/v1/messages/count_tokens",
    "openai-responses": "/v1/responses/input_tokens",
    "gemini": "/v1beta/models/gemini-2.5-flash:countTokens",
}
EVERY = pytest.mark.parametrize("form", COUNTING)


def body(form: str, sentences: int, **more: Any) -> bytes:
    """A conversation of four questions and a system prompt; a sentence is about 13 tokens."""
    items = []
    for at in range(7):
        item = json.loads(FORMATS[form].note(f"{at}. " + SENTENCE * (sentences // 4 if at % 2 == 0 else 0)))
        items.append(item | ({"role": "model" if form == "gemini" else "assistant"} if at % 2 else {}))
    made: dict[str, Any] = {FORMATS[form].history: items}
    if form == "gemini":
        made |= {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "generationConfig": {"temperature": 0.5}}
    elif form == "anthropic-messages":
        made |= {"model": MODELS[form], "max_tokens": 50, "system": "Be brief.", "metadata": {"user_id": "u"}}
    elif form == "openai-responses":
        made |= {"model": MODELS[form], "instructions": "Be brief.", "store": False, "max_output_tokens": 50}
    else:
        made |= {"model": MODELS[form]}
    return json.dumps(made | more).encode()


BELOW, ABOVE = 250, 315
"""Sentences that make less than the trigger and more, but near it, by any model's ratio."""


def policies(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "default", "strategy": "sliding_window", "trigger_threshold": TRIGGER, **more}]


async def post(
    proxy: Running, form: str, data: bytes, *lines: str, query: str = "", path: str = "", host: str = "compactd.test"
) -> Answer:
    asked = request("POST", (path or PATHS[form]) + query, *(lines or KEYS[form]), body=data)
    return await proxy.ask(asked.replace(b"compactd.test", host.encode(), 1))


def counts(provider: StrictProvider) -> list[Seen]:
    return [seen for seen in provider.requests if seen.action == "count"]


@EVERY
async def test_provider_is_asked_and_believed(form: str) -> None:
    provider = StrictProvider(count=lambda text: len(text) // 6)
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        with capture_logs() as logs:
            answer = await post(proxy, form, body(form, BELOW))
        first, second = provider.requests
        assert (first.action, first.path, first.status) == ("count", ASKED[form], 200)
        assert second.action == "generate"
        for line in KEYS[form]:
            name, _, value = line.partition(": ")
            assert first.header(name) == value
        assert not [name for name, _ in first.headers if name.startswith("x-compactd")]
        assert first.header("content-type") == "application/json"
        told = {
            name: answer[f"x-compactd-{name}"] for name in ("outcome", "count-source", "tokens-before", "tokens-after")
        }
        assert told["count-source"] == "provider"
        assert told["outcome"] == "passed"
        assert abs(int(told["tokens-after"]) - first.tokens) <= 1
        assert told["tokens-before"] == told["tokens-after"]
        assert proxy.metric("count_source_total", source="provider") == 1
        (line,) = (line for line in logs if line["event"] == "request")
        assert (line["count_source"], line["tokens_after"]) == ("provider", int(told["tokens-after"]))


@EVERY
async def test_question_is_the_body_without_what_the_endpoint_refuses(form: str) -> None:
    provider, sent = StrictProvider(), body(form, BELOW)
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        await post(proxy, form, sent)
    asked, given = counts(provider)[0].body, json.loads(sent)
    assert asked is not None
    if form == "gemini":
        assert asked == {"generateContentRequest": {"model": "models/gemini-2.5-flash", **given}}
    else:
        gone = {"max_tokens", "metadata", "store", "max_output_tokens"}
        assert asked == {key: value for key, value in given.items() if key not in gone}


async def test_vertex_takes_the_fields_at_top_level() -> None:
    seen = []

    async def provider(peer: Peer) -> None:
        seen.append(await taken(peer))
        answer = b'{"totalTokens": 3000, "totalBillableCharacters": 9}'
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer), answer)

    path = "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-flash:streamGenerateContent"
    async with serve(provider) as server, compactd(configured(server.url, policies=policies())) as proxy:
        answer = await post(
            proxy, "gemini", body("gemini", BELOW), "authorization: Bearer t", query="?alt=sse&fields=x", path=path
        )
    assert seen[0].line == f"POST {path.replace('streamGenerateContent', 'countTokens')}?fields=x HTTP/1.1"
    assert seen[0]["authorization"] == "Bearer t"
    assert set(json.loads(seen[0].body)) == {"contents", "systemInstruction", "generationConfig"}
    assert (answer["x-compactd-count-source"], answer["x-compactd-tokens-after"]) == ("provider", "3000")


@pytest.mark.parametrize(
    "path", ["/v1/publishers/google/models/g:generateContent", "/v1/projects/p/locations/l/endpoints/7:generateContent"]
)
def test_vertex_is_known_by_its_paths(path: str) -> None:
    call = FORMATS["gemini"].counting("g", path)
    assert call is not None
    assert (call.under, call.path.decode()) == ("", path.replace("generateContent", "countTokens"))


@pytest.mark.parametrize(
    ("model", "path", "named"),
    [
        ("g", "/models/g:generateContent", "models/g"),
        ("tunedModels/t", "/v1beta/tunedModels/t:generateContent", "tunedModels/t"),
    ],
)
def test_gemini_names_the_model_again(model: str, path: str, named: str) -> None:
    call = FORMATS["gemini"].counting(model, path)
    assert call is not None
    assert (call.under, call.model) == ("generateContentRequest", named)


def test_gemini_path_without_its_colon_has_no_counter() -> None:
    assert FORMATS["gemini"].counting("g", "/v1beta/models/g%3AgenerateContent") is None


@EVERY
@pytest.mark.parametrize(("sentences", "asked"), [(BELOW // 3, 0), (BELOW, 1), (ABOVE, 1), (ABOVE * 2, 0)])
async def test_only_near_the_threshold(form: str, sentences: int, asked: int) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        await post(proxy, form, body(form, sentences))
        assert len(counts(provider)) == asked


async def test_chat_has_no_counter() -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        answer = await post(proxy, "openai-chat", body("openai-chat", BELOW))
        assert answer["x-compactd-count-source"] == "tiktoken"
        assert proxy.metric("count_source_total", source="tiktoken") == 1
    assert [seen.action for seen in provider.requests] == ["generate"]


@EVERY
async def test_count_decides(form: str) -> None:
    """By our own count the request would have passed."""
    provider = StrictProvider(count=lambda text: len(text) // 3)
    async with (
        provider.serve() as url,
        compactd(configured(url, policies=policies(clear_at_least=0, target_threshold=0.1))) as proxy,
    ):
        sent = body(form, BELOW)
        alone = await post(proxy, form, sent, *KEYS[form], "x-compactd-mode: off")
        assert alone.told == ("passed", "mode_off")
        answer = await post(proxy, form, sent)
        assert answer.told == ("compacted", "threshold")
        before, after = int(answer["x-compactd-tokens-before"]), int(answer["x-compactd-tokens-after"])
        assert abs(before - counts(provider)[0].tokens) <= 1
        assert abs(after - provider.requests[-1].tokens) < 0.05 * after


@EVERY
async def test_prefix_is_counted_once_where_the_provider_then_refuses(form: str) -> None:
    """Clients retry a 429 with the same body; another client's key is another matter."""
    provider = StrictProvider(reject=lambda seen: Rejection(429) if seen.action == "generate" else None)
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        sent = body(form, BELOW)
        for _ in range(3):
            answer = await post(proxy, form, sent)
            assert (answer.status, answer["x-compactd-count-source"]) == (429, "provider")
        assert len(counts(provider)) == 1
        await post(proxy, form, sent, *(line.replace("k-1", "k-2") for line in KEYS[form]))
        assert len(counts(provider)) == 2


@EVERY
async def test_longer_conversation_stands_on_the_count_of_its_prefix(form: str) -> None:
    provider = StrictProvider(reject=lambda seen: Rejection(529) if seen.action == "generate" else None)
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        sent = json.loads(body(form, BELOW))
        await post(proxy, form, json.dumps(sent).encode())
        sent[FORMATS[form].history][-1:] += [
            json.loads(FORMATS[form].note("Fine.")) | {"role": "model" if form == "gemini" else "assistant"},
            json.loads(FORMATS[form].note("And now?")),
        ]
        answer = await post(proxy, form, json.dumps(sent).encode())
        assert answer["x-compactd-count-source"] == "provider"
        assert len(counts(provider)) == 1


@EVERY
async def test_reported_usage_goes_before(form: str) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        sent = body(form, BELOW)
        assert (await post(proxy, form, sent))["x-compactd-count-source"] == "provider"
        answer = await post(proxy, form, sent)
        assert answer["x-compactd-count-source"] == "usage"
        assert abs(int(answer["x-compactd-tokens-after"]) - provider.requests[-1].tokens) <= 1
        assert len(counts(provider)) == 1
        assert proxy.metric("count_source_total", source="usage") == 1


@EVERY
async def test_replayed_view_is_what_is_counted(form: str) -> None:
    provider = StrictProvider()
    settings = policies(clear_at_least=0, target_threshold=0.1, keep_recent_messages=1)
    async with provider.serve() as url, compactd(configured(url, policies=settings)) as proxy:
        assert (await post(proxy, form, body(form, 2 * ABOVE))).told == ("compacted", "threshold")
        assert counts(provider) == []
        longer = json.loads(body(form, 2 * ABOVE))
        longer[FORMATS[form].history] += [
            json.loads(FORMATS[form].note("Fine.")) | {"role": "model" if form == "gemini" else "assistant"},
            json.loads(FORMATS[form].note(SENTENCE * 75)),
        ]
        # Another session of the same client: it knows of no usage yet.
        answer = await post(proxy, form, json.dumps(longer).encode(), *KEYS[form], "x-compactd-session: another")
        assert (answer.told, answer["x-compactd-count-source"]) == (("replayed", "checkpoint"), "provider")
    counted, forwarded = provider.requests[-2:]
    assert counted.body is not None
    assert forwarded.body is not None
    history = FORMATS[form].history
    asked = counted.body["generateContentRequest"] if form == "gemini" else counted.body
    assert asked[history] == forwarded.body[history] != longer[history]
    assert abs(int(answer["x-compactd-tokens-after"]) - counted.tokens) <= 1
    assert int(answer["x-compactd-tokens-before"]) > 2 * counted.tokens


async def test_compressed_body_is_asked_about_plainly() -> None:
    provider, form = StrictProvider(), "anthropic-messages"
    async with provider.serve() as url, compactd(configured(url, policies=policies())) as proxy:
        answer = await post(
            proxy, form, gzip.compress(body(form, BELOW)), *KEYS[form], "content-encoding: gzip", "accept-encoding: br"
        )
        assert answer["x-compactd-count-source"] == "provider"
        asked, sent = provider.requests
        assert (asked.header("content-encoding"), sent.header("content-encoding")) == ("", "gzip")
        assert asked.header("accept-encoding") == ""


async def test_own_key_and_no_key_of_the_clients() -> None:
    provider, form = StrictProvider(keys=frozenset({"ours"})), "gemini"
    async with provider.serve() as url:
        upstream = {"base_url": url, "formats": list(FORMATS), "api_key": "ours"}
        async with compactd(configured(url, policies=policies(), upstreams={"provider": upstream})) as proxy:
            answer = await post(
                proxy, form, body(form, BELOW), "x-goog-api-key: theirs", query="?key=theirs&x=1", host="localhost"
            )
            assert answer["x-compactd-count-source"] == "provider"
    asked = counts(provider)[0]
    assert (asked.header("x-goog-api-key"), asked.query) == ("ours", "x=1")


# What the endpoint may do wrong


class Notes:
    """A recorder that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[dict[str, str]] = []

    def note(self, event: str, **facts: str) -> None:
        self.notes.append({"event": event, **facts})

    def fault(self, where: str, fault: BaseException | None) -> None:
        raise AssertionError(where) from fault

    def archived(self, sink: str, result: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...

    def summary_failed(self, reason: str, fallback: str) -> None: ...

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...


class Desk:
    """A counter against a scripted provider. `answers` are used one after the other, the last one for good."""

    def __init__(self, url: str, **options: Any) -> None:
        self.notes = Notes()
        self.client = Upstream()
        wiring = _wiring(configured(url))
        self.counter = ProviderCounter(lambda: wiring, self.client, self.notes, **options)

    async def count(
        self, data: bytes = b'{"model": "m", "messages": []}', tenant: str = "t", beta: str = ""
    ) -> int | None:
        form = FORMATS["anthropic-messages"]
        opened = open_body(form, data)
        model = Model("m", 100_000, "o200k_base", frozenset(), True)
        headers = ((b"anthropic-beta", b"one"), (b"x-api-key", b"k"))
        ask = Ask(
            opened,
            form.name,
            "provider",
            model,
            Policy(),
            tenant,
            client_model="m",
            path="/v1/messages",
            headers=headers,
        )
        return await self.counter.count(ask, data, beta)


def answering(*answers: bytes) -> tuple[list[Any], Callable[[Peer], Any]]:
    seen: list[Any] = []

    async def provider(peer: Peer) -> None:
        while True:
            seen.append(await taken(peer))
            await peer.send(answers[min(len(seen), len(answers)) - 1])

    return seen, provider


def said(status: int, text: bytes, *lines: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in lines)
    return f"HTTP/1.1 {status} X\r\n{head}content-length: {len(text)}\r\n\r\n".encode() + text


GOOD = said(200, b'{"input_tokens": 7}')
BAD = {
    "status_404": said(404, b'{"error": "no such path"}'),
    "status_429": said(429, b"{}"),
    "status_500": said(500, b'{"input_tokens": 7}'),
    "no_figure": said(200, b'{"tokens": 7}'),
    "NotCompactable": said(200, b"<html>"),
    "too_long": said(200, b'{"input_tokens": 7}' + b" " * 70_000),
}


@pytest.mark.parametrize("why", BAD)
async def test_failure_falls_through_and_rests(why: str) -> None:
    seen, provider = answering(BAD[why], GOOD)
    async with serve(provider) as server:
        desk = Desk(server.url)
        assert await desk.count() is None
        assert await desk.count(b'{"model": "other", "messages": []}') is None
        assert len(seen) == 1
        assert desk.notes.notes == [
            {"event": "provider_count_failed", "upstream": "provider", "format": "anthropic-messages", "reason": why}
        ]
        assert await desk.count(tenant="another") == 7  # one client's failure is not another's
        await desk.client.aclose()


@pytest.mark.parametrize("figure", [b"0", b"-3", b'"7"', b"7.5", b"null", b"true", b"[7]"])
async def test_figure_that_is_none(figure: bytes) -> None:
    _, provider = answering(said(200, b'{"input_tokens": %b}' % figure))
    async with serve(provider) as server:
        desk = Desk(server.url)
        assert await desk.count() is None
        assert desk.notes.notes[0]["reason"] == "no_figure"
        await desk.client.aclose()


async def test_asked_again_after_the_pause() -> None:
    seen, provider = answering(BAD["status_500"], GOOD)
    async with serve(provider) as server:
        desk = Desk(server.url, pause=0.0)
        assert await desk.count() is None
        assert await desk.count() == 7
        assert await desk.count() == 7
        assert len(seen) == 2
        await desk.client.aclose()


async def test_slow_endpoint_is_given_up() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def provider(peer: Peer) -> None:
        await taken(peer)
        asked.set()
        await peer.gone()
        gone.set()

    async with serve(provider) as server:
        desk = Desk(server.url, patience=0.05)
        assert await desk.count() is None
        assert asked.is_set()
        await asyncio.wait_for(gone.wait(), 5)  # the connection does not stay behind
        assert await desk.count() is None
        assert [note["reason"] for note in desk.notes.notes] == ["TimeoutError"]
        await desk.client.aclose()


async def test_nobody_there() -> None:
    desk = Desk("http://127.0.0.1:9")
    assert await desk.count() is None
    assert desk.notes.notes[0]["reason"] == "ConnectError"
    await desk.client.aclose()


async def test_compressed_figure_is_read() -> None:
    _, provider = answering(said(200, gzip.compress(b'{"input_tokens": 7}'), "content-encoding: gzip"))
    async with serve(provider) as server:
        desk = Desk(server.url)
        assert await desk.count() == 7
        await desk.client.aclose()


async def test_kept_for_the_body_and_the_beta() -> None:
    seen, provider = answering(GOOD)
    async with serve(provider) as server:
        desk = Desk(server.url)
        for _ in range(2):
            await desk.count()
            await desk.count(beta="two")
            await desk.count(b'{"model": "n", "messages": []}')
        assert len(seen) == 3
        assert [request.all("anthropic-beta") for request in seen] == [["one"], ["one", "two"], ["one"]]
        await desk.client.aclose()


def test_bounds_are_in_proportion() -> None:
    assert 0 < PATIENCE < 5 < PAUSE


# What the compactor makes of it


class Fixed:
    """A counter that says the same of everything, and keeps what it was asked about."""

    def __init__(self, figure: int | None) -> None:
        self.figure = figure
        self.asked: list[tuple[bytes, str]] = []

    async def count(self, ask: Ask, body: bytes, beta: str = "") -> int | None:  # noqa: ARG002
        self.asked.append((body, beta))
        return self.figure


class Nobody:
    async def summarize(self, job: SummaryJob) -> Summary:  # noqa: ARG002
        raise SummaryFailed("refused")


def story(counter: Fixed) -> Compactor:
    return Compactor(Guarded(MemoryStore(), 1.0, Notes()), Nobody(), Notes(), "http://x", counter=counter)


def near(form: str = "anthropic-messages", quirks: frozenset[str] = frozenset(), **rules: Any) -> Ask:
    opened = open_body(FORMATS[form], body(form, BELOW))
    policy = Policy(strategy="sliding_window", trigger_threshold=TRIGGER, **rules)
    return Ask(opened, form, "provider", Model("m", 100_000, "o200k_base", quirks, True), policy, "t", client_model="m")


async def test_body_of_an_unchanged_view_is_the_clients_own() -> None:
    counter, ask = Fixed(TRIGGER - 1), near()
    outcome = await story(counter).decide(ask)
    assert [asked[0] is ask.opened.body for asked in counter.asked] == [True]
    assert (outcome.before, outcome.after, outcome.source) == (TRIGGER - 1, TRIGGER - 1, "provider")


async def test_overflow_is_not_asked_about() -> None:
    counter = Fixed(1_000)
    outcome = await story(counter).decide(near(), overflowed=True)
    assert counter.asked == []
    assert outcome.before >= 99_000  # the provider's own word: it is over the window


async def test_local_figure_stands_where_nobody_tells() -> None:
    outcome = await story(Fixed(None)).decide(near())
    assert outcome.source == "tiktoken"


async def test_broken_installation_is_told_and_asks_all_the_same() -> None:
    """Without rank tables characters / 4 are counted, and that is what the header says."""
    ask = near()
    ask = replace(ask, model=replace(ask.model, encoding="unknown"))
    assert (await story(Fixed(None)).decide(ask)).source == "approximate"
    assert (await story(Fixed(TRIGGER - 1)).decide(ask)).source == "provider"
