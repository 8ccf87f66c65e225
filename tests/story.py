"""A client, a compactor and what is around it, for tests that tell one request's story: everything real but the network.

`Talk` is a client that resends its growing history; `House` is a compactor over a memory store behind its guard, with a summariser that
says what it is told to and a recorder that remembers what it was told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.compactor import Compactor
from app.core.view import EntryCache
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from app.ports import Store, Summary, SummaryJob
from app.records import Archive
from app.registry import Model
from app.request import Ask, Outcome
from app.settings import Policy

Item = dict[str, Any]
BASE = "http://here:8787"
WINDOW = 10_000


def words(count: int, word: str = "word") -> str:
    """A text of about so many tokens."""
    return f"{word} " * count


def policy(**more: Any) -> Policy:
    """From 1,000 tokens down to 500 by a window of five messages, whatever the gain; nothing else happens unless a test asks for it."""
    plain: dict[str, Any] = {
        "strategy": "sliding_window", "trigger_threshold": 1_000, "target_threshold": 500, "clear_at_least": 0,
        "min_messages_before_compaction": 1, "fold_rounds_above": None, "keep_user_messages": 0, "keep_values": 0, "summary_timeout": 10,
    }  # fmt: skip
    return Policy(**(plain | more))


class Talk:
    """A client's conversation in the chat format, or with `items` of its own in any; `fields` are the body's other keys."""

    def __init__(self, *items: Item, form: str = "openai-chat", **fields: Any) -> None:
        self.form = form
        self.items = list(items)
        self.fields: dict[str, Any] = {"model": "m", **fields}

    @classmethod
    def of(cls, turns: int, tokens: int = 150, **fields: Any) -> Talk:
        """So many finished turns of about so many tokens, and a question."""
        talk = cls(**fields)
        for n in range(turns):
            talk.ask(f"Question {n}. {words(tokens)}").answer(f"Answer {n}.")
        return talk.ask("And now?")

    def ask(self, text: str) -> Talk:
        self.items.append({"role": "user", "content": text})
        return self

    def answer(self, text: str = "Fine.") -> Talk:
        self.items.append({"role": "assistant", "content": text})
        return self

    def round(self, tokens: int = 200, ident: str = "", tool: str = "read") -> Talk:
        """A call and its result of about so many tokens."""
        ident = ident or f"call_{len(self.items)}"
        function = {"name": tool, "arguments": json.dumps({"path": f"/{ident}"})}
        self.items.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": ident, "type": "function", "function": function}],
            }
        )
        self.items.append({"role": "tool", "tool_call_id": ident, "content": f"Result of {ident}. {words(tokens)}"})
        return self

    @property
    def body(self) -> bytes:
        return json.dumps({**self.fields, FORMATS[self.form].history: self.items}, ensure_ascii=False).encode()

    def asked(
        self, rules: Policy, *, body: bytes = b"", window: int = WINDOW, quirks: Sequence[str] = (), **more: Any
    ) -> Ask:
        model = Model("m", window, "o200k_base", frozenset(quirks), True)
        opened = open_body(FORMATS[self.form], body or self.body)
        return Ask(opened, self.form, "main", model, rules, **{"tenant": "t", "client_model": "m", **more})


def counted(talk: Talk) -> int:
    """The local count of a conversation's items."""
    reader = Reader(FORMATS[talk.form], "o200k_base", EntryCache())
    raws = open_body(FORMATS[talk.form], talk.body).raws
    reader.count(raws, entries := reader.entries(raws))
    return sum(entry.tokens for entry in entries)


def sent(outcome: Outcome) -> list[Item]:
    """The history that is forwarded."""
    body: Item = json.loads(outcome.body)
    return next(body[form.history] for form in FORMATS.values() if form.history in body)


def texts(outcome: Outcome) -> list[Any]:
    """The contents of what is forwarded (chat and Anthropic)."""
    return [item["content"] for item in sent(outcome)]


class Writer:
    """A summariser that says these things one after the other, the last one ever after; an exception is raised."""

    def __init__(self, *says: str | Exception) -> None:
        self.says = says or ("What was said.",)
        self.jobs: list[SummaryJob] = []

    async def summarize(self, job: SummaryJob) -> Summary:
        self.jobs.append(job)
        said = self.says[min(len(self.jobs), len(self.says)) - 1]
        if isinstance(said, Exception):
            raise said
        return Summary(said, 100, 10, 0.5)


class Witness:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, BaseException | None]] = []
        self.notes: list[tuple[str, dict[str, str]]] = []
        self.warnings: list[tuple[str, dict[str, str]]] = []
        self.archives: list[tuple[str, str]] = []

    def fault(self, where: str, fault: BaseException | None) -> None:
        self.faults.append((where, fault))

    def archived(self, sink: str, result: str) -> None:
        self.archives.append((sink, result))

    def summary_failed(self, reason: str, fallback: str) -> None:
        self.note("summary_failed", reason=reason, fallback=fallback)

    def note(self, event: str, **facts: str) -> None:
        self.notes.append((event, facts))

    def warn(self, event: str, **facts: str) -> None:
        self.warnings.append((event, facts))

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...


class House:
    """One replica. `store` is the real store; give the same one to several for several replicas."""

    def __init__(self, *says: str | Exception, store: Store | None = None, timeout: float = 5.0) -> None:
        self.store = store or MemoryStore()
        self.witness = Witness()
        self.guarded = Guarded(self.store, timeout, self.witness)
        self.writer = Writer(*says)
        self.compactor = Compactor(self.guarded, self.writer, self.witness, BASE)

    async def decide(self, talk: Talk, rules: Policy, overflowed: bool = False, **more: Any) -> Outcome:
        """What becomes of the request that this client would send now."""
        return await self.compactor.decide(talk.asked(rules, **more), overflowed)

    async def archive(self, outcome: Outcome) -> Archive:
        """The archive that an outcome names."""
        ident, capability = outcome.archive.removeprefix(f"{BASE}/compactd/archives/").split("/")
        found = await self.store.get_archive(ident)
        assert found is not None
        assert found.capability == capability
        return found
