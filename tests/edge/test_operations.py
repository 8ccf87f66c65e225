"""compactd's own endpoints: health, metrics, archives, the admin API, and who may see what."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app import __version__
from app.errors import StoreFailed
from app.main import App
from tests.edge.talks import Talk, compacted
from tests.edge.wire import PATHS, compactd, configured, request
from tests.strict.server import StrictProvider

LOW = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
ADMIN = [
    "/compactd/api/sessions", "/compactd/api/sessions/s", "/compactd/api/compactions", "/compactd/api/compactions/c",
    "/compactd/api/archives", "/compactd/api/archives/a", "/compactd/api/config",
]  # fmt: skip


def client(app: App, base: str = "http://127.0.0.1:8787", **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers)


def app(**sections: Any) -> App:
    return App(configured("http://127.0.0.1:9", **sections))


class Away:
    """A store that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise StoreFailed("away")

        return fail


@pytest.fixture
async def used() -> AsyncIterator[tuple[App, httpx.AsyncClient, Talk]]:
    """A compactd that has compacted two conversations, one of them twice."""
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW])) as proxy:
        talk = Talk("openai-chat").ask("Read.").rounds(8)
        assert (await proxy.ask(talk.request("x-compactd-session: first"))).told[0] == "compacted"
        talk.rounds(8, first=8)
        assert (await proxy.ask(talk.request("x-compactd-session: first"))).told[0] == "compacted"
        other = Talk("anthropic-messages").ask("Look.").rounds(8)
        assert (await proxy.ask(other.request("x-compactd-session: second"))).told[0] == "compacted"
        async with client(proxy.app) as http:
            yield proxy.app, http, talk


# Health


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_alive_whatever_else_is(path: str) -> None:
    one = app()
    one.store._store = Away()  # type: ignore[assignment]
    one.relay.draining = True
    async with client(one) as http:
        answer = await http.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": __version__})


async def test_ready() -> None:
    one = app()
    async with client(one) as http:
        assert ((await http.get("/readyz")).status_code, (await http.get("/readyz")).json()) == (200, {"status": "ok"})
        one.relay.draining = True
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "draining"})


async def test_ready_though_the_store_is_away_and_says_so() -> None:
    one = app()
    one.store._asking._store = Away()  # type: ignore[assignment]
    async with client(one) as http:
        for _ in range(20):  # until the breaker is open, too
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.json()) == (200, {"status": "degraded", "store": "down"})
        assert "\ncompactd_store_degraded 1.0\n" in (await http.get("/metrics")).text


# Who may


@pytest.mark.parametrize("path", [*ADMIN, "/metrics"])
async def test_admin_token(path: str) -> None:
    one = app(admin={"token": "tok-1", "protect_metrics": True})
    async with client(one) as http:
        for given in (
            {},
            {"authorization": "Bearer tok-2"},
            {"authorization": "tok-1x"},
            {"authorization": "Bearer t\xf6k".encode("latin-1")},
        ):
            answer = await http.get(path, headers=given)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        for given in ({"authorization": "Bearer tok-1"}, {"authorization": "bearer tok-1"}):
            assert (await http.get(path, headers=given)).status_code in (200, 404)
    async with client(one, "http://elsewhere.test", authorization="Bearer tok-1") as http:
        assert (await http.get(path)).status_code in (200, 404)


@pytest.mark.parametrize("path", ADMIN)
@pytest.mark.parametrize(
    "base",
    ["http://evil.test:8787", "http://127.0.0.1.evil.test", "http://localhost.evil.test:8787", "http://192.168.1.1"],
)
async def test_without_a_token_only_loopback_names_are_answered(path: str, base: str) -> None:
    """A web page that lets its own name point here (DNS rebinding) still sends its own name."""
    async with client(app(), base) as http:
        assert (await http.get(path)).status_code == 403


@pytest.mark.parametrize(
    "base",
    [
        "http://127.0.0.1:8787",
        "http://localhost",
        "http://localhost:1",
        "http://[::1]:8787",
        "http://[::1]",
        "http://127.0.0.5",
    ],
)
async def test_loopback_names(base: str) -> None:
    async with client(app(), base) as http:
        assert (await http.get("/compactd/api/config")).status_code == 200


@pytest.mark.parametrize("path", ADMIN)
async def test_open_to_the_network_without_a_token_there_is_no_admin_api(path: str) -> None:
    async with client(app(listen={"host": "0.0.0.0"})) as http:
        assert (await http.get(path)).status_code == 403


