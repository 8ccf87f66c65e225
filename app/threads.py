"""Work that would hold up the event loop, in threads. What is large has a few of its own: some bodies of many megabytes would otherwise
keep all other requests waiting for theirs. And what may hang has threads that nothing else depends on: a thread can't be stopped, only
left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

LARGE = 2 << 20
"""Bytes of text; more takes the better part of a second."""
AT_ONCE = 2
"""Large pieces of work at the same time."""

P = ParamSpec("P")
R = TypeVar("R")
_large = ThreadPoolExecutor(AT_ONCE, "large")  # its threads start with the first


class Busy(Exception):
    """Too many earlier calls have not returned yet."""


class Escaped(Exception):
    """It raised what would stop more than itself: SystemExit, a cancellation that nobody wanted, or anything else that is no Exception. The
    text is that exception's type."""


class Apart:
    """For calls that may hang: each has a thread of its own. When `at_once` of them have not returned, no more are begun."""

    def __init__(self, at_once: int) -> None:
        self.free = threading.BoundedSemaphore(at_once)

    def begin(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """What the function returns or raises. Raises Busy."""
        if not self.free.acquire(blocking=False):
            raise Busy
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def deliver(give: Callable[[Any], None], what: Any) -> None:
            if not future.done():
                give(what)

        def work() -> None:
            try:
                outcome: tuple[Callable[[Any], None], Any] = (future.set_result, function(*args))
            except (StopIteration, GeneratorExit, KeyboardInterrupt) as fault:
                # No future takes these, no loop survives the last.
                outcome = (future.set_exception, Escaped(type(fault).__name__))
            except BaseException as fault:
                outcome = (future.set_exception, fault)
            finally:
                self.free.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, *outcome)

        threading.Thread(target=work, name="apart", daemon=True).start()
        return future


async def in_thread(size: int, work: Callable[P, R], /, *args: P.args, **options: P.kwargs) -> R:
    """What the work returns or raises; `size` is about how many bytes it goes over."""
    if size <= LARGE:
        return await asyncio.to_thread(work, *args, **options)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_large, partial(copy_context().run, partial(work, *args, **options)))
