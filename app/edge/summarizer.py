"""Asking a model for a summary: through the same client, upstream and format as the request itself, or another upstream's.

The call carries the client's own credentials and beta headers where it goes to the client's own upstream, no tools, no stream, and nothing
of the conversation but the fenced transcript. What comes back is a summary or a named failure, never something in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from app.core import jsonspan, tokens
from app.edge.bodies import open_coding
from app.edge.exchange import Wiring
from app.edge.forwarding import address
from app.edge.headers import forwarded
from app.edge.metrics import Metrics
from app.edge.upstream import Upstream
from app.errors import NotCompactable, SummaryFailed
from app.formats import FORMATS
from app.formats.base import Format, Target, Usage
from app.ports import Summary, SummaryJob
from app.registry import Model
from app.summaries import prompt

LONGEST_ANSWER = 4 << 20
"""Bytes."""
MARGIN = 512
"""Tokens left for what our count does not see."""
MOST_LINKS = 24
"""Calls that one summary may take at most."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Who is asked: upstream, format, model; `own` says that it is the client's own upstream, where its credentials belong."""

    upstream: str
    form: Format
    model: Model
    name: str
    own: bool


class ModelSummarizer:
    def __init__(self, wiring: Callable[[], Wiring], client: Upstream, metrics: Metrics) -> None:
        self._wiring = wiring
        self._client = client
        self._metrics = metrics

    async def summarize(self, job: SummaryJob) -> Summary:
        """Raises SummaryFailed: unreachable, status_N, empty, refused, truncated, tool_call, reasoning_only, unreadable, too_long, …"""
        wiring, policy = self._wiring(), job.ask.policy
        where = self._destination(wiring, job)
        most = policy.summary_max_tokens
        instructions = policy.summary_instructions or prompt.built_in()
        room = where.model.context_window - most - MARGIN - 2 * tokens.count(instructions, where.model.encoding)
        stretches = await asyncio.to_thread(self._stretches, job, where, room - most)
        if not stretches:
            raise SummaryFailed("nothing_to_say")
        if len(stretches) > MOST_LINKS:
            raise SummaryFailed("too_many_links")
        text, used = "", Usage()
        with self._metrics.summary_seconds.time():
            for stretch in stretches:
                text, told = await self._ask(wiring, job, where, prompt.question(instructions, stretch, text, most))
                used = Usage(used.input + told.input, used.output + told.output)
        self._metrics.summary_tokens.labels("input").inc(used.input)
        self._metrics.summary_tokens.labels("output").inc(used.output)
        if tokens.count(text, job.ask.model.encoding) > job.leaving:
            raise SummaryFailed("too_long")
        return Summary(text, used.input, used.output)

    def _destination(self, wiring: Wiring, job: SummaryJob) -> Destination:
        ask, settings = job.ask, wiring.settings
        upstream, name = ask.policy.summary_target(settings.upstreams)
        upstream = upstream or ask.upstream
        formats = settings.upstreams[upstream].formats
        form = FORMATS[ask.format if ask.format in formats else formats[0]]
        own = upstream == ask.upstream
        if not own and not settings.upstreams[upstream].brings_credentials:
            raise SummaryFailed("no_credentials")
        name = name or ask.client_model
        return Destination(upstream, form, wiring.registry.lookup(name, upstream), name, own)

    def _stretches(self, job: SummaryJob, where: Destination, room: int) -> list[str]:
        if room < MARGIN:
            raise SummaryFailed("window_too_small")
        encoding = where.model.encoding
        return prompt.stretches(list(prompt.lines(job.items)), room, lambda text: tokens.count(text, encoding))

    async def _ask(self, wiring: Wiring, job: SummaryJob, where: Destination, text: str) -> tuple[str, Usage]:
        ask, upstream = job.ask, wiring.settings.upstreams[where.upstream]
        same = where.own and where.form.name == ask.format
        path, body = where.form.question(
            where.name, text, ask.policy.summary_max_tokens, ask.path if same else "", where.model.quirks, ask.opened.fields if same else {}
        )
        url, base_path, host = address(upstream.base_url)
        headers = forwarded(
            list(ask.headers) if where.own else [], host, len(body), True, upstream, Target(where.form.name), fresh=True
        )
        query = b"?" + ask.query if same and ask.query else b""
        connect, read = wiring.settings.timeouts(where.upstream)
        request = httpx.Request(
            "POST", url, headers=headers, content=body,
            extensions={"target": base_path + path + query, "timeout": {"connect": connect, "read": read, "write": read}},
        )  # fmt: skip
        try:
            response = await self._client.handle_async_request(request)
            answer = await _whole(response)
        except httpx.TransportError:
            raise SummaryFailed("unreachable") from None
        if response.status_code != 200:
            raise SummaryFailed(f"status_{response.status_code}")
        try:
            told = where.form.answer(jsonspan.value(open_coding(answer, response.headers.get("content-encoding", ""), LONGEST_ANSWER)))
        except NotCompactable:
            raise SummaryFailed("unreadable") from None
        if not told.text.strip():
            raise SummaryFailed(told.problem or "empty")
        if told.problem:
            raise SummaryFailed(told.problem)
        return told.text.strip(), told.usage


async def _whole(response: httpx.Response) -> bytes:
    chunks, size = [], 0
    try:
        async for chunk in response.stream:  # type: ignore[union-attr]
            size += len(chunk)
            if size > LONGEST_ANSWER:
                raise SummaryFailed("too_long")
            chunks.append(chunk)
    finally:
        await response.aclose()
    return b"".join(chunks)
