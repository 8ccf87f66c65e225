"""How far off are our token counts? `python bench/estimates.py --data FILE --recordings DIR`, either may be left out.

Real conversations are replayed request by request through the compactor, one after the other as one tenant's, and what it says a request
has is held against what a provider would report: the count of the tests' strict provider, with another tokeniser, a factor on top
(each of `--ratios`), and more for each item and for tools than we know of. What is measured is `tokens_after`, the figure that decisions
rest on, of requests whose conversation the provider has reported on before:

    whole      the window is never reached
    compacted  the history is made shorter, just now (new) or by an earlier compaction (replayed)

and with `--cold` of every request as if nothing had been reported yet. The bar is for level 2, at every ratio. A file holds a conversation
a line (`format`, `messages`, `system`, `tools`), plain or gzipped; a directory holds `.jsonl` files of recorded requests (`session`,
`path`, `body`), a request a line.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.compactor import Compactor
from app.core import rules, tokens
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.errors import NotCompactable, SummaryFailed
from app.formats import FORMATS
from app.formats.reading import open_body
from app.ports import Summary, SummaryJob
from app.registry import Registry
from app.request import Ask, Outcome
from app.settings import Policy
from tests.strict.tokens import measure

BAR = 2.0  # per cent: p95 of the error at level 2, once the provider has reported on the conversation
KINDS = {"anthropic": "anthropic-messages", "responses": "openai-responses"}
COUNTING = Policy(trigger_threshold=1, target_threshold=1, min_messages_before_compaction=1_000_000)
SHORTENING = Policy(
    strategy="combined", combined_order=("tool_result_clearing", "sliding_window"), archive_history=False
)
PATHS = {
    "openai-chat": ("/v1/chat/completions", "gpt-4o"),
    "openai-responses": ("/v1/responses", "gpt-5.1"),
    "anthropic-messages": ("/v1/messages", "claude-sonnet-4-5"),
    "gemini": ("/v1beta/models/gemini-2.5-pro:generateContent", ""),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a conversation. `path` says the format, and the model where the body does not."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Provider:
    """What a provider reports: tokens of its own encoding times `ratio`, and besides so many for each item and for having tools."""

    encoding: str
    ratio: float
    per_item: int
    for_tools: int

    def count(self, form: str, body: dict[str, Any]) -> int:
        size = measure(form, body, self._tokens)
        return size.total + self.per_item * len(size.items) + (self.for_tools if body.get("tools") else 0)

    def _tokens(self, text: str) -> int:
        return int(_encoded(text, self.encoding) * self.ratio)


@cache
def _encoded(text: str, encoding: str) -> int:
    return tokens.count(text, encoding)


class NullRecorder:
    """Nobody is told anything, and nobody summarises."""

    def fault(self, where: str, fault: BaseException | None) -> None:
        raise RuntimeError(f"the compactor failed in {where}") from fault

    def archived(self, sink: str, result: str) -> None: ...

    def note(self, event: str, **facts: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...

    def summary_failed(self, reason: str, fallback: str) -> None: ...

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...

    async def summarize(self, job: SummaryJob) -> Summary:  # noqa: ARG002
        raise SummaryFailed("refused")


def conversations(file: Path) -> Iterator[tuple[str, list[Request]]]:
    """The requests that led to each answer of a conversation."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        for line in lines:
            told = json.loads(line)
            form = FORMATS[KINDS.get(told["format"], told["format"])]
            path, model = PATHS[form.name]
            head: dict[str, Any] = {"model": model} if model else {}
            if told.get("tools"):
                head["tools"] = told["tools"]
            if told.get("system"):
                head[{"openai-responses": "instructions", "gemini": "systemInstruction"}.get(form.name, "system")] = (
                    told["system"]
                )
            items = told["messages"]
            roles = [form.facts(item).role for item in items]
            ends = [at for at in range(1, len(items)) if roles[at] == "assistant" and roles[at - 1] in ("user", "tool")]
            yield told["id"], [Request(path, {**head, form.history: items[:end]}) for end in ends]


