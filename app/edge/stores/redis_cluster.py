"""A Redis cluster: the keys are spread over servers by slot, and a batch goes to all servers that it concerns at the same time.

Which server has which slot is asked of any of them, at the first batch and again whenever an answer shows that the map is old. redis-py
knows the protocol and holds the connections. Its own cluster client is not used: when one server fails, that one closes its connections
to all of them and sleeps for a quarter of a second, which is all the time that a call has here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, ResponseError, TryAgainError

from app.edge.stores.redis_servers import Call, Place, database, piped, place
from app.edge.stores.redis_tls import Unusable

REDRAW_SECONDS = 1.0
"""The map is asked for once in so many seconds at most, however much goes wrong."""
MOVES = 2
"""How often a batch follows keys that have moved."""

Address = tuple[str, int]


class Cluster:
    def __init__(self, where: Place, timeout: float) -> None:
        """`where` names some of the cluster's servers: the others are learnt from them."""
        self._seeds = where.hosts
        self._options = where.connection(timeout)
        self._timeout = timeout
        self._nodes: dict[Address, Any] = {}
        self._slots: list[tuple[int, int, Address]] = []
        self._moved: dict[int, Address] = {}
        self._drawn_at = float("-inf")
        self._drawing: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, url: str, timeout: float) -> Cluster:
        """`redis+cluster://h:p,h:p`. Raises ValueError."""
        where = place(url, 6379)
        if database(where.path) or where.options.pop("db", 0):
            raise Unusable("a cluster has no databases but 0")
        return cls(where, timeout)

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        if not self._slots:
            await self._draw()
        results: list[Any] = [None] * len(calls)
        todo = {index: (self._home(one.key), False) for index, one in enumerate(calls)}
        try:
            for _ in range(MOVES + 1):
                await self._send(calls, todo, results)
                todo = {index: self._next(calls[index], results[index]) for index in todo if _elsewhere(results[index])}
                if not todo:
                    break
        except asyncio.CancelledError:
            self._doubt()  # perhaps because a server hangs
            raise
        for result in results:
            if isinstance(result, Exception):
                self._doubt(result)
                raise result
        return results

    async def ping(self) -> None:
        """Every server that has slots."""
        if not self._slots:
            await self._draw()
        answers = await asyncio.gather(
            *(self._node(at).ping() for at in {at for *_, at in self._slots}), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, Exception):
                self._doubt(answer)
                raise answer

    async def aclose(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()), return_exceptions=True)

    async def _send(self, calls: Sequence[Call], todo: dict[int, tuple[Address, bool]], results: list[Any]) -> None:
        """Each server's part in one pipeline, all at once. Failures take the places of results."""
        parts: dict[Address, list[tuple[int, Call]]] = {}
        for index, (at, asking) in todo.items():
            part = parts.setdefault(at, [])
            if asking:
                part.append((-1, _ASKING))
            part.append((index, calls[index]))

        async def ask(at: Address, part: list[tuple[int, Call]]) -> None:
            try:
                told: list[Any] = await piped(self._node(at), [one for _, one in part], raising=False)
            except Exception as error:
                told = [error] * len(part)
            for (index, _), result in zip(part, told, strict=True):
                if index >= 0:
                    results[index] = result

        if len(parts) == 1:
            await ask(*parts.popitem())
            return
        async with asyncio.TaskGroup() as group:
            for at, part in parts.items():
                group.create_task(ask(at, part))

    def _next(self, one: Call, refusal: Any) -> tuple[Address, bool]:
        """Where a server says that a key is; whether it is only on its way there."""
        if not isinstance(refusal, AskError):  # neither here nor there just now
            return self._home(one.key), False
        at = (refusal.host or self._home(one.key)[0], refusal.port)
        if not isinstance(refusal, MovedError):
            return at, True
        self._moved[key_slot(one.key.encode())] = at
        self._doubt(refusal)
        return at, False

    def _home(self, key: str) -> Address:
        slot = key_slot(key.encode())
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        for first, last, at in self._slots:
            if first <= slot <= last:
                return at
        raise ClusterDownError("no server has this slot")

    def _node(self, at: Address) -> Any:
        node = self._nodes.get(at)
        if node is None:
            node = self._nodes[at] = Redis.from_pool(BlockingConnectionPool(host=at[0], port=at[1], **self._options))
        return node

    def _doubt(self, fault: BaseException | None = None) -> None:
        """The map may be old: draw it again, in the background, unless this fault says nothing about it."""
        if isinstance(fault, ResponseError) and not isinstance(fault, (MovedError, ClusterDownError, ReadOnlyError)):
            return
        if self._drawing is None and time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._drawing = asyncio.create_task(self._redraw())

    async def _redraw(self) -> None:
        try:
            with suppress(Exception):
                await self._draw()
        finally:
            self._drawing = None

    async def _draw(self) -> None:
        """Ask one server after the other until one has a map. Raises what the last one did."""
        self._drawn_at = time.monotonic()
        known = [*self._nodes, *(seed for seed in self._seeds if seed not in self._nodes)]
        fault: Exception = ClusterDownError("the map of the cluster is empty")
        for at in known:
            try:
                async with asyncio.timeout(self._timeout / min(len(known), 4)):
                    told = await self._node(at).execute_command("CLUSTER SLOTS")
            except Exception as error:
                fault = error
                continue
            # [first slot, last slot, [host, port, id …] of the primary, the same of its replicas …]; no host: the one that was asked
            slots = [(first, last, (_text(one[0]) or at[0], int(one[1]))) for first, last, one, *_ in told]
            if slots:
                self._slots, self._moved = slots, {}
                await self._forget({home for *_, home in slots})
                return
        raise fault

    async def _forget(self, present: set[Address]) -> None:
        """Close what leads to servers that have no slots any more."""
        for at in [at for at in self._nodes if at not in present]:
            with suppress(Exception):
                await self._nodes.pop(at).aclose()


class _Asking(Call):
    __slots__ = ()

    def add_to(self, pipe: Any) -> None:
        pipe.execute_command("ASKING")


_ASKING = _Asking("asking", "")


def _elsewhere(result: Any) -> bool:
    return isinstance(result, (AskError, TryAgainError))


def _text(host: bytes | str | None) -> str:
    told = host.decode() if isinstance(host, bytes) else host or ""
    return "" if told == "?" else told
