"""The console's page and files, without a browser: who gets them, what they may load, and that nothing in them can run what others said."""

from __future__ import annotations

import re

import pytest

from app.edge.console import ASSETS, PAGE
from tests.edge.test_operations import app, client

SCRIPT = ASSETS["console.js"][0].decode()
FILES = ["/compactd/console/console.js", "/compactd/console/console.css", "/compactd/console/icon.svg"]


async def test_the_page_and_its_files() -> None:
    async with client(app()) as http:
        page = await http.get("/compactd/")
        assert (page.status_code, page.headers["content-type"], page.content) == (200, "text/html; charset=utf-8", PAGE)
        kinds = [(await http.get(path)).headers["content-type"] for path in FILES]
        assert kinds == ["text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml"]
        moved = await http.get("/compactd")
        assert (moved.status_code, moved.headers["location"]) == (308, "/compactd/")
        for path in ("/compactd/console/", "/compactd/console/page.html", "/compactd/console/..%2f__init__.py"):
            assert (await http.get(path)).status_code == 404


async def test_the_page_may_load_nothing_but_its_own_files() -> None:
    async with client(app()) as http:
        policy = (await http.get("/compactd/")).headers["content-security-policy"]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "'self'",
        "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
    }  # fmt: skip


def test_the_page_has_nothing_in_line_and_nothing_from_elsewhere() -> None:
    page = PAGE.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    assert re.findall(r'<script[^>]*src="([^"]*)"', page) == ["/compactd/console/console.js"]
    for address in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert address.startswith(("/compactd/", "#/"))
    assert "//" not in re.sub(r"/\*.*?\*/", "", ASSETS["console.css"][0].decode(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "way",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "setHTML", "srcdoc",
     "createContextualFragment", "location.href", "window.open", "localStorage", "http:", "https:"],
)  # fmt: skip
def test_the_script_has_no_way_to_run_what_it_shows(way: str) -> None:
    assert way not in SCRIPT


def test_links_of_the_script_lead_inside_the_page_only() -> None:
    assert re.findall(r"href: (`[^`]*`)", SCRIPT)
    assert all(href.startswith("`#/") for href in re.findall(r"href: (`[^`]*`|[^}, ]+)", SCRIPT))


async def test_with_a_token_the_page_is_shown_and_asks_for_it() -> None:
    """It holds no data; a browser can't send the token with its first request."""
    async with client(app(admin={"token": "tok-1"}, listen={"host": "0.0.0.0"}), "http://compactd.internal") as http:
        page = await http.get("/compactd/")
        assert (page.status_code, page.headers["www-authenticate"], page.content) == (401, "Bearer", PAGE)
        assert (await http.get("/compactd/api/sessions")).status_code == 401
        assert (await http.get("/compactd/", headers={"authorization": "Bearer tok-1"})).status_code == 200


async def test_open_to_the_network_without_a_token_there_is_no_console() -> None:
    async with client(app(listen={"host": "0.0.0.0"})) as http:
        answer = await http.get("/compactd/")
    assert answer.status_code == 403
    assert answer.text == "Set `admin.token` to use this from other machines."
    async with client(app(), "http://evil.test:8787") as http:
        assert (await http.get("/compactd/")).status_code == 403


async def test_console_that_is_off() -> None:
    async with client(app(console={"enabled": False})) as http:
        for path in ["/compactd/", "/compactd", *FILES]:
            assert (await http.get(path)).status_code == 404
        assert (await http.get("/compactd/api/sessions")).status_code == 200
