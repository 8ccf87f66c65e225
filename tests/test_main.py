"""Composition: what goes where, starting and stopping, changed settings."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from app.main import App
from app.settings import Settings
from tests.edge.upstream.peers import Peer, answers, response, serve
from tests.edge.wire import compactd, configured, request, taken

CHAT = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}'


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Life:
    """The server's side of the lifespan."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def receive(self) -> dict[str, str]:
        return {"type": "lifespan.shutdown" if self.said else "lifespan.startup"}

    async def send(self, message: dict[str, str]) -> None:
        self.said.append(message["type"])


async def test_starts_and_stops() -> None:
    life = Life()
    await App(configured("http://127.0.0.1:9"))({"type": "lifespan"}, life.receive, life.send)
    assert life.said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_stopping_closes_connections_and_store() -> None:
    async with serve(answers(response(b"{}"))) as server:
        async with compactd(configured(server.url)) as proxy:
            await proxy.ask(request("POST", "/v1/chat/completions", body=CHAT))
            assert proxy.app._upstream.open_connections == 1
            app = proxy.app
        assert app._upstream.open_connections == 0


async def test_own_paths_and_all_others() -> None:
    async with serve(answers(*[response(b"theirs")] * 2)) as server, compactd(configured(server.url)) as proxy:
        assert b'"status":"ok"' in (await proxy.ask(request("GET", "/livez"))).body
        assert (await proxy.ask(request("GET", "/v1/models"))).body == b"theirs"
        assert b"compactd_requests_total" in (await proxy.ask(request("GET", "/metrics"))).body


async def test_websocket_scopes_are_left_alone() -> None:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    await App(configured("http://127.0.0.1:9"))({"type": "websocket"}, nothing, nothing)


def reloading(*changes: Settings | None) -> Callable[[], Settings | None]:
    waiting = iter(changes)
    return lambda: next(waiting)


async def test_changed_settings_are_for_new_requests() -> None:
    """Upstreams, policies, models, keys; a request that is under way keeps what it began with."""
    got: list[str] = []

    async def first(peer: Peer) -> None:
        await peer.head()
        proxy.app.reload()
        await peer.send(response(b"from the first"))

    async def second(peer: Peer) -> None:
        got.append((await taken(peer))["x-new"])
        await peer.send(response(b"from the second"))

    async with serve(first) as old, serve(second) as new, compactd(configured(old.url)) as proxy:
        upstreams = {"other": {"base_url": new.url, "formats": ["openai-chat"], "headers": {"x-new": "1"}}}
        proxy.app._read_again = reloading(configured("", upstreams=upstreams))
        assert (await proxy.ask(request("POST", "/v1/chat/completions", body=CHAT))).body == b"from the first"
        assert (await proxy.ask(request("POST", "/v1/chat/completions", body=CHAT))).body == b"from the second"
        asked = request("GET", "/compactd/api/config").replace(b"compactd.test", b"localhost")
        assert (await proxy.ask(asked)).status == 200
        assert list(proxy.app.settings.upstreams) == ["other"]
        awaited = {"upstream": "other", "code": "upstream_unreachable"}
        assert proxy.app.metrics.registry.get_sample_value("compactd_upstream_failures_total", awaited) == 0
    assert got == ["1"]


async def test_a_refused_reload_changes_nothing() -> None:
    app = App(configured("http://127.0.0.1:9"), reloading(None))
    before = app.settings, app.relay.wiring
    app.reload()
    assert (app.settings, app.relay.wiring) == before


async def test_what_was_learned_survives_a_reload() -> None:
    """A window that a provider has named stays known: to learn it again would cost every conversation another refusal."""
    settings = configured("http://127.0.0.1:9")
    app = App(settings, reloading(settings))
    app.relay.wiring.registry.learn("made-up", "provider", 9_000)
    app.reload()
    assert app.relay.wiring.registry.lookup("made-up", "provider").context_window == 9_000


async def test_the_last_requests_are_still_recorded_when_it_stops() -> None:
    """A store on disk takes its time; the session's last figures are not lost for it."""
    async with serve(
        answers(response(b'{"usage": {"prompt_tokens": 7}}', b"content-type: application/json"))
    ) as server:
        policies = [{"strategy": "tool_result_clearing", "trigger_threshold": 10_000, "compact_first_request": False}]
        async with compactd(configured(server.url, policies=policies)) as proxy:
            store, wrote = proxy.app.store, asyncio.Event()
            update = store.update_session

            async def slowly(*given: Any) -> None:
                await asyncio.sleep(0.05)
                await update(*given)
                wrote.set()

            store.update_session = slowly  # type: ignore[method-assign]
            await proxy.ask(request("POST", "/v1/chat/completions", body=CHAT))
            assert not wrote.is_set()
    assert wrote.is_set()


async def test_what_nobody_hears_is_told_without_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    """asyncio's own report of a lost task repeats the exception, and with it what a user said."""

    async def fails() -> None:
        raise KeyError("CONFIDENTIAL")

    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        task = asyncio.ensure_future(fails())
        await asyncio.sleep(0.01)
        del task
        gc.collect()
        assert proxy.metric("faults_total", where="loop") == 1
        proxy.app.relay._in_background(fails())
        await proxy.app.relay.finish_background()
        assert proxy.metric("faults_total", where="settle") == 1
    told = capsys.readouterr()
    assert "CONFIDENTIAL" not in told.out + told.err
