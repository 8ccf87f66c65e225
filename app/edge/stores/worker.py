"""One thread that does blocking work in order, for callers on the event loop.

The queue is bounded, and a call whose caller has given up is skipped: a disk that hangs makes calls fail, not pile up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Full, Queue
from typing import Any, TypeVar

from app.errors import StoreFailed

T = TypeVar("T")


class Worker:
    """The thread starts with the first job and is a daemon: it never keeps a process alive."""

    def __init__(self, name: str, bound: int = 512) -> None:
        self._name = name
        self._jobs: Queue[tuple[Future[Any], Callable[[], Any]] | None] = Queue(maxsize=bound)
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result or exception. Raises StoreFailed when the queue is full or the worker is closed."""
        return await asyncio.wrap_future(self.submit(job))

    def submit(self, job: Callable[[], T]) -> Future[T]:
        if self._closed:
            raise StoreFailed(f"{self._name}: closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        try:
            self._jobs.put_nowait((future, job))
        except Full:
            raise StoreFailed(f"{self._name}: too many calls are waiting") from None
        return future

    def close(self) -> None:
        """No more jobs; those that wait are still done."""
        self._closed = True
        if self._thread is not None:
            with suppress(Full):  # then the thread hangs in a job, and dies with the process
                self._jobs.put_nowait(None)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            future, job = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del entry, future, job  # hold no values while waiting for the next one
