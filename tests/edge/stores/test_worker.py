from __future__ import annotations

import asyncio
import threading

import pytest

from app.edge.stores.worker import Worker
from app.errors import StoreFailed


async def test_jobs_run_in_order_in_one_other_thread() -> None:
    worker, order = Worker("w"), []
    threads = await asyncio.gather(
        *(worker.run(lambda n=n: (order.append(n), threading.get_ident())[1]) for n in range(20))
    )
    assert order == list(range(20))
    assert len({*threads}) == 1
    assert threads[0] != threading.get_ident()
    worker.close()


async def test_an_exception_reaches_the_caller_and_the_thread_goes_on() -> None:
    worker = Worker("w")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 7) == 7
    worker.close()


async def test_a_job_that_hangs_makes_later_ones_fail_and_given_up_ones_are_skipped() -> None:
    worker, release, ran = Worker("w", bound=2), threading.Event(), []
    started = threading.Event()
    hanging = asyncio.create_task(worker.run(lambda: (started.set(), release.wait(10))))
    assert await asyncio.to_thread(started.wait, 10)
    waiting = [asyncio.create_task(worker.run(lambda n=n: ran.append(n))) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreFailed, match="too many"):
        await worker.run(lambda: ran.append("too many"))
    waiting[0].cancel()
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(hanging, waiting[1])
    assert ran == [1]
    worker.close()


async def test_after_closing_nothing_is_taken_and_what_was_is_done() -> None:
    worker, done = Worker("w"), []
    future = worker.submit(lambda: done.append(1))
    worker.close()
    with pytest.raises(StoreFailed, match="closed"):
        await worker.run(lambda: done.append(2))
    await asyncio.wrap_future(future)
    assert done == [1]
