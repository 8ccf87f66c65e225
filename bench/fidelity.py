"""How much of what a conversation needs later survives a compaction without a model: `make fidelity ARGS=conversations.jsonl.gz`.

Each real conversation is cut at several places where the assistant spoke next. What stood before the cut is sent through the real compactor
(its settings below) with a target that saves 50 or 65 % of the tokens, and the forwarded request is searched for what the assistant's real
items after the cut refer to (`recall.py` says how). Beside it stand the usual ways to get rid of history, at the same target. A request is
judged only where the target can be reached at all, and the saving is what was really saved.

The data: one JSON object a line, plain or gzip, with `format` (openai-chat | anthropic | responses | gemini), `messages` in the provider's
own shape, `source`, and optionally `system` and `tools`. Named by argument or by COMPACTD_FIDELITY_DATA; without it there is nothing to
measure, which is said and no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recall import ENCODING, RARE, Score, needed, readable, score

from app.compactor import Compactor
from app.core import jsonspan, rules
from app.core.view import EntryCache, raw_bytes
from app.edge.preview import Hearer, OfflineSummarizer
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from app.registry import Model
from app.request import Ask
from app.settings import Policy

CUTS = (0.5, 0.65, 0.8)
"""Shares of the items after which, at the next place where the assistant speaks, a conversation is cut."""
SAVED = (0.5, 0.65)
LEAST = 3_000
"""Tokens: shorter histories need no compaction."""
REACHED = 0.03
"""A target counts as reached up to so much above it."""
SETTINGS: dict[str, Any] = {
    "strategy": "combined",
    "combined_order": ("tool_result_clearing", "summarize"),
    "summary_model": "extractive",
}
"""Recommended where no model is to be asked."""
BARS = {0.5: (0.92, 0.85), 0.65: (0.85, 0.75)}
"""Saved -> recall and in-context recall, over all needed strings."""
_FORMATS = {"anthropic": "anthropic-messages", "responses": "openai-responses"}


@dataclass(frozen=True, slots=True)
class Case:
    """A history as a request body, and what the assistant wrote after it."""

    source: str
    format: str
    body: bytes
    future: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What would be sent: its text, its tokens, whether the pending question is in it byte for byte and no rule is broken."""

    text: str
    tokens: int
    question: bool = True
    valid: bool = True


