"""Calling code of the operator's own: on the event loop if it awaits, else in a thread that nothing else depends on, for it may hang."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from app.own.loading import waits
from app.threads import Apart, Escaped

AT_ONCE = 32
"""Threads that may be busy, or hang, at the same time."""
_threads = Apart(AT_ONCE)


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns. Raises what it raises, Escaped, Busy, or what a timeout around this does."""
    try:
        result = function(*args) if waits(function) else await _threads.begin(function, *args)
        return await result if inspect.isawaitable(result) else result
    except (Exception, KeyboardInterrupt, GeneratorExit):  # on the event loop the last two come from outside
        raise
    except BaseException as fault:
        task = asyncio.current_task()
        if isinstance(fault, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise Escaped(type(fault).__name__) from None
