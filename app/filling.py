"""Where a recap's text comes from: no model at all, or a model asked once per prefix.

A summary is expensive, so nobody makes one twice: requests of this process that wait for the same prefix share one flight, a lease keeps
other replicas waiting for the checkpoint that comes of it, and a flight goes on when its client leaves, because the client will be back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from app.core import tokens
from app.core.transcript import Seen
from app.errors import StoreFailed, SummaryFailed
from app.ports import Summarizer, Summary, SummaryJob
from app.request import Context

SETTLED = "settled_elsewhere"
"""The reason of a SummaryFailed that is none: another replica has made this compaction meanwhile."""
POLL_SECONDS = 0.1
FINISHED_KEPT = 256
"""Finished flights that are remembered for clients that left and come back."""


class Leases(Protocol):
    """The part of the keeper that a flight needs."""

    async def acquire(self, name: str, seconds: float) -> str | None: ...

    async def release(self, name: str, token: str) -> None: ...

    async def has_checkpoint(self, context: Context, covered: int) -> bool: ...


class Filler:
    def __init__(self, summarizer: Summarizer, leases: Leases) -> None:
        self._summarizer = summarizer
        self._leases = leases
        self._flights: dict[str, asyncio.Task[Summary]] = {}

    async def extracted(self, context: Context, items: Sequence[Seen], room: int) -> Summary:
        """The summary that needs no model. Raises SummaryFailed("nothing_to_say")."""
        from app.summaries.extractive import extract

        policy = context.ask.policy
        text = await asyncio.to_thread(
            extract, items, room,
            keep_user_messages=policy.keep_user_messages, keep_values=policy.keep_values, count=_counter(context),
        )  # fmt: skip
        if not text.strip():
            raise SummaryFailed("nothing_to_say")
        return Summary(text)

    async def asked(self, context: Context, items: Sequence[Seen], leaving: int, covered: int) -> Summary:
        """The model's summary, with what the policy wants repeated verbatim. Raises SummaryFailed."""
        policy = context.ask.policy
        name = f"summary {context.ask.tenant} {policy.name} {context.chain[covered - 1].hex()}"
        flight = self._flights.get(name)
        if flight is None:
            self._forget_finished()
            flight = asyncio.create_task(self._fly(context, items, leaving, covered, name))
            flight.add_done_callback(_retrieved)
            self._flights[name] = flight
        try:
            async with asyncio.timeout(policy.summary_timeout):
                return await asyncio.shield(flight)
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        finally:
            if flight.done() and (flight.cancelled() or flight.exception() is not None):
                self._flights.pop(name, None)

    async def _fly(self, context: Context, items: Sequence[Seen], leaving: int, covered: int, name: str) -> Summary:
        policy = context.ask.policy
        token = await self._lease(context, covered, name)
        try:
            async with asyncio.timeout(policy.summary_timeout):
                summary = await self._summarizer.summarize(SummaryJob(context.ask, items, leaving))
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        finally:
            if token:
                await self._release(name, token)
        repeated = await asyncio.to_thread(_verbatim, context, items)
        return summary.with_appended(repeated)

    async def _lease(self, context: Context, covered: int, name: str) -> str:
        """A lease on this prefix, "" where the store can't give any. Raises SummaryFailed(SETTLED) once its holder is done."""
        until = time.monotonic() + context.ask.policy.summary_timeout
        while time.monotonic() < until:
            try:
                token = await self._leases.acquire(name, context.ask.policy.summary_timeout + 5)
                if token is not None:
                    # Its last holder may have finished between our look into the store and now.
                    if await self._leases.has_checkpoint(context, covered):
                        await self._release(name, token)
                        raise SummaryFailed(SETTLED)
                    return token
                if await self._leases.has_checkpoint(context, covered):
                    raise SummaryFailed(SETTLED)
            except StoreFailed:
                return ""
            await asyncio.sleep(POLL_SECONDS)
        raise SummaryFailed("timeout")

    async def _release(self, name: str, token: str) -> None:
        with contextlib.suppress(StoreFailed):
            await self._leases.release(name, token)

    def _forget_finished(self) -> None:
        finished = [name for name, flight in self._flights.items() if flight.done()]
        for name in finished[: max(0, len(finished) - FINISHED_KEPT)]:
            del self._flights[name]


def _verbatim(context: Context, items: Sequence[Seen]) -> str:
    """Earlier requests and exact values, which a model's own words tend to lose."""
    from app.summaries.requests import kept_requests
    from app.summaries.values import kept_values

    policy, count = context.ask.policy, _counter(context)
    sections = [
        kept_requests(items, policy.keep_user_messages, count) if policy.keep_user_messages else "",
        kept_values(items, policy.keep_values, count) if policy.keep_values else "",
    ]
    return "\n\n".join(section for section in sections if section)


def _counter(context: Context) -> Callable[[str], int]:
    encoding = context.ask.model.encoding
    return lambda text: tokens.count(text, encoding)


def _retrieved(flight: asyncio.Task[Summary]) -> None:
    """A flight that nobody waits for any more may fail in silence."""
    if not flight.cancelled():
        flight.exception()
