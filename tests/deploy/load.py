"""Clients that keep their connections, never try again, and send without a pause: what they saw tells whether a restart was noticed."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.edge.talks import Talk

POLICY = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
WORDS = "a long answer, told slowly, " * 4


def sections(provider: str, store: str, **more: Any) -> dict[str, Any]:
    """compactd's configuration."""
    upstreams = {"provider": {"base_url": provider, "formats": ["anthropic-messages"]}}
    return {"upstreams": upstreams, "store": {"url": store, "timeout": 5}, "policies": [POLICY], **more}


@dataclass
class Load:
    """Clients of one address, eight of them. Request ids begin with a mark of their process's own."""

    url: str
    trust: ssl.SSLContext | None = None
    talk: Talk = field(default_factory=lambda: Talk("anthropic-messages").ask("Read.").rounds(8))
    faults: list[str] = field(default_factory=list)
    served_by: list[str] = field(default_factory=list)
    streams_over: list[str] = field(default_factory=list)
    _clients: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: bool = False

    def begin(self) -> None:
        self._clients = [asyncio.create_task(self._client(number)) for number in range(8)]

    async def end(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._clients)

    async def _client(self, number: int) -> None:
        """One after the other on kept connections, streamed and whole."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30, verify=self.trust or True) as http:
            while not self._stopping:
                try:
                    await self._one(http, stream=number % 2 == 0)
                except (httpx.HTTPError, AssertionError) as fault:
                    self.faults.append(f"{type(fault).__name__}: {fault}")
                await asyncio.sleep(0.005 * number)

    async def _one(self, http: httpx.AsyncClient, stream: bool) -> None:
        body: dict[str, Any] = {**self.talk.body, "stream": stream}
        async with http.stream("POST", "/v1/messages", json=body, headers=KEYS) as answer:
            text = (await answer.aread()).decode()
        assert answer.status_code == 200, text
        assert ('"message_stop"' if stream else '"end_turn"') in text, text
        assert answer.headers["x-compactd-outcome"] in ("compacted", "replayed")
        process = answer.headers["x-compactd-request-id"][:8]
        self.served_by.append(process)
        if stream:
            self.streams_over.append(process)
