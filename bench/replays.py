"""What becomes of real conversations, in every format: `python bench/replays.py --data FILE --recordings DIR`, either may be left out.

Each conversation is sent as its client would: the whole history before each of the model's answers, ever longer, until it is well past its
trigger (the window is a share of its largest request). It is written in all four formats besides the one that it is in, and played with
each strategy that asks no model. What is forwarded is held to the strict provider's rules and to the request before it:

    faulty        requests that break a rule as the client wrote them, of those that were changed
    rejected      … and that break one more, or more often, as they were forwarded
    unstable      replays that don't begin with what was sent for the request before (notes to the byte, items by fingerprint)
    per comp.     requests from the first compaction on, for each compaction
    sent          tokens forwarded, in per cent of the client's (of requests past the first compaction)

Of recorded sessions it is also counted how many requests go on from an earlier one by their fingerprints (`chained`). The forms of the
files are those of `bench/estimates.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from estimates import PATHS, NullRecorder, Request, conversations, recordings, sources
from wordings import instructed, rewritten

from app.compactor import Compactor
from app.core import tokens
from app.core.view import EntryCache, Note, chain, raw_bytes
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from app.registry import Registry
from app.request import Ask
from app.settings import Policy
from tests.strict import VIOLATIONS

STRATEGIES = {
    "sliding_window": {"keep_recent_messages": 10},
    "tool_result_clearing": {},
    "combined": {"summary_model": "extractive"},
}
SHARE = 0.5
"""The trigger, as a share of a conversation's largest request."""
SCHEMA = {"type": "object", "properties": {}}


@dataclass
class Tally:
    """What happened to the conversations of one kind."""

    conversations: int = 0
    requests: int = 0
    compactions: int = 0
    past: int = 0
    faulty: int = 0
    rejected: int = 0
    unstable: int = 0
    before: int = 0
    after: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def row(self, kind: str) -> str:
        each = self.past / self.compactions if self.compactions else 0.0
        sent = 100 * self.after / self.before if self.before else 100.0
        return (
            f"{kind:52} {self.conversations:5} {self.requests:8} {self.compactions:8} {self.faulty:8} {self.rejected:8} {self.unstable:8} "
            f"{each:9.1f} {sent:6.1f}"
        )


HEAD = f"{'':52} {'conv.':>5} {'requests':>8} {'compact.':>8} {'faulty':>8} {'rejected':>8} {'unstable':>8} {'per comp.':>9} {'sent %':>6}"


