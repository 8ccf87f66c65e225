"""Who may see compactd's own pages, and what a browser may do with them: refused before anything is read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from app.edge import access
from app.edge.access import Access
from app.settings import Settings
from tests.edge.test_operations import ADMIN, Away, app, client, used  # noqa: F401
from tests.edge.wire import compactd, configured, request, until

PREVIEW = "/compactd/api/preview"
PAGES = [
    "/livez", "/readyz", "/metrics", "/compactd/", "/compactd/console/console.js", "/compactd/nosuch", "/compactd/archives/a/b",
    "/compactd/api/openapi.json", *ADMIN,
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_of_ours_can_be_framed_sniffed_kept_or_read_by_another_origin(path: str) -> None:
    async with client(app()) as http:
        answer = await http.get(path, headers={"origin": "http://evil.test"})
    headers = answer.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ADMIN)
@pytest.mark.parametrize(
    "header", ["x-forwarded-for: 9.9.9.9", "forwarded: for=9.9.9.9", "x-real-ip: 9.9.9.9", "via: 1.1 x"]
)
async def test_a_proxy_in_front_makes_nobody_an_administrator(path: str, header: str) -> None:
    name, _, value = header.partition(": ")
    async with client(app()) as http:
        assert (await http.get(path, headers={name: value})).status_code == 403
    async with client(app(admin={"token": "tok-1"})) as http:
        given = {name: value, "authorization": "Bearer tok-1"}
        assert (await http.get(path, headers=given)).status_code in (200, 404)


@pytest.mark.parametrize(
    ("url", "status"), [("https://llm.example.com", 403), ("http://localhost:9", 200), ("http://[::1]:9/x", 200)]
)
async def test_a_public_address_means_that_others_can_ask(url: str, status: int) -> None:
    async with client(app(listen={"public_url": url})) as http:
        assert (await http.get("/compactd/api/config")).status_code == status


@pytest.mark.parametrize(
    "host", ["", "[", "[::1", "127.0.0.1@evil.test", "evil.test#localhost", "localhost, evil.test", "127.0.0.1.:1"]
)
async def test_odd_hosts_are_no_loopback_names(host: str) -> None:
    async with client(app()) as http:
        answer = await http.get("/compactd/api/config", headers={"host": host})
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "given",
    [
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://["},
    ],
)
async def test_no_other_page_can_post(given: dict[str, str]) -> None:
    """Not even with a content type that needs a preflight: there is none that would be allowed."""
    async with client(app()) as http:
        assert (await http.post(PREVIEW, json={"body": {}}, headers=given)).status_code == 403
        own = {"origin": "http://127.0.0.1:8787", "sec-fetch-site": "same-origin"}
        assert (await http.post(PREVIEW, json={"body": {}}, headers=own)).status_code == 200


@pytest.mark.parametrize("content", [b"no json", b'{"body": {}}'])
async def test_a_stranger_is_refused_before_the_body_is_looked_at(content: bytes) -> None:
    async with client(app(admin={"token": "tok-1"})) as http:
        answer = await http.post(PREVIEW, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_bodies_are_bounded() -> None:
    content = b'{"body": "' + b"x" * 2_000 + b'"}'
    async with client(app(limits={"max_body_bytes": 1_000})) as http:
        answer = await http.post(PREVIEW, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
    async with compactd(configured("http://127.0.0.1:9", limits={"max_body_bytes": 1_000})) as proxy:
        asked = request("POST", PREVIEW, "content-type: application/json", body=content)
        assert (await proxy.ask(asked.replace(b"host: compactd.test", b"host: localhost"))).status == 413


async def test_what_waits_for_those_who_read_slowly_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hold an archive in memory; many of them, all of it."""
    monkeypatch.setattr(access, "WAITING", 3_000_000)
    body = bytes(range(256)) * 8_000
    go = asyncio.Event()

    async def page(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    guard = Access(page, lambda: configured("http://127.0.0.1:9"))

    async def read(slowly: bool = False) -> tuple[int, bytes]:
        got: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            got.append(message)
            if slowly and len(got) == 3:
                await go.wait()

        await guard({"method": "GET", "path": "/compactd/archives/a/b", "headers": []}, None, send)
        pieces = [message["body"] for message in got[1:]]
        assert max(map(len, pieces)) <= access.PIECE
        assert [message.get("more_body", False) for message in got[1:]] == [True] * (len(pieces) - 1) + [False]
        return got[0]["status"], b"".join(pieces)

    first = asyncio.create_task(read(slowly=True))
    await until(lambda: guard._waiting)
    assert (await read())[0] == 503
    go.set()
    assert await first == (200, body)
    assert guard._waiting == 0
    monkeypatch.setattr(access, "WAITING", 1_000_000)
    assert await read() == (200, body)  # larger than the bound, and alone


async def test_without_content_there_is_no_way_to_a_message(used) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    """Neither by the API nor by an address that it gives away."""
    compacting, http, _ = used
    ident = (await http.get("/compactd/api/archives")).json()["archives"][0]["id"]
    assert "/compactd/archives/" in (await http.get("/compactd/api/compactions")).text
    compacting.settings = compacting.settings.model_copy(
        update={"console": compacting.settings.console.model_copy(update={"content": False})}
    )
    answer = await http.get(f"/compactd/api/archives/{ident}")
    assert (answer.status_code, answer.json()["detail"].startswith("`console.content` is false")) == (403, True)
    for path in ("archives", "sessions", "sessions/first", "compactions"):
        answer = await http.get(f"/compactd/api/{path}")
        assert answer.status_code == 200
        assert "/compactd/archives/" not in answer.text


def test_a_reload_can_not_open_what_a_start_has_closed() -> None:
    """The socket stays where it was bound, whatever the file says now."""
    started = configured("http://127.0.0.1:9", listen={"host": "0.0.0.0"})
    later = configured("http://127.0.0.1:9", listen={"host": "127.0.0.1"}, policies=[{"name": "new"}])
    after = later.after(started)
    assert (after.listen.host, after.policies[0].name) == ("0.0.0.0", "new")
    keyed = {"provider": {"base_url": "http://127.0.0.1:9", "formats": ["gemini"], "api_key": "sk-1"}}
    with pytest.raises(ValidationError, match="anybody who can connect"):
        Settings(upstreams=keyed).after(started)
