"""What all stores share: their options, their bounds, how a call is bounded, and how lists are paged.

A store answers or raises `StoreFailed`. `bounded` makes that true for every method of a store that waits for something
outside this process: it limits the time, and replaces foreign exceptions, whose texts may quote commands, values or
addresses, by one that names only the call, the exception's type, and the system's words for what lies behind it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from app.edge.causes import cause
from app.edge.stores.sealing import Seal
from app.errors import StoreFailed
from app.records import Archive


class TooLarge(StoreFailed):
    """A value that the store will not take; that says nothing about the store."""


PER_ANCHOR = 64
"""Checkpoints filed under one anchor; the one that was unused for longest leaves."""

PER_LIST = 10_000
"""Lines that a list for the console holds where a store has to bound it itself; the oldest leave."""

ARCHIVE_BYTES_A_SECOND = 8 << 20
"""Packed and sent, on a busy machine."""

PAGE = 500
"""Lines of one page at most, whatever the caller asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Times are in seconds. A checkpoint's life is renewed by use, a session's by each update, an archive's never.

    `timeout` bounds one call. `max_bytes` bounds what an embedded store keeps (a Redis has its own `maxmemory`).
    `clock` gives epoch seconds. `seal` encrypts what is stored outside this process.
    """

    timeout: float = 0.25
    session_ttl: float = 604_800
    checkpoint_ttl: float = 604_800
    archive_ttl: float = 2_592_000
    max_bytes: int = 2 << 30
    clock: Callable[[], float] = time.time
    seal: Seal | None = None


def patience(timeout: float, op: str, *values: object) -> float:
    """Seconds that a call may take: `timeout`, and more for an archive, which may be large and which no request needs for its answer."""
    if op == "get_archive":
        return timeout * 8
    sent = sum(len(value.document) for value in values if isinstance(value, Archive))
    return timeout + sent / ARCHIVE_BYTES_A_SECOND


class _HasOptions(Protocol):
    options: StoreOptions


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=_HasOptions)


def bounded(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Limit a store's method to its `patience` and let nothing but `StoreFailed` out of it."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            async with asyncio.timeout(patience(self.options.timeout, method.__name__, *args)):
                return await method(self, *args, **kwargs)
        except StoreFailed:
            raise
        except Exception as error:
            words = cause(error)
            raise StoreFailed(f"{method.__name__}: {type(error).__name__}{words and f' ({words})'}") from None

    return call


def on_chain(chain: Sequence[bytes], depth: int, key: bytes) -> bool:
    """Whether a checkpoint found under a shared anchor covers a prefix of this very conversation."""
    return 0 < depth <= len(chain) and chain[depth - 1] == key


def page_size(limit: int) -> int:
    return max(1, min(limit, PAGE))


def cursor_after(stamp: float, tie: str | int | bytes) -> str:
    """The place after the line with this time stamp; `tie` orders lines of the same time."""
    return base64.urlsafe_b64encode(msgspec.json.encode((stamp, tie))).decode().rstrip("=")


def cursor_place(cursor: str, tie: type[R]) -> tuple[float, R] | None:
    """What `cursor_after` was given; None for a text that it never made (such a cursor finds an empty page)."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        place: Any = msgspec.json.decode(raw, type=tuple[float, tie])  # type: ignore[valid-type]
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return None
    return place[0], place[1]
