"""The console in a real browser, over conversations that try to run there. Skipped where Chromium or playwright is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.talks import Talk
from tests.edge.wire import Running, compactd, configured
from tests.strict.server import StrictProvider

api = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
HOSTILE = "<img src=x onerror='window.ran=1'><script>window.ran=1</script><a href=\"javascript:window.ran=1\">x</a> ${window.ran=1}"
POLICIES = [
    {"name": "clear", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
]


@asynccontextmanager
async def opened(talks: int, **sections: Any) -> AsyncIterator[tuple[Running, Any, list[str]]]:
    """compactd after so many compacted conversations, a page of a browser, and all that the browser complains of."""
    complaints: list[str] = []
    async with (
        StrictProvider().serve() as url,
        compactd(configured(url, policies=POLICIES, **sections), patience=120) as proxy,
        api.async_playwright() as playwright,
    ):
        for number in range(talks):
            text = f"{HOSTILE} {number}\n" + "line\n" * 200
            talk = Talk("openai-chat").ask(f"{HOSTILE} {number}").rounds(8, text=text)
            answer = await proxy.ask(talk.request(f"x-compactd-session: talk-{number:02d}"))
            assert answer.told[0] == "compacted"
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda fault: complaints.append(str(fault)))
        page.on("requestfailed", lambda failed: complaints.append(f"{failed.url} {failed.failure}"))
        yield proxy, page, complaints
        await browser.close()


async def test_an_operators_way_through_the_console() -> None:
    async with opened(55) as (proxy, page, complaints):
        await page.goto(f"{proxy.url}/compactd/")
        await page.wait_for_selector("tbody tr")
        assert await page.locator("tbody tr").count() == 50
        await page.click("button.more")
        await page.wait_for_selector("tbody tr:nth-child(55)")
        assert not await page.is_visible("button.more")
        assert await page.inner_text(".figure:nth-child(2) b") == "55"

        await page.click("text=talk-07")
        await page.wait_for_selector("h1:has-text('talk-07')")
        assert await page.locator("progress").count() == 1
        await page.click("text=read")
        await page.wait_for_selector("article")
        assert HOSTILE in await page.inner_text("article >> nth=0")

        await page.click("nav >> text=Policies")
        await page.wait_for_selector("dd:has-text('tool_result_clearing')")
        await page.click("nav >> text=Preview")
        await page.fill("textarea", json.dumps(Talk("openai-chat").ask(HOSTILE).rounds(9, text=HOSTILE * 30).body))
        await page.click("form button")
        await page.wait_for_selector("h2:has-text('compacted: threshold')")
        assert "<script>window.ran=1</script>" in await page.inner_text("pre")
        await page.fill("textarea", "no json")
        await page.click("form button")
        await page.wait_for_selector(".fault:has-text('not_json')")

        assert await page.evaluate("window.ran") is None
        assert complaints == []


async def test_the_token_is_asked_for_once() -> None:
    async with opened(1, admin={"token": "tok-1"}) as (proxy, page, _):
        await page.goto(f"{proxy.url}/compactd/")
        await page.fill("input[type=password]", "wrong")
        await page.click("form button")
        await page.wait_for_selector(".fault:has-text('not accepted')")
        await page.fill("input[type=password]", "tok-1")
        await page.click("form button")
        await page.wait_for_selector("tbody tr:has-text('talk-00')")
        await page.reload()
        await page.wait_for_selector("tbody tr:has-text('talk-00')")


async def test_without_content_no_message_is_shown() -> None:
    async with opened(1, console={"content": False}) as (proxy, page, _):
        await page.goto(f"{proxy.url}/compactd/#/sessions/talk-00")
        await page.wait_for_selector("progress")
        assert await page.locator("text=read").count() == 0
        await page.click("a:has-text('compaction_talk-00')")
        await page.wait_for_selector(".fault:has-text('console.content')")
