"""Work in threads: what is large keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from app.threads import AT_ONCE, LARGE, in_thread

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_what_is_large_keeps_nothing_small_waiting() -> None:
    go, begun = threading.Event(), threading.Semaphore(0)

    def large(number: int) -> int:
        begun.release()
        assert go.wait(20)
        return number

    tasks = [asyncio.create_task(in_thread(LARGE + 1, large, number)) for number in range(40)]
    for _ in range(AT_ONCE):
        assert await asyncio.to_thread(begun.acquire, timeout=10)
    assert [await in_thread(LARGE, str, number) for number in range(40)] == [*map(str, range(40))]
    assert not begun.acquire(blocking=False)
    go.set()
    assert await asyncio.gather(*tasks) == [*range(40)]


@pytest.mark.parametrize("size", [0, LARGE + 1])
async def test_it_is_done_as_where_it_was_asked_for(size: int) -> None:
    """A log line that it writes names the request."""
    WHO.set("me")
    assert await in_thread(size, WHO.get) == "me"
    assert await in_thread(size, int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        await in_thread(size, int, "x")
