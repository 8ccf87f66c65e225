"""Asking a model for a summary: through the same client, upstream and format as the request itself, or another upstream's.

The call carries the client's own credentials and beta headers where it goes to the client's own upstream, no tools, and nothing of the
conversation but the fenced transcript. What comes back is a summary or a named failure, never something in between; what it cost is counted
either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from app.core import jsonspan, tokens
from app.edge import prices
from app.edge.bodies import open_coding
from app.edge.exchange import Wiring
from app.edge.forwarding import address, whole_answer
from app.edge.headers import own_query, request_headers
from app.edge.metrics import Metrics
from app.edge.traces import NO_TRACES, Traces
from app.edge.upstream import Upstream
from app.errors import NotCompactable, SummaryFailed
from app.formats import FORMATS
from app.formats.base import Answer, Format, Target
from app.ports import Summary, SummaryJob
from app.registry import Model
from app.summaries import prompt
from app.threads import in_thread

LONGEST_ANSWER = 4 << 20
"""Bytes."""
MARGIN = 512
"""Tokens left for what our count does not see."""
LEAST_ROOM = 256
"""Local tokens of transcript: a model that takes less at once is no summariser."""
THOUGHT_ROOM = 8_192
"""Tokens that a model may think besides, where its output limit counts thoughts (`thinks`, `thinking_always_on`)."""
MOST_LINKS = 8
"""Calls that one summary may take."""


class TooLong(SummaryFailed):
    """The provider takes less than we thought: `told` is the window that it names, 0 if none, `sent` what was too much, tokens."""

    def __init__(self, told: int, sent: int) -> None:
        super().__init__("window_too_small")
        self.told, self.sent = told, sent


@dataclass(frozen=True, slots=True)
class Destination:
    """Who is asked: upstream, format, model; `own` says that it is the client's own upstream, where its credentials belong, `same` that
    it is so in the client's own format. `ratio`: the model's tokens for each that we count."""

    upstream: str
    form: Format
    model: Model
    name: str
    own: bool
    same: bool
    ratio: float

    def output(self, most: int) -> int:
        """The output limit to ask for, tokens."""
        return most + (0 if self.model.quirks.isdisjoint(("thinks", "thinking_always_on")) else THOUGHT_ROOM)


class ModelSummarizer:
    def __init__(
        self, wiring: Callable[[], Wiring], client: Upstream, metrics: Metrics, traces: Traces = NO_TRACES
    ) -> None:
        self._traces = traces
        self._wiring = wiring
        self._client = client
        self._metrics = metrics

    async def summarize(self, job: SummaryJob) -> Summary:
        """Raises SummaryFailed: unreachable, status_N, empty, refused, truncated, tool_call, reasoning_only, unreadable, too_long, …"""
        wiring = self._wiring()
        where = _destination(wiring, job)
        with self._metrics.summary_seconds.time(), self._traces.span("summary", upstream=where.upstream):
            try:
                return await self._chain(wiring, job, where)
            except TooLong as refused:
                window = refused.told or refused.sent // 2
                if window >= where.model.context_window:
                    raise
                wiring.registry.learn(where.name, where.upstream, refused.told, job.ask.tenant)
                where = replace(where, model=replace(where.model, context_window=window))
            return await self._chain(wiring, job, where)

    async def _chain(self, wiring: Wiring, job: SummaryJob, where: Destination) -> Summary:
        """As many calls as the transcript needs, each with the summary so far."""
        policy, window = job.ask.policy, where.model.context_window
        instructions = policy.summary_instructions or prompt.built_in()
        most = max(1, min(policy.summary_max_tokens, window // 4))

        def count(text: str) -> int:
            return tokens.count(text, where.model.encoding)

        link = most * 3 // 2  # another tokeniser's `most`, by our count
        room = (
            int((window - where.output(most) - MARGIN) / where.ratio)
            - count(prompt.question(instructions, "", "-", most))
            - link
        )
        if room < LEAST_ROOM:
            raise SummaryFailed("window_too_small")
        lines = [*prompt.lines(job.items)]
        stretches = await in_thread(len(job.ask.opened.body), prompt.stretches, lines, room, count, MOST_LINKS)
        if not stretches:
            raise SummaryFailed("nothing_to_say")
        if len(stretches) > MOST_LINKS:
            raise SummaryFailed("too_many_links")
        so_far = Summary("")
        for at, stretch in enumerate(stretches, 1):
            told = await self._ask(wiring, job, where, prompt.question(instructions, stretch, so_far.text, most), most)
            if tokens.count(told.text, job.ask.model.encoding) > (link if at < len(stretches) else job.leaving):
                raise SummaryFailed("too_long")
            so_far = Summary(
                told.text,
                so_far.input_tokens + told.input_tokens,
                so_far.output_tokens + told.output_tokens,
                so_far.cost + told.cost,
            )
        return so_far

    async def _ask(self, wiring: Wiring, job: SummaryJob, where: Destination, text: str, most: int) -> Summary:
        """One call. Its tokens and its price are counted whatever it says."""
        told = await self._call(wiring, job, where, text, most)
        usage, model = told.usage, where.model
        cost = await asyncio.to_thread(prices.cost, model.name if model.known else where.name, where.form.name, usage)
        self._metrics.summary_tokens.labels("input").inc(usage.input)
        self._metrics.summary_tokens.labels("output").inc(usage.output)
        self._metrics.cost.labels("spent_on_summaries").inc(cost)
        if told.problem or not told.text.strip():
            raise SummaryFailed(told.problem or "empty")
        return Summary(told.text.strip(), usage.input, usage.output, cost)

    async def _call(self, wiring: Wiring, job: SummaryJob, where: Destination, text: str, most: int) -> Answer:
        ask, upstream = job.ask, wiring.settings.upstreams[where.upstream]
        path, fields = (ask.path, ask.opened.fields) if where.same else ("", {})
        way, body = where.form.question(where.name, text, where.output(most), path, where.model.quirks, fields)
        url, base_path, host = address(upstream.base_url)
        headers = request_headers(
            list(ask.headers) if where.own else [], host, len(body), True, upstream, Target(where.form.name), fresh=True
        )
        query = own_query(ask.query, upstream.brings_credentials) if where.same else b""
        connect, read = wiring.settings.timeouts(where.upstream)
        with self._traces.call(headers, where.form.name, where.name, upstream.base_url) as span:
            request = httpx.Request(
                "POST", url, headers=headers, content=body,
                extensions={"target": base_path + way + query, "timeout": {"connect": connect, "read": read, "write": read, "pool": 30.0}},
            )  # fmt: skip
            try:
                response = await self._client.handle_async_request(request)
                answer = await whole_answer(response, LONGEST_ANSWER)
            except httpx.TransportError:
                raise SummaryFailed("unreachable") from None
            if answer is None:
                raise SummaryFailed("too_long")
            told = self._read(where, response, answer, text)
            span.tell(status=response.status_code, input_tokens=told.usage.input, output_tokens=told.usage.output)
            return told

    @staticmethod
    def _read(where: Destination, response: httpx.Response, answer: bytes, text: str) -> Answer:
        """What the answer to `text` says. Raises SummaryFailed."""
        try:
            answer = open_coding(answer, response.headers.get("content-encoding", ""), LONGEST_ANSWER)
            if response.status_code != 200:
                window = where.form.overflow(response.status_code, answer)
                if window is not None:
                    raise TooLong(window, int(tokens.count(text, where.model.encoding) * where.ratio))
                raise SummaryFailed(f"status_{response.status_code}")
            streamed = "event-stream" in response.headers.get("content-type", "")
            return where.form.answer(_events(answer) if streamed else jsonspan.value(answer))
        except NotCompactable:
            raise SummaryFailed("unreadable") from None


def _destination(wiring: Wiring, job: SummaryJob) -> Destination:
    ask, upstreams = job.ask, wiring.settings.upstreams
    upstream, name = ask.policy.summary_target(upstreams)
    upstream, name = upstream or ask.upstream, name or ask.client_model
    if upstream not in upstreams:  # it went away with a reload
        raise SummaryFailed("no_upstream")
    formats, own = upstreams[upstream].formats, upstream == ask.upstream
    form = FORMATS[ask.format if ask.format in formats else formats[0]]
    if not own and not upstreams[upstream].brings_credentials:
        raise SummaryFailed("no_credentials")
    model, ratio = wiring.registry.lookup(name, upstream, ask.tenant), 1.0
    if own and name == ask.client_model:  # what was learnt about it counts
        model, ratio = ask.model, job.ratio
    model = model.with_quirks(upstreams[upstream].quirks)
    return Destination(
        upstream,
        form,
        model,
        name,
        own,
        own and form.name == ask.format,
        max(1.0, ratio, model.fact("token_ratio", 1.0)),
    )


def _events(stream: bytes) -> list[Any]:
    """The events of an answer that came as a stream all the same. Raises NotCompactable."""
    payloads = (line[5:].strip() for line in stream.splitlines() if line.startswith(b"data:"))
    return [jsonspan.value(payload) for payload in payloads if payload and payload != b"[DONE]"]