async def test_metrics_are_open_unless_protected() -> None:
    async with client(app(listen={"host": "0.0.0.0"}), "http://compactd.internal") as http:
        answer = await http.get("/metrics")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# TYPE compactd_inflight_requests gauge" in answer.text
        assert "\ncompactd_store_degraded 0.0\n" in answer.text


async def test_a_browser_can_not_be_made_to_post_a_preview() -> None:
    """A form's content type is not JSON, and there is no CORS."""
    async with client(app()) as http:
        answer = await http.post(
            "/compactd/api/preview", content='{"body": {"messages": []}}', headers={"content-type": "text/plain"}
        )
        assert answer.status_code == 422
        answer = await http.options(
            "/compactd/api/preview", headers={"origin": "http://evil.test", "access-control-request-method": "POST"}
        )
        assert "access-control-allow-origin" not in answer.headers


# Archives


async def test_archive_by_its_address(used: tuple[App, httpx.AsyncClient, Talk]) -> None:
    """The address in the header and the one in the placeholders are the same and open; all that was cleared is there, once."""
    app, http, talk = used
    listed = (await http.get("/compactd/api/archives?session=first")).json()["archives"]
    newest = listed[0]["address"]
    assert re.fullmatch(
        r"http://127\.0\.0\.1:8787/compactd/archives/compaction_first_[0-9TZ]+_2_\w+/[0-9a-f]{32}", newest
    )
    async with client(app, "http://elsewhere.test") as anybody:
        answer = await anybody.get(newest.removeprefix("http://127.0.0.1:8787"))
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        items = answer.json()["items"]
        assert len(items) == len({item["index"] for item in items}) > 8
        assert all(item["item"] == talk.items[item["index"]] for item in items)
        for wrong in (
            newest[:-1],
            newest[:-1] + ("0" if newest[-1] != "0" else "1"),
            newest.replace("first", "second"),
            newest + "/",
        ):
            assert (await anybody.get(wrong.removeprefix("http://127.0.0.1:8787"))).status_code in (404, 307)


async def test_archive_for_admins_only() -> None:
    provider = StrictProvider()
    sections = {"archive": {"access": "admin"}, "admin": {"token": "tok-1"}}
    async with provider.serve() as url, compactd(configured(url, policies=[LOW], **sections)) as proxy:
        answer = await proxy.ask(Talk("openai-chat").ask("Read.").rounds(8).request())
        path = answer["x-compactd-archive"].removeprefix("http://127.0.0.1:8787")
        async with client(proxy.app) as http:
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"authorization": "Bearer tok-1"})).status_code == 200


async def test_archive_that_is_not_there() -> None:
    async with client(app()) as http:
        for path in ("/compactd/archives/a/b", "/compactd/api/archives/a", "/compactd/archives/%00/%ff"):
            assert (await http.get(path)).status_code == 404


async def test_store_that_is_away_is_told_as_such() -> None:
    one = app()
    one.store._store = Away()  # type: ignore[assignment]
    async with client(one) as http:
        for path in ["/compactd/archives/a/b", *ADMIN[:-1]]:
            answer = await http.get(path)
            assert (answer.status_code, answer.json()) == (503, {"detail": "The store does not answer."})


# The admin API


async def test_sessions(used: tuple[App, httpx.AsyncClient, Talk]) -> None:
    _, http, _ = used
    sessions = (await http.get("/compactd/api/sessions")).json()["sessions"]
    assert {session["id"]: session["compactions"] for session in sessions} == {"first": 2, "second": 1}
    one = (await http.get("/compactd/api/sessions/first")).json()
    assert (one["format"], one["strategy"], one["level"]) == ("openai-chat", "tool_result_clearing", 2)
    assert "tenant" not in json.dumps(sessions)
    assert (await http.get("/compactd/api/sessions/nosuch")).status_code == 404


async def test_compactions(used: tuple[App, httpx.AsyncClient, Talk]) -> None:
    _, http, _ = used
    found = (await http.get("/compactd/api/compactions?session=first")).json()["compactions"]
    assert len(found) == 2
    assert all(one["tokens_after"] < one["tokens_before"] for one in found)
    one = (await http.get(f"/compactd/api/compactions/{found[0]['id']}")).json()
    assert one == found[0]
    assert (await http.get("/compactd/api/compactions/nosuch")).status_code == 404


