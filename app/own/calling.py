"""Calling code of the operator's own: on the event loop if it awaits, else in a thread of its own that nothing else depends on.

A thread can't be stopped, only left. So such calls never take one of the threads that requests need, and when too many of them hang, no
more are begun.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from app.own.loading import waits

AT_ONCE = 32
"""Threads that may be busy, or hang, at the same time."""
_free = threading.BoundedSemaphore(AT_ONCE)


class Busy(Exception):
    """Too many earlier calls have not returned yet."""


class Escaped(Exception):
    """It raised what would stop more than itself: SystemExit, a cancellation that nobody wanted, or anything else that is no Exception. The
    text is that exception's type."""


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns. Raises what it raises, Escaped, Busy, or what a timeout around this does."""
    try:
        result = function(*args) if waits(function) else await _in_thread(function, *args)
        return await result if inspect.isawaitable(result) else result
    except (Exception, KeyboardInterrupt, GeneratorExit):  # on the event loop the last two come from outside
        raise
    except BaseException as fault:
        task = asyncio.current_task()
        if isinstance(fault, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise Escaped(type(fault).__name__) from None


def _in_thread(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    if not _free.acquire(blocking=False):
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
            _free.release()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=work, name="own-code", daemon=True).start()
    return future
