"""The fault matrix: a store, a fault that begins at one step of a request, and what two replicas on that store make of their clients.

Replica A compacts a conversation with a summary; the fault begins when it comes to the step. While it lasts, A and B get the same
request again, five at once, and one that goes on. Then the fault ends, and both get the next. `python -m tests.faults.matrix` writes
docs/faults.md.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.compactor import Compactor
from app.edge.stores.breaker import Breaker
from app.edge.stores.guarded import Guarded
from app.errors import StoreFailed
from app.ports import Store
from app.request import Outcome
from tests.faults.places import CLUSTER, REDIS, SENTINEL, SQLITE, TIMEOUT, Fault, Group, Place, done, file_at, served
from tests.redis_server import ClusterOfThree, RedisServer, Replicated, redis_binary
from tests.story import BASE, House, Talk, Witness, Writer, policy, sent

PHASES = {
    "lookup": "looking up", "acquire": "taking the lease", "put_archive": "archiving", "put_checkpoint": "storing the checkpoint",
    "put_compaction": "recording", "release": "giving the lease back", "update_session": "settling", "quarantine": "after a refusal",
}  # fmt: skip
"""The store's method that a request comes to -> the step's name."""
FAULTS: dict[str, list[Fault]] = {
    "sqlite": SQLITE, "redis": REDIS, "redis+sentinel": SENTINEL, "redis+cluster": CLUSTER,
}  # fmt: skip
DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
PATIENCE = 15.0
RULES = policy(strategy="summarize", summary_timeout=5)


@dataclass(frozen=True)
class Cell:
    """What came of it. `extra`: summaries beyond the first of the prefix that had most. `told`: some outcome, or /readyz, said that
    the store is away."""

    errors: int
    lost: int
    extra: int
    told: bool
    recovered: bool

    def __str__(self) -> str:
        return f"{self.errors} / {self.lost} / {self.extra}" + ("" if self.recovered else " stuck")


class Trigger:
    """A store during which something happens: when `op` is called for the first time."""

    def __init__(self, store: Store, op: str, place: Place, fault: Fault) -> None:
        self._store, self._op, self._place, self._fault = store, op, place, fault
        self.options = store.options  # type: ignore[attr-defined]
        self.on = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._op or self.on:
            return method

        async def call(*args: Any) -> Any:
            if not self.on:
                self.on = True
                await done(self._fault.on(self._place))
            return await method(*args)

        return call


class Replica(House):
    """A replica whose breakers look again soon."""

    def __init__(self, store: Any, says: str) -> None:
        self.store, self.witness, self.writer = store, Witness(), Writer(says)
        self.guarded = Guarded(store, TIMEOUT, self.witness, breaker=lambda: Breaker(first=0.05, longest=0.1))
        self.compactor = Compactor(self.guarded, self.writer, self.witness, BASE)

    async def ready(self) -> bool:
        try:
            await self.guarded.ping()
        except StoreFailed:
            return False
        return self.guarded.healthy


@dataclass
class Story:
    """One cell's conversation, and what was wrong with the answers to it."""

    talk: Talk
    errors: int = 0
    lost: int = 0
    away: int = 0

    async def ask(self, replica: Replica, talk: Talk | None = None) -> Outcome:
        talk = talk or self.talk
        outcome = await asyncio.wait_for(replica.decide(talk, RULES), PATIENCE)
        self.errors += outcome.result == "failed"
        self.away += outcome.reason == "store_unavailable"
        self.lost += missing(talk, outcome)
        await replica.compactor.settle(outcome, 900)
        return outcome


def chatter() -> Talk:
    """A conversation whose words can't be compressed much, so that what is stored of it takes room."""
    chance, talk = random.Random(1), Talk()
    for n in range(10):
        talk.ask(f"Question {n}. " + " ".join(f"{chance.getrandbits(32):08x}" for _ in range(90))).answer(
            f"Answer {n}."
        )
    return talk.ask("And now?")


def missing(talk: Talk, outcome: Outcome) -> int:
    """Items of the client that are neither sent on, word for word and in order, nor covered by a note."""
    forwarded = sent(outcome)
    context = outcome.context
    covered = context.checkpoint.covered if outcome.changed and context and context.checkpoint else 0
    kept = forwarded[-(len(talk.items) - covered) :] if covered < len(talk.items) else []
    notes = len(forwarded) - len(kept)
    wrong = sum(mine != theirs for mine, theirs in zip(talk.items[covered:], kept, strict=False))
    return wrong + abs(len(talk.items) - covered - len(kept)) + (1 if covered and not notes else 0)


