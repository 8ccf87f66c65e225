"""Work that would hold up the event loop, in threads. What is large has a few of its own: some bodies of many megabytes would otherwise
keep all other requests waiting for theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

LARGE = 2 << 20
"""Bytes of text; more takes the better part of a second."""
AT_ONCE = 2
"""Large pieces of work at the same time."""

P = ParamSpec("P")
R = TypeVar("R")
_large = ThreadPoolExecutor(AT_ONCE, "large")  # its threads start with the first


async def in_thread(size: int, work: Callable[P, R], /, *args: P.args, **options: P.kwargs) -> R:
    """What the work returns or raises; `size` is about how many bytes it goes over."""
    if size <= LARGE:
        return await asyncio.to_thread(work, *args, **options)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_large, partial(copy_context().run, partial(work, *args, **options)))
