"""The demonstration's run: provider, compactd, clients, table, summary. Exit code 1 if anything was rejected or failed."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
from rich.console import Console

from deploy.demo import __doc__ as about
from deploy.demo.clients import Chat, Client, Messages
from deploy.demo.proxy import NotStarted, compactd, write_config
from deploy.demo.screen import shown, summary
from deploy.demo.story import STORIES, Step, Story
from deploy.demo.tally import Row, Tally
from tests.strict.answers import Call as Calling
from tests.strict.answers import Reply
from tests.strict.server import StrictProvider


def steps(story: Story) -> Iterator[tuple[Client, Step]]:
    """Both clients live through a story side by side: whose request is next, and what the model will answer."""
    clients: tuple[Client, ...] = (Chat(story), Messages(story))
    for turn in story.turns:
        for client in clients:
            client.asks(turn.asks)
        for step in turn.steps:
            yield from ((client, step) for client in clients)


def reply(step: Step, number: int) -> Reply:
    calls = tuple(Calling(call.name, call.arguments, f"call_{number:04d}_{at}") for at, call in enumerate(step.calls))
    return Reply(step.says, calls)


async def one(
    client: Client, step: Step, provider: StrictProvider, http: httpx.AsyncClient, tally: Tally
) -> Row | None:
    """One request through compactd; None if it failed."""
    number = len(tally.rows) + 1
    provider.answer = lambda form, body: reply(step, number)  # noqa: ARG005
    known = len(provider.requests)
    try:
        body, response = await client.send(http)
    except httpx.TransportError as fault:
        tally.failed.append(f"request {number}: {type(fault).__name__}")
        return None
    tally.sent(client, body)
    for seen in provider.requests[known:]:
        tally.arrived(seen, compacted=response.headers.get("x-compactd-outcome") == "compacted")
    if response.status_code != 200:
        tally.failed.append(f"request {number}: {response.status_code} {response.text[:200]}")
        return None
    row = tally.answered(client, len(body["messages"]), response.headers, client.answered(response.json()))
    if step.calls:
        client.tools_answered(step.calls)
    return row


async def archive(http: httpx.AsyncClient, address: str, tally: Tally) -> str:
    """Opens the last archive by its address, as anybody could, and says what is there."""
    response = await http.get(address)
    if response.status_code != 200:
        tally.failed.append(f"archive: {response.status_code} at {address}")
        return ""
    read = f"{len(response.content):,} bytes, {len(response.json()['items'])} messages; it was opened just now"
    return f"archive      {address}\n             {read}"


async def run(options: argparse.Namespace) -> int:
    console = Console(force_terminal=False if options.plain else None)
    pace = options.pace if options.pace is not None else 0.25 * console.is_terminal
    provider, tally = StrictProvider(window=options.window), Tally(options.window)
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(provider.serve())
        file, address = write_config(options.folder, upstream, options.window, STORIES)
        await stack.enter_async_context(compactd(file, address))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=address, trust_env=False, timeout=60))
        with shown(console, tally) as show:
            for client, step in itertools.islice(itertools.chain(*map(steps, STORIES)), options.requests):
                row = await one(client, step, provider, http, tally)
                if row is None:
                    break
                show(row)
                await asyncio.sleep(pace)
        where = await archive(http, tally.archive, tally) if tally.archive else ""
        for line in [
            "",
            *summary(tally),
            where,
            f"             later: .venv/bin/compactd archive list --config {file}",
        ]:
            console.print(line, soft_wrap=True, highlight=False)
        if options.keep:
            console.print(
                f"\ncompactd runs on at {address} (console: {address}/compactd/); Ctrl-C ends it.",
                soft_wrap=True,
                highlight=False,
            )
            await asyncio.Event().wait()
    return 1 if tally.rejected or tally.failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=(about or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, help="how many requests at most (default: all)")
    parser.add_argument("--window", type=int, default=9_000, help="the model's context window, tokens (default: 9000)")
    parser.add_argument("--pace", type=float, help="seconds between requests (default: 0.25 on a terminal, else 0)")
    parser.add_argument("--folder", type=Path, default=Path("data/demo"), help="where configuration, store and log go")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live table")
    parser.add_argument("--keep", action="store_true", help="leave compactd running at the end, for a look around")
    try:
        return asyncio.run(run(parser.parse_args()))
    except NotStarted as problem:
        print(f"compactd did not start: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