def recordings(directory: Path) -> Iterator[tuple[str, list[Request]]]:
    """The conversations' requests of each recorded session, in order."""
    sessions: dict[str, list[Request]] = defaultdict(list)
    for file in sorted(directory.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            if isinstance(told.get("body"), dict):
                sessions[told["session"]].append(Request(told["path"], told["body"]))
    yield from sessions.items()


@dataclass(frozen=True, slots=True)
class Figure:
    """One estimate held against its report: what kind it is, and by how many per cent it is off."""

    form: str
    kind: str
    level: int
    error: float


class Replay:
    """Conversations through one compactor. `share` of a conversation's largest request is the model's window, 0: no limit."""

    def __init__(self, provider: Provider, registry: Registry, cold: bool = False) -> None:
        self._provider = provider
        self._registry = registry
        self._cold = cold
        self._compactor = Compactor(
            Guarded(MemoryStore(), 5.0, NullRecorder()), NullRecorder(), NullRecorder(), "http://127.0.0.1"
        )

    def ask(self, request: Request, policy: Policy, tenant: str, window: int = 0) -> Ask | None:
        """The request as the edge would hand it over; None for one that carries no conversation."""
        found = [(form, target) for form in FORMATS.values() if (target := form.target(request.path))]
        if not found:
            return None
        form, target = found[0]
        try:
            opened = open_body(form, json.dumps(request.body, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        except NotCompactable:
            return None
        if not opened.raws or form.refusal(opened.fields, opened.last):
            return None
        name = target.model or str(request.body.get("model") or "")
        model = self._registry.lookup(name)
        model = replace(model, context_window=window) if window else model
        return Ask(opened, form.name, "provider", model, policy, tenant, client_model=name, path=request.path)

    def reported(self, outcome: Outcome) -> int:
        assert outcome.context is not None
        return self._provider.count(outcome.context.ask.format, json.loads(outcome.body))

    async def run(self, name: str, requests: list[Request], share: float) -> list[Figure]:
        """The figures of one conversation's requests."""
        policy, window = COUNTING, 0
        if share:
            policy = SHORTENING
            asks = [(request, self.ask(request, policy, "")) for request in requests]
            sizes = [self._provider.count(ask.format, request.body) for request, ask in asks if ask]
            window = int(max(sizes, default=0) * share)
        figures: list[Figure] = []
        known = False
        for number, request in enumerate(requests):
            if self._cold and not share:
                await self._add(figures, self.ask(request, COUNTING, f"stranger {name} {number}"), "cold, {}")
            ask = self.ask(request, policy, f"owner {share}", window)
            # Compaction aside, the conversation is its own session, whatever others begin with the same words.
            outcome = await self._add(figures if known else [], ask and replace(ask, session=name))
            if outcome is not None:
                await self._compactor.settle(outcome, self.reported(outcome))
                known = True
        return figures

    async def _add(self, figures: list[Figure], ask: Ask | None, told: str = "{}") -> Outcome | None:
        """Decide, and add the figure. None where there is none to hold against a report."""
        outcome = await self._compactor.decide(ask) if ask else None
        if outcome is None or outcome.context is None:
            return None
        reported = self.reported(outcome)
        how = "whole" if not outcome.changed else "new" if outcome.result == "compacted" else "replayed"
        form, level = outcome.context.ask.format, rules.level(outcome.context.client.facts)
        kind = told.format(f"{outcome.source}, level {level}, {how}")
        figures.append(Figure(form, kind, level, 100 * (outcome.after - reported) / reported))
        return outcome


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


HEAD = f"{'':46} {'requests':>8} {'p50 %':>7} {'p95 %':>7} {'max %':>7} {'mean %':>7}"


def row(kind: str, errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    return (
        f"{kind:46} {len(errors):8} {quantile(sizes, 0.5):7.2f} {quantile(sizes, 0.95):7.2f} {max(sizes):7.2f} "
        f"{sum(errors) / len(errors):+7.2f}"
    )


def table(figures: Sequence[Figure], by: Callable[[Figure], str]) -> Iterator[str]:
    """A row for each kind that `by` tells apart."""
    groups: dict[str, list[float]] = defaultdict(list)
    for figure in figures:
        groups[by(figure)].append(figure.error)
    return (row(kind, errors) for kind, errors in sorted(groups.items()))


async def main(options: argparse.Namespace) -> int:
    sources = [
        *(conversations(options.data) if options.data else ()),
        *(recordings(options.recordings) if options.recordings else ()),
    ]
    if not sources:
        print("Nothing to replay: name a file with --data or a directory with --recordings.")
        return 0
    missed = []
    for ratio in options.ratios:
        provider = Provider(options.encoding, ratio, options.per_item, options.for_tools)
        replay = Replay(provider, Registry({}, lambda _: None), options.cold)
        figures: list[Figure] = []
        for name, requests in sources:
            for share in (0.0, 0.6):
                found = await replay.run(name, requests, share)
                figures += found
                if options.verbose:
                    worst = max((abs(figure.error) for figure in found if "cold" not in figure.kind), default=0.0)
                    print(f"{name:28} share {share}: {len(found)} figures, worst {worst:.2f} %")
        level_2 = [figure for figure in figures if figure.level == 2 and "cold" not in figure.kind]
        reached = quantile((abs(figure.error) for figure in level_2), 0.95) if level_2 else 0.0
        if reached > BAR:
            missed.append(ratio)
        print(
            f"\n{provider.encoding} x {ratio}, {provider.per_item} more an item, {provider.for_tools} for tools\n{HEAD}"
        )
        print(*table(figures, lambda figure: figure.kind), sep="\n")
        print(*table(level_2, lambda figure: f"level 2, {figure.form}"), sep="\n")
        print(*table(level_2, lambda _: "level 2"), sep="\n")
    told = f"missed at {', '.join(map(str, missed))}" if missed else "held"
    print(f"\nlevel 2 after the first answer, p95 of at most {BAR} % at every ratio: {told}")
    return 1 if missed else 0


def sources(description: str | None) -> argparse.ArgumentParser:
    """Options for where conversations come from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="conversations, .jsonl or .jsonl.gz")
    parser.add_argument("--recordings", type=Path, help="a directory of recorded requests, .jsonl")
    return parser


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = sources(__doc__)
    parser.add_argument(
        "--encoding", default="cl100k_base", help="the provider's (default: %(default)s; ours is o200k_base)"
    )
    parser.add_argument(
        "--ratios", type=float, nargs="+", default=[0.85, 1.0, 1.17, 1.3, 1.5],
        help="the provider's tokens for each of these, one run each (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--cold", action="store_true", help="also estimates without any report")
    parser.add_argument(
        "--per-item", type=int, default=3, help="tokens of the provider's more for each item (default: %(default)s)"
    )
    parser.add_argument(
        "--for-tools", type=int, default=346, help="tokens for having tools at all (default: %(default)s)"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for each conversation")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parsed())))