def conversations(path: Path) -> Iterator[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def cases(row: dict[str, Any]) -> Iterator[Case]:
    name = _FORMATS.get(row["format"], row["format"])
    form, items = FORMATS[name], row["messages"]
    facts = [form.facts(item) for item in items]
    spoken = [
        at for at in range(2, len(items)) if facts[at].role == "assistant" and facts[at - 1].role in ("user", "tool")
    ]
    for cut in dict.fromkeys(next((at for at in spoken if at >= share * len(items)), 0) for share in CUTS):
        if cut:
            body = jsonspan.dump({"model": "fidelity", form.history: items[:cut], **_fields(name, row)})
            later = (items[at] for at in range(cut, len(items)) if facts[at].role == "assistant")
            yield Case(row["source"].partition(":")[0], name, body, tuple(readable(form.parts(item)) for item in later))


def _fields(name: str, row: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"tools": row["tools"]} if row.get("tools") else {}
    if row.get("system") and name != "openai-chat":
        key = {"anthropic-messages": "system", "openai-responses": "instructions", "gemini": "systemInstruction"}[name]
        fields[key] = {"parts": [{"text": row["system"]}]} if name == "gemini" else row["system"]
    return fields


class Measured:
    """One history, looked into once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.form = FORMATS[case.format]
        self.reader = Reader(self.form, ENCODING, EntryCache())
        self.opened = open_body(self.form, case.body)
        self.entries = self.reader.entries(self.opened.raws)
        self.reader.count(self.opened.raws, self.entries)
        fixed = self.reader.fixed(self.opened)
        self.reader.count_fixed(self.opened, fixed)
        self.fixed = fixed.tokens
        self.texts = [readable(self.form.parts(jsonspan.value(raw))) for raw in self.opened.raws]
        self.history = "\n".join(self.texts)
        self.facts = [entry.facts for entry in self.entries]

    @property
    def tokens(self) -> int:
        return self.fixed + sum(entry.tokens for entry in self.entries)

    def compacted(self, target: int, **settings: Any) -> Forwarded:
        """Through the real compactor, with an empty store."""
        policy = Policy(
            name="fidelity", trigger_threshold=self.tokens, target_threshold=target, clear_at_least=0, **settings
        )
        model = Model("fidelity", int(self.tokens / 0.8), ENCODING, frozenset(), True)
        silent = Hearer([])
        compactor = Compactor(Guarded(MemoryStore(), 1.0, silent), OfflineSummarizer(), silent, "http://127.0.0.1:8787")
        ask = Ask(self.opened, self.case.format, "fidelity", model, policy, "fidelity")
        after = open_body(self.form, asyncio.run(compactor.decide(ask)).body)
        entries = self.reader.entries(after.raws)
        self.reader.count(after.raws, entries)
        at = rules.current_turn(self.facts)
        asked = [raw_bytes(self.opened.raws[at])] if at < len(self.facts) else []
        kept = {raw_bytes(raw) for raw in after.raws}
        return Forwarded(
            "\n".join(readable(self.form.parts(jsonspan.value(raw))) for raw in after.raws),
            self.fixed + sum(entry.tokens for entry in entries),
            question=all(raw in kept for raw in asked),
            valid=not rules.violations([entry.facts for entry in entries]) - rules.violations(self.facts),
        )

    def middle_dropped(self, target: int) -> Forwarded:
        """The first and the last characters, half and half, by their share."""
        half = int(len(self.history) * target / self.tokens / 2)
        return Forwarded(self.history[:half] + "\n" + self.history[len(self.history) - half :], target)

    def window(self, target: int) -> Forwarded:
        """The newest items that fit, behind the standing instructions."""
        kept = set(range(rules.head_end(self.facts)))
        used = self.fixed + sum(self.entries[at].tokens for at in kept)
        for at in range(len(self.entries) - 1, -1, -1):
            if used + self.entries[at].tokens > target and kept:
                break
            kept.add(at)
            used += self.entries[at].tokens
        return Forwarded("\n".join(self.texts[at] for at in sorted(kept)), used)


METHODS: dict[str, Callable[[Measured, int], Forwarded]] = {
    "compactd": lambda measured, target: measured.compacted(target, **SETTINGS),
    "clearing only": lambda measured, target: measured.compacted(target, strategy="tool_result_clearing"),
    "sliding window": Measured.window,
    "drop middle": Measured.middle_dropped,
}


@dataclass(slots=True)
class Row:
    """Sums over the requests of one method at one target."""

    requests: int = 0
    saved: float = 0.0
    questions: int = 0
    valid: int = 0
    all: Score = field(default_factory=lambda: Score(0, 0, 0))
    rare: Score = field(default_factory=lambda: Score(0, 0, 0))

    def add(self, done: Forwarded, before: int, everything: Score, rare: Score) -> None:
        self.requests += 1
        self.saved += 1 - done.tokens / before
        self.questions += done.question
        self.valid += done.valid
        self.all += everything
        self.rare += rare


def measure(
    path: Path, methods: dict[str, Callable[[Measured, int], Forwarded]]
) -> Iterator[tuple[str, float, str, bool, Row]]:
    """(method, saved, source, target reached, sums of one request)."""
    for row in conversations(path):
        for case in cases(row):
            measured = Measured(case)
            strings = needed(case.future, measured.history) if measured.tokens >= LEAST else {}
            if not strings:
                continue
            rare = [string for string, count in strings.items() if count <= RARE]
            for saved in SAVED:
                target = int(measured.tokens * (1 - saved))
                for name, method in methods.items():
                    done = method(measured, target)
                    sums = Row()
                    few = score(rare, measured.history, done.text)
                    rest = score((string for string in strings if strings[string] > RARE), measured.history, done.text)
                    sums.add(done, measured.tokens, few + rest, few)
                    yield name, saved, case.source, done.tokens <= target * (1 + REACHED), sums


def report(path: Path) -> bool:
    """Print the table; did the compactor reach the bars?"""
    table: dict[tuple[float, str], Row] = defaultdict(Row)
    sources: dict[tuple[float, str], Row] = defaultdict(Row)
    missed: dict[tuple[float, str], int] = defaultdict(int)
    for name, saved, source, reached, row in measure(path, METHODS):
        missed[saved, name] += not reached
        if reached or name == "clearing only":
            _sum(table[saved, name], row)
            if name == "compactd":
                _sum(sources[saved, source], row)
    titles = f"{'saved':>6} {'recall':>7} {'context':>8} {'rare':>6} {'context':>8} {'question':>9} {'valid':>6}"
    head = f"{'':15} {'requests':>8} {'out of reach':>12} {titles}"
    for saved in SAVED:
        print(f"\nSaving {saved:.0%} of the tokens\n{head}")
        for name in METHODS:
            print(f"{name:15} {_line(table[saved, name], missed[saved, name])}")
        print("compactd by source")
        for (share, source), row in sorted(sources.items()):
            if share == saved:
                print(f"  {source:31.31}{_line(row, 0)}")
    return all(_reaches(table[saved, "compactd"], *bars) for saved, bars in BARS.items())


def _sum(total: Row, one: Row) -> None:
    total.requests += one.requests
    total.saved += one.saved
    total.questions += one.questions
    total.valid += one.valid
    total.all += one.all
    total.rare += one.rare


def _reaches(row: Row, recall: float, context: float) -> bool:
    whole = row.questions == row.valid == row.requests
    return whole and row.all.kept >= recall * row.all.needed and row.all.in_context >= context * row.all.needed


def _line(row: Row, missed: int) -> str:
    def share(part: float, whole: int) -> str:
        return f"{part / whole:.3f}" if whole else "-"

    return (
        f"{row.requests:8} {missed:12} {share(row.saved, row.requests):>6} {share(row.all.kept, row.all.needed):>7} "
        f"{share(row.all.in_context, row.all.needed):>8} {share(row.rare.kept, row.rare.needed):>6} "
        f"{share(row.rare.in_context, row.rare.needed):>8} {share(row.questions, row.requests):>9} {share(row.valid, row.requests):>6}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument(
        "data", nargs="?", default=os.environ.get("COMPACTD_FIDELITY_DATA"), help="conversations, JSON lines"
    )
    parser.add_argument("--check", action="store_true", help="fail if the compactor misses a bar")
    given = parser.parse_args()
    if not given.data:
        print(
            "No conversations to measure: name a file (make fidelity ARGS=FILE) or set COMPACTD_FIDELITY_DATA. Nothing was measured."
        )
        return 0
    if not Path(given.data).is_file():
        print(f"There is no file {given.data}.")
        return 2
    reached = report(Path(given.data))
    bars = ", ".join(f"{recall} and {context} at {saved:.0%}" for saved, (recall, context) in BARS.items())
    print(
        f"\nBars (recall and in-context recall over all needed strings: {bars}; every question whole, every request valid): "
        f"{'reached' if reached else 'MISSED'}"
    )
    return 1 if given.check and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