class Player:
    """Conversations through one compactor; each strategy is a tenant of its own."""

    def __init__(self) -> None:
        self._registry = Registry({}, lambda _: None)
        self._compactor = Compactor(
            Guarded(MemoryStore(), 5.0, NullRecorder()), NullRecorder(), NullRecorder(), "http://127.0.0.1"
        )

    async def play(self, name: str, requests: Sequence[Request], strategy: str, tally: Tally) -> None:
        window = int(max(map(_size, requests), default=0) * SHARE)
        policy = Policy(
            strategy=strategy, trigger_threshold=window, target_threshold=window // 2, **STRATEGIES[strategy]
        )
        asks = [(request, ask) for request in requests if (ask := self._ask(request, policy, strategy, name))]
        tally.conversations += bool(asks)
        compacted, last = 0, []
        for request, ask in asks:
            outcome = await self._compactor.decide(ask)
            await self._compactor.settle(outcome, 0)
            tally.requests += 1
            tally.reasons[f"{outcome.result} {outcome.reason}"] += 1
            compacted += outcome.result == "compacted"
            if outcome.context is None:
                continue
            # What stays is the client's own, and clients move their cache marks about: the same to the fingerprint will do.
            view = outcome.context.view
            seen = zip(view.pieces, view.raws, view.entries, strict=True)
            sent = [raw_bytes(raw) if isinstance(piece, Note) else entry.fingerprint for piece, raw, entry in seen]
            if outcome.changed:
                own, new = _faults(ask.format, request.body), _faults(ask.format, json.loads(outcome.body))
                tally.faulty += bool(own)
                tally.rejected += bool(new - own)
                went_on = len(ask.opened.raws) >= len(last)  # else the client itself has begun anew
                tally.unstable += outcome.result == "replayed" and went_on and bool(last) and sent[: len(last)] != last
            last = sent if outcome.changed else []
            if compacted:
                tally.past += 1
                tally.before += outcome.before
                tally.after += outcome.after
        tally.compactions += compacted

    def _ask(self, request: Request, policy: Policy, tenant: str, session: str) -> Ask | None:
        form, target = next((form, found) for form in FORMATS.values() if (found := form.target(request.path)))
        body = json.dumps(request.body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        try:
            opened = open_body(form, body)
        except NotCompactable:
            return None
        if not opened.raws or form.refusal(opened.fields, opened.last):
            return None
        name = opened.model or target.model
        model = replace(self._registry.lookup(name), context_window=10_000_000)
        return Ask(opened, form.name, "provider", model, policy, tenant, session, name, request.path)


def _faults(form: str, body: dict[str, Any]) -> Counter[str]:
    return Counter(one.rule for one in VIOLATIONS[form](body))


def _size(request: Request) -> int:
    """About how many tokens a request has."""
    return sum(tokens.count(text, "") for text in _texts(request.body))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value if len(value) < 100_000 else ""
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def everywhere(sources: Iterable[tuple[str, list[Request]]]) -> Iterator[tuple[str, str, list[Request]]]:
    """(name, what it is, requests) of each conversation, as it is and in the other formats."""
    for name, requests in sources:
        own = next(form for form in FORMATS.values() if form.target(requests[-1].path))
        yield name, f"{own.name}, native", requests
        for other in (form for form in FORMATS.values() if form is not own):
            path, model = PATHS[other.name]
            items, bounds = rewritten(own.name, requests[-1].body[own.history], other.name)
            head: dict[str, Any] = {"model": model} if model else {}
            head |= instructed(own.name, requests[-1].body[own.history], other.name)
            if other.name == "anthropic-messages":
                names = {block["name"] for item in items for block in item["content"] if "name" in block}
                head |= {
                    "max_tokens": 1_000,
                    "tools": [{"name": name, "input_schema": SCHEMA} for name in sorted(names)],
                }
            ends = [bounds[len(request.body[own.history])] for request in requests]
            yield name, f"{other.name}, scripted", [Request(path, {**head, other.history: items[:end]}) for end in ends]


def chained(requests: Sequence[Request]) -> tuple[int, int]:
    """(requests that go on from an earlier one by their fingerprints, requests that should)."""
    cache, found, should = EntryCache(), 0, 0
    seen: list[list[bytes]] = []
    for request in requests:
        form = next((form for form in FORMATS.values() if form.target(request.path)), None)
        if form is None:
            continue
        opened = open_body(form, json.dumps(request.body).encode())
        links = chain("t", form.name, Reader(form, "o200k_base", cache).entries(opened.raws))
        before = [one for one in seen if one and links and one[0] == links[0] and len(one) < len(links)]
        if before:
            should += 1
            found += any(links[: len(one)] == one for one in before if len(one) == max(map(len, before)))
        seen.append(links)
    return found, should


async def main(options: argparse.Namespace) -> int:
    tallies: dict[str, Tally] = defaultdict(Tally)
    player = Player()
    wanted = [*everywhere(conversations(options.data))] if options.data else []
    if options.recordings:
        pairs = [0, 0]
        for name, requests in recordings(options.recordings):
            spoken = [request for request in requests if any(form.target(request.path) for form in FORMATS.values())]
            if name.startswith("long") and spoken:
                found, should = chained(spoken)
                print(f"{name:24} chained: {found} of {should}")
                pairs = [pairs[0] + found, pairs[1] + should]
                wanted.append((name, f"{name}, recorded", spoken))
        print(f"{'all':24} chained: {pairs[0]} of {pairs[1]}\n")
    for strategy in options.strategies:
        for name, what, requests in wanted:
            if not options.formats or any(what.startswith(form) for form in options.formats):
                await player.play(f"{name} {what}", requests, strategy, tallies[f"{strategy}: {what}"])
    print(HEAD)
    for kind, tally in sorted(tallies.items()):
        print(tally.row(kind))
        if options.verbose:
            print(f"    {dict(tally.reasons.most_common())}")
    faulty = sum(tally.rejected + tally.unstable for tally in tallies.values())
    print(f"\nrejected or unstable: {faulty} of {sum(tally.requests for tally in tallies.values())}")
    return 1 if faulty else 0


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = sources(__doc__)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=[*STRATEGIES])
    parser.add_argument("--formats", nargs="+", choices=[*FORMATS], default=[], help="only these")
    parser.add_argument("--verbose", action="store_true", help="also outcomes and reasons")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parsed())))
