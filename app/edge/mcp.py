"""`compactd mcp`: an agent's way back to what a compaction removed, as tools of the Model Context Protocol (extra `mcp`).

An agent finds an archive's address in a recap or in a placeholder. With a shell it can fetch it from the proxy; without one it asks here.
An address opens what it names and nothing else, here as over HTTP: there is no tool that lists what others have said. Answers are bounded,
so that reading the past does not fill the window that it was cleared from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from app import __version__
from app.archive import Archives, full_document, opened_by
from app.core.transcript import Seen, line
from app.errors import Unreadable
from app.formats import FORMATS

_ADDRESS = re.compile(r"/compactd/archives/([^/\s]+)/([0-9a-f]+)")
ITEM_CHARACTERS, ANSWER_CHARACTERS = 8_000, 40_000
"""What one message and one answer show at most."""
AROUND = 200
"""Characters shown on either side of what was searched for."""

Address = Annotated[str, Field(description="The archive's address, as the recap or the cleared result names it.")]
Opening = Callable[[], AbstractAsyncContextManager[Archives]]
"""Opens the archives for one call."""


def server(opening: Opening) -> MCPServer:
    """The server with its two tools; both raise ToolError, with what to do, for an address that opens nothing."""
    tools: MCPServer = MCPServer("compactd", version=__version__, instructions=_INSTRUCTIONS)

    @tools.tool()
    async def read_archive(
        address: Address,
        start: Annotated[int, Field(ge=0, description="Number of the first message to show.")] = 0,
        count: Annotated[int, Field(ge=1, le=200, description="How many messages at most.")] = 20,
    ) -> str:
        """Read earlier messages of this conversation that compaction removed, word for word, oldest first."""
        async with opening() as archives:
            messages = list(await _messages(archives, address))
        shown: list[str] = []
        for number, text in messages[start : start + count]:
            cut = f"\n[… {len(text) - ITEM_CHARACTERS:,} more characters; search_archive finds words in them]"
            told = f"#{number} {text[:ITEM_CHARACTERS]}{cut if len(text) > ITEM_CHARACTERS else ''}"
            if shown and sum(map(len, shown)) + len(told) > ANSWER_CHARACTERS:
                break
            shown.append(told)
        if not shown:
            return f"There are {len(messages)} messages; the first is number 0."
        rest = len(messages) - start - len(shown)
        more = f"\n\n[{rest} more: read_archive(address, start={start + len(shown)})]" if rest > 0 else ""
        return "\n\n".join(shown) + more

    @tools.tool()
    async def search_archive(
        address: Address,
        text: Annotated[str, Field(min_length=1, max_length=200, description="Words to look for, in any case.")],
        count: Annotated[int, Field(ge=1, le=100, description="How many places at most.")] = 20,
    ) -> str:
        """Find words in earlier messages of this conversation that compaction removed; newest first, with what stands around them."""
        async with opening() as archives:
            messages = list(await _messages(archives, address))
        places = (
            f"#{number} … {found[0].strip()} …"
            for number, said in reversed(messages)
            for found in re.finditer(rf"(?is).{{0,{AROUND}}}{re.escape(text)}.{{0,{AROUND}}}", said)
        )
        shown = [place for place, _ in zip(places, range(count), strict=False)]
        return "\n\n".join(shown) if shown else f"{text!r} stands nowhere in these {len(messages)} messages."

    return tools


async def _messages(archives: Archives, address: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each archived message, oldest first. Raises ToolError."""
    named = _ADDRESS.search(address)
    try:
        archive = await opened_by(archives, named[1], named[2]) if named else None
    except Unreadable as fault:
        raise ToolError(f"This archive {fault.why}.") from None
    if archive is None:
        raise ToolError(
            "There is no archive at this address (any more). Give the whole address as the recap or the cleared result has it."
        )
    document = await full_document(archives, archive)
    form = FORMATS[document["format"]]
    before = [f"[What was removed before can't be read: {document['unreadable']}.]"] if "unreadable" in document else []
    return enumerate(before + [line(_seen(form, item)) or "[nothing that can be read]" for item in document["items"]])


def _seen(form: Any, item: dict[str, Any]) -> Seen:
    return Seen(form.facts(item["item"]), tuple(form.parts(item["item"])), item["index"])


_INSTRUCTIONS = (
    "Earlier parts of a long conversation may have been replaced by a summary or a short placeholder that names an archive's address. "
    "Read them with these tools when the summary lacks a detail that you need; search before reading much."
)
