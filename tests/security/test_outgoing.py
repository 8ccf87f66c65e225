"""Whom compactd talks to: the configured upstreams and nobody else, whatever a request, an answer or a library would like.

Python tells of every connection and every name looked up in this process (`sys.addaudithook`), so a library that phones home would be
heard too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.edge.talks import KEYS, MODELS, Talk
from tests.edge.upstream.peers import Peer, serve
from tests.edge.wire import PATHS, compactd, configured, request, taken
from tests.strict.answers import Reply
from tests.strict.server import StrictProvider

EVENTS = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"})
_listening: list[list[tuple[str, Any]]] = []


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if event in EVENTS:
        for heard in _listening:
            heard.append((event, given[1] if event == "socket.connect" else given[:2]))


@contextmanager
def listening() -> Iterator[list[tuple[str, Any]]]:
    """What this process connects to and looks up meanwhile."""
    if not getattr(_hear, "added", False):
        sys.addaudithook(_hear)  # for good: there is no way to take one back
        _hear.added = True  # type: ignore[attr-defined]
    heard: list[tuple[str, Any]] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening.remove(heard)


def ports(heard: list[tuple[str, Any]]) -> set[int]:
    """All on this machine, or it fails."""
    for event, where in heard:
        if event == "socket.connect" and isinstance(where, tuple):
            assert where[0] in ("127.0.0.1", "::1"), (event, where)
        else:
            assert event != "socket.sendto", where
            assert where[0] in ("127.0.0.1", "localhost", None), (event, where)
    return {where[1] for event, where in heard if event == "socket.connect" and isinstance(where, tuple)}


LURES = [
    "host: evil.test", "x-forwarded-host: evil.test", "x-original-url: http://evil.test/", "forwarded: host=evil.test",
    "referer: http://evil.test/", "x-compactd-upstream: http://evil.test", "x-compactd-session: http://evil.test/",
    "openai-base-url: http://evil.test", "origin: http://evil.test",
]  # fmt: skip


def luring(form: str) -> dict[str, Any]:
    """A conversation full of addresses, long enough to be summarised."""
    talk = Talk(form).ask("See http://evil.test/ and http://169.254.169.254/latest/meta-data/").rounds(6)
    if form == "openai-chat":
        talk.items[0]["content"] = [
            {"type": "text", "text": "See."},
            {"type": "image_url", "image_url": {"url": "http://evil.test/image.png"}},
        ]
    if form == "anthropic-messages":
        source = {"type": "url", "url": "http://evil.test/image.png"}
        talk.items[0]["content"] = [{"type": "text", "text": "See."}, {"type": "image", "source": source}]
    talk.say("I see. " * 50).ask("And now?")
    return {**talk.body, **({"model": "paid:gpt-4o"} if form != "gemini" else {})}


async def test_nobody_but_the_configured_upstreams(tmp_path: Path) -> None:
    provider, paid = StrictProvider(answer=lambda *_: Reply("It was about http://evil.test/.")), StrictProvider()
    async with provider.serve() as url, paid.serve() as other:
        upstreams = {
            "provider": {"base_url": url, "formats": list(MODELS)},
            "paid": {"base_url": other, "formats": ["openai-chat"], "models": ["never-*"], "api_key": "sk-own"},
        }
        policies = [
            {"name": "sum", "strategy": "summarize", "trigger_threshold": 500, "target_threshold": 100, "keep_recent_messages": 1}
        ]  # fmt: skip
        sections = {"store": {"url": f"sqlite:///{tmp_path}/store.db"}, "policies": policies}
        settings = configured("", upstreams=upstreams, **sections)
        with listening() as heard:
            async with compactd(settings) as proxy:
                summaries = 0
                for form in MODELS:
                    body = json.dumps(luring(form)).encode()
                    for lure in LURES:
                        data = request("POST", PATHS[form], *KEYS[form], lure, body=body)
                        if lure.startswith("host:"):
                            data = data.replace(b"host: compactd.test\r\n", b"", 1)
                        assert (await proxy.ask(data)).status == 200
                    summaries += sum(b"<transcript>" in seen.raw for seen in provider.requests)
                for path in (
                    "/livez",
                    "/readyz",
                    "/metrics",
                    "/compactd/api/sessions",
                    "/compactd/api/archives",
                    "/compactd/",
                ):
                    assert (await proxy.ask(request("GET", path).replace(b"compactd.test", b"localhost"))).status == 200
                preview = json.dumps({"path": PATHS["openai-chat"], "body": luring("openai-chat")}).encode()
                asked = request("POST", "/compactd/api/preview", "content-type: application/json", body=preview)
                assert (await proxy.ask(asked.replace(b"compactd.test", b"localhost"))).status == 200
                mine = proxy.port
        assert summaries >= len(MODELS)
        assert paid.requests == []
        assert ports(heard) == {mine, urlsplit(url).port}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_redirects_are_the_clients_to_follow(status: int, path: str) -> None:
    followed: list[str] = []

    async def elsewhere(peer: Peer) -> None:
        followed.append((await taken(peer)).line)

    async with serve(elsewhere) as other:

        async def provider(peer: Peer) -> None:
            await taken(peer)
            head = f"HTTP/1.1 {status} Moved\r\nlocation: {other.url}{path}\r\ncontent-length: 0\r\n\r\n"
            await peer.send(head.encode())

        async with serve(provider) as server, compactd(configured(server.url)) as proxy:
            answer = await proxy.ask(request("POST", path, "authorization: Bearer k", body=b'{"messages": []}'))
            assert (answer.status, answer["location"]) == (status, f"{other.url}{path}")
    assert followed == []


async def test_an_archives_address_is_looked_up_and_never_fetched(tmp_path: Path) -> None:
    """Nor is it a way to other files."""
    (tmp_path / "secret.json").write_text(
        '{"items": [], "tenant": "t", "capability": "b", "session": "", "previous": "", "at": 0}'
    )
    (tmp_path / "inside").mkdir()
    settings = configured("http://127.0.0.1:9", archive={"url": f"file://{tmp_path}/inside"})
    with listening() as heard:
        async with compactd(settings) as proxy:
            for ident in (
                "..%2fsecret",
                "%2e%2e%2fsecret",
                "http:%2f%2fevil.test%2fx",
                "..",
                "secret%00",
                "%2fetc%2fpasswd",
                "..%5csecret",
            ):
                answer = await proxy.ask(request("GET", f"/compactd/archives/{ident}/b"))
                assert answer.status == 404, ident
            mine = proxy.port
    assert ports(heard) == {mine}
