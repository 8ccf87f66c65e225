"""One request on its way through: what came in, what was decided, what will be told of it. The only mutable thing on the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from app.core import jsonspan
from app.edge.bodies import ClientGone, Receive
from app.edge.headers import Headers
from app.edge.record import Record
from app.edge.routing import Route, Router
from app.edge.traces import RequestTrace
from app.formats import FORMATS
from app.registry import Registry
from app.request import Ask, Outcome
from app.settings import Client, Settings

Send = Callable[[Any], Awaitable[None]]


class Refused(Exception):
    """compactd itself answers this request: status, stable code, message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Wiring:
    """What requests are served with; replaced as a whole when the configuration is reloaded."""

    settings: Settings
    router: Router
    registry: Registry
    keys: tuple[tuple[bytes, Client | None], ...] = ()
    """hashes of the keys of `auth`, with what is said of the client"""
    warn: Callable[[str], None] = print
    warned: set[str] = field(default_factory=set)

    def warn_once(self, text: str) -> None:
        if text not in self.warned and len(self.warned) < 1_024:
            self.warned.add(text)
            self.warn(text)


@dataclass(slots=True)
class Exchange:
    """`raw` is the client's body as it came, `body` what goes upstream; `length` None means that nobody told it (chunked, or none)."""

    scope: dict[str, Any]
    receive: Receive
    send: Send
    wiring: Wiring
    record: Record
    headers: Headers
    route: Route | None = None
    holder: Client | None = None
    """whose key of ours came with it"""
    ask: Ask | None = None
    outcome: Outcome | None = None
    held: int = 0
    """bytes of its body that were taken into memory"""
    raw: bytes = b""
    body: bytes | AsyncIterator[bytes] = b""
    length: int | None = None
    without_beta: str = ""
    """a beta value that must not go upstream, because what it is for was taken out"""
    attempts: int = 0
    """how often a provider was asked so far"""
    started: bool = False
    trace: RequestTrace | None = None
    """its trace, if there is one"""
    client: ClientWatch = field(init=False)

    def __post_init__(self) -> None:
        self.client = ClientWatch(self.receive)

    @property
    def changed(self) -> bool:
        """Does the provider get something else than the client sent?"""
        return self.body is not self.raw and isinstance(self.body, bytes)

    def forward(self, outcome: Outcome) -> None:
        """Take over what was decided: its body, or the client's own bytes, compressed as they came."""
        self.outcome = outcome
        self.body = outcome.body if outcome.changed else self.raw
        self._leave_out_refused(outcome)
        self.length = len(self.body)

    def restore(self) -> None:
        """Back to the client's own request, whatever was decided."""
        self.body, self.length, self.without_beta = self.raw, len(self.raw), ""

    def _leave_out_refused(self, outcome: Outcome) -> None:
        """What the model is known to answer with a 400 is taken out, whatever else was decided."""
        ask = self.ask
        if ask is None or not ask.model.known:
            return
        refused = FORMATS[ask.format].refused(ask.opened.fields, ask.model.quirks)
        if refused is not None:
            self.body = jsonspan.edit(outcome.body, refused.edits)
            self.without_beta = refused.beta
            self.wiring.warn_once(
                f"{ask.model.name} does not take Anthropic's server-side compaction: the {refused.beta} edit was left out. If it does by "
                f'now, say so: models: {{"{ask.model.name}": {{quirks: [supports_server_compaction]}}}}'
            )


class ClientWatch:
    """Notices when the client leaves, once its request's body is complete, and then cancels what is being done for it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Task[Any] | None = None
        self.left = False

    def body_complete(self) -> None:
        """From here on the only thing to come from the client is that it leaves."""
        if self._task is None:
            self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._work is not None:
            self._work.cancel()

    async def during(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work. Raises ClientGone, within a turn of the event loop, when the client leaves."""
        self._work = asyncio.current_task()
        assert self._work is not None
        try:
            await work
        except asyncio.CancelledError:
            if not self.left:
                raise
            self._work.uncancel()
            raise ClientGone from None
        finally:
            self._work = None
            if self._task is not None:
                self._task.cancel()