async def cell(place: Place, fault: Fault, phase: str) -> Cell:
    """One run. The place is emptied before."""
    place.empty()
    trigger = Trigger(place.open(), phase, place, fault)
    a, b = Replica(trigger, "What A wrote."), Replica(place.open(), "What B wrote.")
    for replica in (a, b):
        with suppress(StoreFailed):
            await replica.guarded.ping()
    story, down = Story(chatter()), False
    try:
        first = await story.ask(a)
        if phase == "quarantine":
            await a.compactor.reject(first)
        assert trigger.on, f"no request comes to {phase}"
        longer = Talk(*story.talk.items).answer().ask("And then?")
        for replica in (a, b):
            await asyncio.gather(*(story.ask(replica) for _ in range(5)))
            await story.ask(replica, longer)
            for _ in range(3):
                down |= not await replica.ready()
    finally:
        if trigger.on:
            await done(fault.off(place))
    recovered = await asyncio.gather(*(back(replica) for replica in (a, b)))
    away = story.away
    last = Talk(*longer.items).answer().ask("And at last?")
    outcomes = [await story.ask(replica, last) for replica in (a, b)]
    if not fault.forgets:
        story.lost += sum(
            [await unreadable(replica, outcome) for replica, outcome in zip((a, b), outcomes, strict=True)]
        )
    jobs = Counter(max(seen.index for seen in job.items) for replica in (a, b) for job in replica.writer.jobs)
    refused = (
        phase == "quarantine"
    )  # what was refused is rightly made anew, over another stretch or by the other replica
    errors = story.errors + sum(len(replica.witness.faults) for replica in (a, b) if not refused)
    await place.close()
    return Cell(errors, story.lost, max(jobs.values(), default=1) - 1, bool(away) or down, all(recovered))


async def back(replica: Replica) -> bool:
    """Does it find the store again, without a restart?"""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not await replica.ready():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            return True
    return False


async def unreadable(replica: Replica, outcome: Outcome) -> int:
    """Does the note name an archive that can't be read?"""
    named = outcome.archive.encode() in outcome.body if outcome.archive else False
    return int(named and await replica.guarded.get_archive(outcome.archive.split("/")[-2]) is None)


# Places


@contextmanager
def places(folder: Path, kinds: list[str]) -> Iterator[dict[str, Place]]:
    """The stores that this machine can have. Servers are stopped in the end."""
    binary = redis_binary()
    with ExitStack() as stack:
        found: dict[str, Place] = {}
        if "sqlite" in kinds:
            found["sqlite"] = file_at(folder / "file")
        if binary is not None:
            if "redis" in kinds:
                server = RedisServer(binary, folder / "redis", "--appendonly", "yes", "--appendfsync", "always")
                stack.callback(server.stop)
                found["redis"] = served(server)
            if "redis+sentinel" in kinds:
                numbers = itertools.count()
                group = Group(lambda: Replicated(binary, folder / f"sentinel{next(numbers)}"))
                stack.callback(group.stop)
                found["redis+sentinel"] = group
            if "redis+cluster" in kinds:
                cluster = ClusterOfThree(binary, folder / "cluster")
                stack.callback(cluster.stop)
                found["redis+cluster"] = served(cluster)
        yield found


# The document

HEAD = """# Faults of the store

What clients notice when the store fails. Each cell is a run of two replicas on a real store; the fault begins when the first of them comes
to the step that heads the column, and ends later. `python -m tests.faults.matrix` makes this table, and a test holds it to what happens.

A cell tells `errors / lost / extra`: answers that a client would have noticed as wrong, messages of the client that were neither sent on
nor covered by a note (a note that names an archive which can't be read counts too), and summaries beyond the first that were paid for
the same prefix. Two replicas that can't reach what they share make one each; more than that would be a stampede.

"told": an outcome said `store_unavailable`, or `/readyz` said `degraded`; "-" where the store went on answering. All came back without a
restart.

"""


def table(rows: dict[tuple[str, str], dict[str, Cell]]) -> str:
    lines = ["| store | fault | " + " | ".join(PHASES.values()) + " | told |", "|---" * (len(PHASES) + 3) + "|"]
    for (kind, fault), cells in rows.items():
        answers = next(one.answers for one in FAULTS[kind] if one.name == fault)
        told = "-" if answers else "yes" if all(one.told for one in cells.values()) else "no"
        lines.append(f"| {kind} | {fault} | " + " | ".join(str(one) for one in cells.values()) + f" | {told} |")
    return HEAD + "\n".join(lines) + "\n"


def documented() -> dict[tuple[str, str], list[str]]:
    """(store, fault) -> the row's other cells."""
    rows = [line.strip("| ").split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    return {(row[0], row[1]): row[2:] for row in rows[1:]}


async def _all(kinds: list[str]) -> dict[tuple[str, str], dict[str, Cell]]:
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    with tempfile.TemporaryDirectory() as folder, places(Path(folder), kinds) as there:
        for kind, place in there.items():
            for fault in FAULTS[kind]:
                rows[kind, fault.name] = {phase: await cell(place, fault, phase) for phase in PHASES}
                print(kind, fault.name, *rows[kind, fault.name].values(), sep=" | ")
    return rows


def main() -> None:
    kinds = sys.argv[1:] or list(FAULTS)
    rows = asyncio.run(_all(kinds))
    if kinds == list(FAULTS):
        DOCUMENT.write_text(table(rows))


if __name__ == "__main__":
    main()
