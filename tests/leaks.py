"""What a soak looks for: what a compactd still holds when everybody has gone, and memory that climbs.

Memory can only be judged once every cache is full, and by more than a slope: that comes with an error, and what is smaller than any object
for each request is none.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean, pvariance

from tests.edge.processes import Process

FULL = 150_000
"""Requests after which every cache has been full and has begun to forget; measured: until then memory rises, fast at first."""
JUDGED = 10
"""Minutes with full caches from which on memory is judged."""
SURE = 2.31
"""Standard errors to either side within which a slope through ten means lies, 19 times out of 20 (Student's t, 8 degrees of freedom)."""
LEAST = 8
"""Bytes a request that count as nothing: the smallest object takes 16, and a place that refers to it 8 more."""
NOISE = 24
"""Bytes a request: a slope that is less certain than this says nothing."""
LISTENING, CLOSE_WAIT = "0A", "08"
"""States of sockets in /proc (include/net/tcp_states.h)."""


@dataclass(frozen=True)
class Sample:
    """Of the compactd that nobody kills. `requests` are all that were forwarded so far, by whomever."""

    minute: float
    size: float
    """MiB"""
    files: int
    requests: int


@dataclass(frozen=True)
class Idle:
    """What a compactd holds while nothing happens: tasks, open files that are no connections, and connections. `ended` are sockets
    without one: to a Redis that was restarted, waiting in the pool for their next use (and a pair of the event loop's own). `unheard` are
    connections to clients and the provider that the other end has closed and we have not."""

    tasks: int
    files: int
    clients: int
    provider: int
    store: int
    ended: int
    unheard: int


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def workers(pid: int) -> list[int]:
    """Without Python's resource tracker, which is a child too."""
    return [one for one in tree(pid) if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()]


def open_files(pid: int) -> list[str]:
    with suppress(OSError):
        return os.listdir(f"/proc/{pid}/fd")
    return []


def weight(pid: int) -> tuple[float, int]:
    """MiB and open files of a process and its children."""
    size, files = 0.0, 0
    for one in tree(pid):
        with suppress(OSError):
            size += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            files += len(open_files(one))
    return size, files


def connections(pid: int) -> dict[str, tuple[int, int, str]]:
    """Port at this end, at the other, and state of each TCP socket by its inode, of everybody in this process's network."""
    rows = [
        line.split()
        for file in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{file}").read_text().splitlines()[1:]
    ]
    return {row[9]: (*(int(end.rpartition(":")[2], 16) for end in row[1:3]), row[3]) for row in rows}


async def idle(replica: Process, store: int) -> Idle:
    """`store` is its port."""
    pids = tree(replica.running.pid)
    opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids for fd in open_files(pid)]
    known = connections(pids[0])
    inodes = [name[8:-1] for name in opened if name.startswith("socket:")]
    found = [known[inode] for inode in inodes if inode in known]
    ends = [
        ("clients" if here == replica.port else "store" if there == store else "provider", state)
        for here, there, state in found
        if state != LISTENING
    ]
    kinds, closed = Counter(end for end, _ in ends), sum(end != "store" for end, state in ends if state == CLOSE_WAIT)
    tasks = int(await replica.metric("tasks"))
    ended = sum(inode not in known for inode in inodes)
    return Idle(
        tasks, len(opened) - len(ends) - ended, kinds["clients"], kinds["provider"], kinds["store"], ended, closed
    )


@dataclass(frozen=True)
class Slope:
    """Of memory over the minutes with full caches, MiB a minute; `error` to either side. `least` is what counts as nothing, `most` the
    error from which on nothing can be said."""

    minutes: int
    rise: float = 0.0
    error: float = 0.0
    least: float = 0.0
    most: float = 0.0

    @property
    def fault(self) -> str:
        if self.error > self.most:
            return f"memory is too unsteady to be judged: +- {self.error:.2f} MiB a minute"
        if self.rise - self.error > 0 and self.rise + self.error > self.least:
            return f"memory climbs by {self.rise:.2f} MiB a minute (+- {self.error:.2f})"
        return ""


def slope(samples: list[Sample]) -> Slope:
    """By least squares through the means of whole minutes: what is next to each other in time is not independent, minutes nearly are."""
    judged = [sample for sample in samples if sample.requests >= FULL]
    minutes = [list(group) for _, group in itertools.groupby(judged, lambda sample: int(sample.minute))][1:]
    points = [(mean(sample.minute for sample in group), mean(sample.size for sample in group)) for group in minutes]
    if len(points) < JUDGED:
        return Slope(len(points))
    xs, ys = zip(*points, strict=True)
    rise, start = linear_regression(xs, ys)
    rest = sum((y - start - rise * x) ** 2 for x, y in points) / (len(points) - 2)
    error = SURE * (rest / (len(points) * pvariance(xs))) ** 0.5
    # Each request is one of either compactd's.
    rate = (judged[-1].requests - judged[0].requests) / (judged[-1].minute - judged[0].minute) / 2 / 2**20
    return Slope(len(points), rise, error, LEAST * rate, NOISE * rate)


def leaks(before: Idle, now: Idle, at_a_time: int) -> Iterator[str]:
    """What stays though everybody has gone, who were so many at a time. One connection and its task are our own; those to the provider and
    the store are kept for the next request."""
    if now.tasks > before.tasks + 2:
        yield f"{now.tasks} tasks run, {before.tasks} at first"
    if now.files > before.files + 2:
        yield f"{now.files} files are open, {before.files} at first"
    if now.clients > 1:
        yield f"{now.clients} connections of clients are open"
    if now.provider > 2 * at_a_time:
        yield f"{now.provider} connections to the provider are open"
    if now.store + now.ended > before.ended + 4 * at_a_time:
        yield f"{now.store} connections to the store are open, and {now.ended} sockets without one"
    if now.unheard:
        yield f"{now.unheard} connections were closed by their other end and are still open"
