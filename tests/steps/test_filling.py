"""One summary per prefix, whatever happens: many requests at once, several replicas, clients that leave, summarisers that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.compactor import Compactor
from app.core import tokens
from app.edge.stores import Guarded, MemoryStore, SqliteStore
from app.edge.stores.base import StoreOptions
from app.errors import StoreFailed, SummaryFailed
from app.formats import FORMATS
from app.formats.reading import open_body
from app.ports import Store, Summary, SummaryJob
from app.registry import Model
from app.request import Ask, Context, Outcome
from app.settings import Policy
from app.steps.filling import Filler
from app.steps.leasing import Leasing

TURN = "Tell me about the harbour, the ships that come and go, and who pays for all of it. " * 8
FAILURES = [
    "empty", "refused", "truncated", "tool_call", "reasoning_only", "unreadable", "too_long", "status_429", "unreachable", "timeout",
    "no_credentials", "window_too_small",
]  # fmt: skip


def policy(**more: Any) -> Policy:
    small: dict[str, Any] = {
        "trigger_threshold": 800, "target_threshold": 300, "clear_at_least": 0, "keep_user_messages": 0, "keep_values": 0,
        "min_messages_before_compaction": 1, "summary_timeout": 20,
    }  # fmt: skip
    return Policy(**(small | more))


def ask(rules: Policy, *last: str, turns: int = 10, tenant: str = "t", tools: bool = False) -> Ask:
    """A conversation of so many turns that ends on these user messages."""
    messages: list[dict[str, Any]] = []
    for n in range(turns):
        messages.append({"role": "user", "content": f"{n}: {TURN}"})
        if tools:
            call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}: {TURN}"})
        messages.append({"role": "assistant", "content": f"Answer {n}."})
    messages += [{"role": "user", "content": text} for text in last or ("And now?",)]
    opened = open_body(FORMATS["openai-chat"], json.dumps({"model": "m", "messages": messages}).encode())
    return Ask(
        opened,
        "openai-chat",
        "main",
        Model("m", 100_000, "o200k_base", frozenset(), True),
        rules,
        tenant,
        client_model="m",
    )


def sent(outcome: Outcome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(outcome.body)["messages"]
    return found


class Writer:
    """A summariser that says what it is told to, once `go` is set. `last`, if given, is what calls after the first do."""

    def __init__(self, *says: str | Exception) -> None:
        self.says = says or ("They spoke of the harbour.",)
        self.jobs: list[SummaryJob] = []
        self.go = asyncio.Event()
        self.go.set()
        self.asked = asyncio.Event()
        self.cancelled = 0

    async def summarize(self, job: SummaryJob) -> Summary:
        self.jobs.append(job)
        number = len(self.jobs)
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        said = self.says[min(number, len(self.says)) - 1]
        if isinstance(said, Exception):
            raise said
        return Summary(f"{said} (call {number})", 100, 10)


class Witness:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, BaseException | None]] = []
        self.notes: list[tuple[str, dict[str, str]]] = []

    def fault(self, where: str, fault: BaseException | None) -> None:
        self.faults.append((where, fault))

    def archived(self, sink: str, result: str) -> None: ...

    def note(self, event: str, **facts: str) -> None:
        self.notes.append((event, facts))

    warn = note

    def summary_failed(self, reason: str, fallback: str) -> None:
        self.note("summary_failed", reason=reason, fallback=fallback)

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...


class House:
    """Replicas over one store."""

    def __init__(self, opened: Callable[[], Store], writer: Writer) -> None:
        self._opened, self.writer, self.witness = opened, writer, Witness()
        self.stores: list[Guarded] = []

    def replica(self) -> Compactor:
        store = Guarded(self._opened(), 10, self.witness)
        self.stores.append(store)
        return Compactor(store, self.writer, self.witness, "http://here")


@asynccontextmanager
async def house(kind: str, folder: Path, writer: Writer) -> AsyncIterator[House]:
    shared = MemoryStore()
    made = House(
        (lambda: shared) if kind == "memory" else (lambda: SqliteStore(folder / "shared.db", StoreOptions(timeout=10))),
        writer,
    )
    yield made
    for store in made.stores:
        await store.close()
    assert made.witness.faults == []


BOTH = pytest.mark.parametrize("kind", ["memory", "sqlite"])


# One flight


@BOTH
async def test_requests_at_once_share_one_call_and_its_bytes(kind: str, tmp_path: Path) -> None:
    writer = Writer()
    writer.go.clear()
    async with house(kind, tmp_path, writer) as made:
        one, other = made.replica(), made.replica()
        waiting = [asyncio.create_task(replica.decide(ask(policy()))) for replica in (one, other) * 8]
        await writer.asked.wait()
        writer.go.set()
        outcomes = await asyncio.gather(*waiting)
        later = await other.decide(ask(policy(), "And now?", "Well?"))
    assert len(writer.jobs) == 1
    assert len({outcome.body for outcome in outcomes}) == 1
    assert {outcome.result for outcome in outcomes} <= {"compacted", "replayed"}
    assert sent(outcomes[0])[0]["content"].startswith(
        "<compaction_summary>\n## Summary of the earlier conversation (compaction #1)"
    )
    assert "(call 1)" in sent(outcomes[0])[0]["content"]
    assert sent(outcomes[0])[1] == {"role": "user", "content": "And now?"}
    assert sent(later)[:2] == sent(outcomes[0])
    assert later.result == "replayed"
    assert len(writer.jobs) == 1


@BOTH
async def test_another_replica_waits_until_the_outcome_is_stored(kind: str, tmp_path: Path) -> None:
    """The lease outlives the call: between its end and the stored checkpoint nobody may begin another."""
    writer = Writer()
    async with house(kind, tmp_path, writer) as made:
        one, other = made.replica(), made.replica()
        archive, stored = made.stores[0].put_archive, asyncio.Event()

        async def slowly(record: Any) -> None:
            await stored.wait()
            await archive(record)

        made.stores[0].put_archive = slowly  # type: ignore[method-assign]
        first = asyncio.create_task(one.decide(ask(policy())))
        await writer.asked.wait()
        second = asyncio.create_task(other.decide(ask(policy())))
        await asyncio.wait([second], timeout=0.4)
        assert not second.done()
        stored.set()
        outcomes = [await first, await second]
    assert len(writer.jobs) == 1
    assert outcomes[0].body == outcomes[1].body
    assert [outcome.result for outcome in outcomes] == ["compacted", "replayed"]


async def test_prefixes_tenants_and_policies_do_not_share(tmp_path: Path) -> None:
    writer = Writer()
    async with house("memory", tmp_path, writer) as made:
        one = made.replica()
        asked = [ask(policy()), ask(policy(), tenant="u"), ask(policy(), turns=11), ask(policy(name="p"), turns=12)]
        await asyncio.gather(*map(one.decide, asked))
    assert len(writer.jobs) == 4


@BOTH
async def test_a_replica_that_dies_delays_nobody_beyond_the_timeout(kind: str, tmp_path: Path) -> None:
    writer = Writer()
    async with house(kind, tmp_path, writer) as made:
        dead, alive = made.replica(), made.replica()
        writer.go.clear()
        gone = asyncio.create_task(dead.decide(ask(policy())))
        await writer.asked.wait()  # it holds the lease, and will never say anything again
        patient = policy(summary_timeout=0.5)
        began = asyncio.get_running_loop().time()
        outcome = await alive.decide(ask(patient))
        assert asyncio.get_running_loop().time() - began < 3
        gone.cancel()
        writer.go.set()
    assert outcome.result == "compacted"
    assert outcome.strategy == "sliding_window"  # the fallback
    assert ("summary_failed", {"reason": "timeout", "fallback": "sliding_window"}) in made.witness.notes
    assert len(writer.jobs) == 1


# A client that leaves


@BOTH
async def test_a_client_that_left_finds_what_was_made_for_it(kind: str, tmp_path: Path) -> None:
    writer = Writer()
    writer.go.clear()
    async with house(kind, tmp_path, writer) as made:
        one, other = made.replica(), made.replica()
        left = asyncio.create_task(one.decide(ask(policy())))
        await writer.asked.wait()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert writer.cancelled == 0
        again = asyncio.create_task(one.decide(ask(policy())))
        writer.go.set()
        here = await again
        there = await other.decide(ask(policy()))
    assert len(writer.jobs) == 1
    assert here.body == there.body
    assert "(call 1)" in sent(here)[0]["content"]


async def test_a_client_that_left_for_good_leaves_a_checkpoint_behind(tmp_path: Path) -> None:
    writer = Writer()
    writer.go.clear()
    async with house("memory", tmp_path, writer) as made:
        one, other = made.replica(), made.replica()
        left = asyncio.create_task(one.decide(ask(policy())))
        await writer.asked.wait()
        left.cancel()
        await asyncio.wait([left])
        writer.go.set()
        found = await other.decide(ask(policy()))  # waits for the lease, not for its own summary
    assert found.result == "replayed"
    assert len(writer.jobs) == 1


async def test_one_that_gives_up_waiting_takes_nothing_from_the_others(tmp_path: Path) -> None:
    writer = Writer()
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(ask(policy()))
        assert outcome.context is not None
        writer.jobs.clear()
        writer.go.clear()
        filler = Filler(writer, no_leases())
        first, second = (asyncio.create_task(filler.asked(outcome.context, [], 100, 5, 100)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        writer.go.set()
        assert (await second).text == "They spoke of the harbour. (call 1)"
    assert (len(writer.jobs), writer.cancelled) == (1, 0)


# Failures


@pytest.mark.parametrize("reason", FAILURES)
@pytest.mark.parametrize(
    ("fallback", "tools", "result", "strategy"),
    [
        ("sliding_window", False, "compacted", "sliding_window"),
        ("tool_result_clearing", True, "compacted", "tool_result_clearing"),
        ("tool_result_clearing", False, "declined", ""),
        ("pass", False, "declined", ""),
    ],
)
async def test_every_failure_leads_to_the_fallback(
    reason: str, fallback: str, tools: bool, result: str, strategy: str, tmp_path: Path
) -> None:
    writer = Writer(SummaryFailed(reason))
    async with house("memory", tmp_path, writer) as made:
        asked = ask(policy(summary_fallback=fallback), tools=tools)
        outcome = await made.replica().decide(asked)
    assert (outcome.result, outcome.strategy) == (result, strategy)
    assert ("summary_failed", {"reason": reason, "fallback": fallback}) in made.witness.notes
    assert len(writer.jobs) == 1
    assert sent(outcome)[-1] == {"role": "user", "content": "And now?"}
    if result == "declined":
        assert outcome.body is asked.opened.body


@pytest.mark.parametrize("reason", FAILURES)
async def test_every_failure_leads_to_a_summary_without_a_model(reason: str, tmp_path: Path) -> None:
    pytest.importorskip("app.summaries.extractive")
    async with house("memory", tmp_path, Writer(SummaryFailed(reason))) as made:
        outcome = await made.replica().decide(ask(policy(summary_fallback="extractive")))
    assert (outcome.result, outcome.strategy) == ("compacted", "summarize")
    assert sent(outcome)[0]["content"].startswith("<compaction_summary>")
    assert len(made.writer.jobs) == 1


@pytest.mark.parametrize(("fallback", "tools"), [("sliding_window", False), ("tool_result_clearing", True)])
async def test_in_combined_the_fallback_takes_the_summarys_place(fallback: str, tools: bool, tmp_path: Path) -> None:
    async with house("memory", tmp_path, Writer(SummaryFailed("refused"))) as made:
        rules = policy(strategy="combined", combined_order=["summarize"], summary_fallback=fallback)
        outcome = await made.replica().decide(ask(rules, tools=tools))
    assert (outcome.result, outcome.strategy) == ("compacted", "combined")
    text = outcome.body.decode()
    assert ("removed here by compaction" in text) == (fallback == "sliding_window")
    assert ("cleared by compaction" in text) == (fallback == "tool_result_clearing")


async def test_replicas_share_the_fallback_too(tmp_path: Path) -> None:
    writer = Writer(SummaryFailed("refused"))
    writer.go.clear()
    async with house("memory", tmp_path, writer) as made:
        waiting = [asyncio.create_task(made.replica().decide(ask(policy()))) for _ in range(4)]
        await writer.asked.wait()
        writer.go.set()
        outcomes = await asyncio.gather(*waiting)
    assert len(writer.jobs) == 1
    assert len({outcome.body for outcome in outcomes}) == 1


async def test_a_failed_flight_is_no_use_to_later_requests(tmp_path: Path) -> None:
    writer = Writer(SummaryFailed("status_529"), "They spoke.")
    async with house("memory", tmp_path, writer) as made:
        one = made.replica()
        assert (await one.decide(ask(policy(summary_fallback="pass")))).result == "declined"
        assert "They spoke. (call 2)" in sent(await one.decide(ask(policy(summary_fallback="pass"))))[0]["content"]


async def test_a_fault_in_the_summariser_forwards_the_original(tmp_path: Path) -> None:
    async with house("memory", tmp_path, Writer(RuntimeError("secret"))) as made:
        asked = ask(policy())
        outcome = await made.replica().decide(asked)
        ((where, fault),) = made.witness.faults
        made.witness.faults.clear()
    assert outcome.body is asked.opened.body
    assert (outcome.result, where, type(fault)) == ("failed", "decide", RuntimeError)


async def test_a_slow_summariser_is_cancelled(tmp_path: Path) -> None:
    writer = Writer()
    writer.go.clear()
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(ask(policy(summary_timeout=0.05)))
    assert outcome.strategy == "sliding_window"
    assert writer.cancelled == 1


# Without a store


class NoLeases:
    """A store that is away."""

    async def acquire(self, name: str, seconds: float) -> str | None:  # noqa: ARG002
        raise StoreFailed

    async def release(self, name: str, token: str) -> None:  # noqa: ARG002
        raise StoreFailed

    async def has_moved_on(self, context: Context) -> bool:  # noqa: ARG002
        raise StoreFailed


def no_leases() -> Leasing:
    store: Any = NoLeases()
    return Leasing(store, store.has_moved_on)


async def test_without_a_store_a_process_still_asks_once(tmp_path: Path) -> None:
    writer = Writer()
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(ask(policy()))
        assert outcome.context is not None
        context = outcome.context
        writer.jobs.clear()
        filler = Filler(writer, no_leases())
        said = await asyncio.gather(*(filler.asked(context, [], 100, 5, 100) for _ in range(3)))
        await filler.release(context)
    assert len(writer.jobs) == 1
    assert [summary.text for summary in said] == ["They spoke of the harbour. (call 1)"] * 3


# What the job says, and what is repeated


async def test_the_job_names_what_goes_and_on_which_scale(tmp_path: Path) -> None:
    writer = Writer()
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(ask(policy()))
        (job,) = writer.jobs
        assert [seen.index for seen in job.items] == list(range(20))
        assert outcome.context is not None
        assert job.leaving == sum(entry.tokens for entry in outcome.context.client.entries[:20])
        assert job.ratio == outcome.context.counted.ratio


async def test_a_second_summary_builds_on_the_first(tmp_path: Path) -> None:
    writer = Writer("They spoke of blue boats.", "Blue boats, then trains.")
    async with house("memory", tmp_path, writer) as made:
        one = made.replica()
        first = await one.decide(ask(policy()))
        second = await one.decide(ask(policy(), turns=20))
    assert len(writer.jobs) == 2
    note = writer.jobs[1].items[0]
    assert note.facts.note
    assert note.parts[0].text == sent(first)[0]["content"]
    assert [seen.index for seen in writer.jobs[1].items[1:]] == list(range(20, 40))
    assert "(compaction #2)" in sent(second)[0]["content"]
    assert "Blue boats, then trains. (call 2)" in sent(second)[0]["content"]


async def test_a_fold_does_not_ask_a_summariser_that_has_just_failed(tmp_path: Path) -> None:
    pytest.importorskip("app.summaries.extractive")
    asked = ask(policy(fold_rounds_above=800), turns=6)
    messages = json.loads(asked.opened.body)["messages"]
    for n in range(12):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}: {TURN}"})
    asked = replace(
        asked, opened=open_body(FORMATS["openai-chat"], json.dumps({"model": "m", "messages": messages}).encode())
    )
    writer = Writer(SummaryFailed("timeout"))
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(asked)
    assert len(writer.jobs) == 1
    assert outcome.result == "compacted"
    texts = [str(message.get("content")) for message in sent(outcome)]
    assert any("Progress so far, the work is not finished" in text for text in texts)
    assert any("removed here by compaction" in text for text in texts)
    assert "result 11" in texts[-1]


@pytest.mark.parametrize("room", [0, 40, 150, 100_000])
async def test_what_is_repeated_verbatim_keeps_to_the_room_that_is_left(room: int, tmp_path: Path) -> None:
    pytest.importorskip("app.summaries.requests")
    pytest.importorskip("app.summaries.values")
    writer = Writer()
    async with house("memory", tmp_path, writer) as made:
        outcome = await made.replica().decide(ask(policy(keep_user_messages=2_000, keep_values=500)))
        assert outcome.context is not None
        items = writer.jobs[0].items
        summary = await Filler(writer, no_leases()).asked(outcome.context, items, 2_000, 5, room)
    assert summary.text.startswith("They spoke of the harbour.")
    assert tokens.count(summary.text, "o200k_base") <= max(room, 20)
    assert ("Tell me about the harbour" in summary.text) == (room > 1_000)
