"""Archives as tools of the Model Context Protocol, asked by the official client, in process and as `compactd mcp`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client

from app.archive import draft_archive, holder_of
from app.core import jsonspan
from app.edge import mcp
from app.edge.stores import StoreOptions, open_store
from app.edge.stores.memory import MemoryStore
from app.errors import Unreadable
from app.records import Archive
from tests.edge.talks import Talk

FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]


def archived(form: str, previous: str = "", first: int = 0, items: list[Any] | None = None) -> tuple[Archive, str]:
    """An archive of a short talk, and its address."""
    told = (
        items if items is not None else Talk(form).ask("Where is the harbour?").rounds(2, "the quay is at N53.54").items
    )
    draft = draft_archive("http://127.0.0.1:8787", "tenant", "s", [b"chain%d" % first], 1 + first)
    raws = [(first + at, jsonspan.dump(item)) for at, item in enumerate(told)]
    return draft.filled(raws, previous, "summarize", 1, form, "m"), draft.address


class Asked:
    """A client of a server over these archives."""

    def __init__(self, *archives: Archive) -> None:
        self.store = MemoryStore()
        self.archives = archives

    async def __call__(self, tool: str, **given: Any) -> str:
        for archive in self.archives:
            await self.store.put_archive(archive)

        @asynccontextmanager
        async def opening() -> AsyncIterator[MemoryStore]:
            yield self.store

        async with Client(mcp.server(opening)) as client:
            return said(await client.call_tool(tool, given))


def said(result: Any) -> str:
    return "".join(block.text for block in result.content)


@pytest.mark.parametrize("form", FORMS)
async def test_reading_shows_messages_in_order(form: str) -> None:
    archive, address = archived(form)
    told = await Asked(archive)("read_archive", address=address)
    assert told.startswith("#0 USER: Where is the harbour?")
    assert told.index("[tool_call: ") < told.index("[tool_result: ")
    assert "N53.54" in told


class Sealed(MemoryStore):
    """One of its archives needs a key that is not here."""

    sealed = ""

    async def get_archive(self, archive_id: str) -> Archive | None:
        if archive_id == self.sealed:
            capability = self._archives.get(archive_id).capability
            raise Unreadable("needs the encryption key old, which is not configured", holder_of(archive_id, capability))
        return await super().get_archive(archive_id)


async def test_an_archive_that_can_not_be_opened_is_told_of() -> None:
    earlier, link = archived("openai-chat", items=[{"role": "user", "content": "the very first"}])
    later, address = archived("openai-chat", link, 1, [{"role": "assistant", "content": "and then"}])
    asked = Asked(earlier, later)
    asked.store = Sealed()
    asked.store.sealed = earlier.id
    lost = (
        f"[What was removed before can't be read: {earlier.id} needs the encryption key old, which is not configured.]"
    )
    assert await asked("read_archive", address=address) == f"#0 {lost}\n\n#1 ASSISTANT: and then"
    told = await asked("search_archive", address=link, text="first")
    assert "This archive needs the encryption key old, which is not configured." in told


async def test_what_was_archived_before_is_there_too() -> None:
    earlier, link = archived("openai-chat", items=[{"role": "user", "content": "the very first"}])
    later, address = archived("openai-chat", link, 1, [{"role": "assistant", "content": "and then"}])
    assert (
        await Asked(earlier, later)("read_archive", address=address)
        == "#0 USER: the very first\n\n#1 ASSISTANT: and then"
    )


async def test_pages() -> None:
    archive, address = archived("openai-chat", items=[{"role": "user", "content": f"number {n}"} for n in range(9)])
    ask = Asked(archive)
    told = await ask("read_archive", address=address, start=2, count=3)
    assert (
        told
        == "#2 USER: number 2\n\n#3 USER: number 3\n\n#4 USER: number 4\n\n[4 more: read_archive(address, start=5)]"
    )
    assert await ask("read_archive", address=address, start=9) == "There are 9 messages; the first is number 0."


async def test_an_answer_is_bounded() -> None:
    archive, address = archived("openai-chat", items=[{"role": "user", "content": "x" * 30_000} for _ in range(30)])
    told = await Asked(archive)("read_archive", address=address, count=200)
    assert len(told) < mcp.ANSWER_CHARACTERS + 1_000
    assert "[… 22,006 more characters; search_archive finds words in them]" in told
    assert told.endswith("more: read_archive(address, start=4)]")


async def test_searching_shows_what_stands_around_newest_first() -> None:
    items = [{"role": "user", "content": f"{'a ' * 400}the Quay {n}{' b' * 400}"} for n in range(3)]
    archive, address = archived("openai-chat", items=items)
    ask = Asked(archive)
    told = (await ask("search_archive", address=address, text="the quay", count=2)).split("\n\n")
    assert [place[:3] for place in told] == ["#2 ", "#1 "]
    assert all("the Quay" in place and len(place) < 2 * mcp.AROUND + 40 for place in told)
    assert await ask("search_archive", address=address, text=".*") == "'.*' stands nowhere in these 3 messages."


@pytest.mark.parametrize(
    "change",
    [lambda a: a[:-1] + "x", lambda a: a[:-1], lambda a: a.replace("compaction_", "compaction-"), lambda _: "it"],
)
async def test_an_address_opens_nothing_else(change: Any) -> None:
    archive, address = archived("openai-chat")
    assert "There is no archive at this address" in await Asked(archive)("read_archive", address=change(address))


async def test_the_command_serves_the_configured_store(tmp_path: Path) -> None:
    archive, address = archived("anthropic-messages")
    url = f"sqlite:///{tmp_path}/data.db"
    store = open_store(url, StoreOptions(timeout=5))
    await store.put_archive(archive)
    await store.close()
    root = Path(__file__).parents[2]
    command = StdioServerParameters(
        command=sys.executable, args=["-c", "from app.cli import main; main()", "mcp"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "COMPACTD_STORE__URL": url},
    )  # fmt: skip
    async with Client(stdio_client(command)) as client:
        tools = await client.list_tools()
        assert {tool.name for tool in tools.tools} == {"read_archive", "search_archive"}
        assert "N53.54" in said(await client.call_tool("search_archive", {"address": address, "text": "quay"}))