@pytest.mark.parametrize(
    ("path", "key"), [("sessions", "sessions"), ("compactions", "compactions"), ("archives", "archives")]
)
async def test_lists_page_by_cursor(path: str, key: str, used: tuple[App, httpx.AsyncClient, Talk]) -> None:
    _, http, _ = used
    everything = (await http.get(f"/compactd/api/{path}")).json()[key]
    paged, cursor = [], ""
    while True:
        page = (await http.get(f"/compactd/api/{path}", params={"limit": 1, "cursor": cursor})).json()
        paged += page[key]
        cursor = page["cursor"]
        if not cursor:
            break
    assert paged == everything
    assert len(paged) == {"sessions": 2}.get(path, 3)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=" + "x" * 401])
async def test_lists_refuse_odd_paging(query: str) -> None:
    async with client(app()) as http:
        assert (await http.get(f"/compactd/api/sessions?{query}")).status_code == 422


@pytest.mark.parametrize("cursor", ["x", "1", "1:", ":", "9" * 300, "\x00", "é", "-1:a", "nan:1", "1e999:1"])
@pytest.mark.parametrize("path", ["sessions", "compactions", "archives"])
async def test_cursor_that_is_none_is_no_fault(path: str, cursor: str) -> None:
    async with client(app()) as http:
        assert (await http.get(f"/compactd/api/{path}", params={"cursor": cursor})).status_code in (200, 400, 422)


async def test_config_is_masked() -> None:
    upstreams = {
        "a": {
            "base_url": "http://a.test",
            "formats": ["gemini"],
            "api_key": "sk-SECRET",
            "headers": {"authorization": "SECRET-header"},
        }
    }
    sections = {"upstreams": upstreams, "admin": {"token": "tok-SECRET"}, "auth": {"keys": ["ck-SECRET"]}}
    async with client(app(**sections), authorization="Bearer tok-SECRET") as http:
        answer = await http.get("/compactd/api/config")
    assert "SECRET" not in answer.text
    assert answer.json()["upstreams"]["a"]["base_url"] == "http://a.test"


@pytest.mark.parametrize("form", PATHS)
async def test_preview(form: str) -> None:
    body = Talk(form).ask("Read.").rounds(8).body
    one = app(policies=[LOW])
    async with client(one) as http:
        answer = await http.post("/compactd/api/preview", json={"path": PATHS[form], "body": body})
        found = answer.json()
        assert (answer.status_code, found["outcome"]) == (200, "compacted")
        assert compacted(json.loads(found["body"]))
        assert (await http.get("/compactd/api/compactions")).json()["compactions"] == []


@pytest.mark.parametrize(
    "content",
    [
        b'{"body": {"messages": [{"role": "user", "content": "\\ud800"}], "n": 1' + b"0" * 400 + b"}}",
        b'{"body": "\\ud800"}',
        b'{"body": {"messages": "x"}, "policy": "nosuch"}',
        b'{"body": {"messages": [' + b"[" * 500 + b"]" * 500 + b"]}}",
    ],
)
async def test_preview_of_something_odd_is_no_fault(content: bytes) -> None:
    async with client(app()) as http:
        answer = await http.post("/compactd/api/preview", content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 422)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"body": 7}', b'{"body": {}, "more": 1}', b'{"body": {"n": NaN}}x']
)
async def test_preview_of_nothing_is_refused(content: bytes) -> None:
    async with client(app()) as http:
        answer = await http.post("/compactd/api/preview", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 422


async def test_the_api_describes_itself() -> None:
    async with client(app()) as http:
        paths = (await http.get("/compactd/api/openapi.json")).json()["paths"]
    assert {
        "/readyz",
        "/metrics",
        "/compactd/api/preview",
        "/compactd/archives/{archive_id}/{capability}",
    } <= paths.keys()


async def test_the_frameworks_own_telemetry_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says: it would record exceptions with their text."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    telemetry = getattr(app()._operations, "_native_telemetry", None)
    assert telemetry is None or not telemetry.enabled()


async def test_own_paths_are_never_forwarded() -> None:
    """The provider's address is dead: whatever went there would be a 502."""
    async with compactd(configured("http://127.0.0.1:9")) as proxy:
        for method, path in (
            ("GET", "/compactd/nosuch"),
            ("POST", "/livez"),
            ("DELETE", "/compactd/api/sessions"),
            ("GET", "/compactd%2Fx"),
        ):
            assert (await proxy.ask(request(method, path))).status in (403, 404, 405)
