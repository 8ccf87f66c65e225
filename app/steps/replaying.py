"""Replaying a checkpoint on a history that has grown: what it gives, and whether it fits.

Behind the prefix that it covers a history may have gone another way than the one that it was made for: with a result, say, whose call was
taken for one that is never answered. So a replay is held to the rules like any other change. That takes a look at every item; but the
verdict is a function of checkpoint and history alone, so it is remembered by the history's chain hash, and how a history mostly goes on
can't change it: with calls and results of its own, or with a question. What the covered items gave is remembered likewise, for as long as
they are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ref

from app.core import rules
from app.core.jsonspan import Slice
from app.core.plan import Checkpoint, replay
from app.core.recent import Recent
from app.core.view import Entry, Facts, View, origin, size_of
from app.formats.reading import Reader

FITTING, REPLAYED_BYTES = 4_000, 14 << 20
"""Verdicts, and what views of covered prefixes take, that are remembered."""
NEAR = 64
"""So many items back a remembered verdict is looked for."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What a checkpoint made of the items that it covers (`of`: the same entry means the same bytes): the entries, and at their positions
    the items that are not the client's own."""

    checkpoint: Checkpoint
    of: list[Entry]
    entries: list[Entry]
    written: list[tuple[int, Slice]]

    @property
    def bytes(self) -> int:
        """Entries are in another cache too, checkpoints as well."""
        return 800 + 8 * (len(self.of) + len(self.entries)) + sum(100 + size_of(raw) for _, raw in self.written)


class Replayer:
    def __init__(self) -> None:
        self._fitting: Recent[bytes, ref[Checkpoint]] = Recent(FITTING)  # a verdict is no reason to keep a checkpoint
        self._prefixes: Recent[bytes, _Prefix] = Recent(REPLAYED_BYTES, lambda _, prefix: prefix.bytes)

    def replay(
        self, checkpoint: Checkpoint, links: Sequence[bytes], client: View, reader: Reader, protects: bool = True
    ) -> View | None:
        """The view that the checkpoint gives, None where it does not fit. `links` is the chain of the client's history, `client` its own
        view. `protects`: what the current turn asks must be shown."""
        if protects and not _shows_question(checkpoint, client):
            return None
        view = self._view(checkpoint, links, client, reader)
        return view if self._fits(checkpoint, links, client, view) else None

    # What it gives

    def _view(self, checkpoint: Checkpoint, links: Sequence[bytes], client: View, reader: Reader) -> View:
        covered, key = checkpoint.covered, links[checkpoint.covered - 1]
        last = self._prefixes.get(key)
        if last is None or last.checkpoint is not checkpoint or last.of != client.entries[:covered]:
            view = replay(client, checkpoint, reader.rewrite, reader.entries)
            written = [(at, view.raws[at]) for at, piece in enumerate(checkpoint.pieces) if not isinstance(piece, int)]
            entries = view.entries[: len(checkpoint.pieces)]
            self._prefixes.put(key, _Prefix(checkpoint, client.entries[:covered], entries, written))
            return view
        own = client.raws
        raws = [own[piece] if isinstance(piece, int) else b"" for piece in checkpoint.pieces]
        for at, raw in last.written:
            raws[at] = raw
        pieces = [*checkpoint.pieces, *range(covered, len(client))]
        return View([*raws, *own[covered:]], [*last.entries, *client.entries[covered:]], pieces, covered)

    # Whether it fits

    def _fits(self, checkpoint: Checkpoint, links: Sequence[bytes], client: View, view: View) -> bool:
        if self._follows(checkpoint, links, client):
            self._remember(links[-1], checkpoint)
            return True
        before, after = client.facts, view.facts
        wrong = rules.violations(after)
        if wrong and wrong - rules.violations(before):
            return False
        # A question that is part of a recap has no turn behind the checkpoint: an older one that is still shown is not it.
        shown = _shows_question(checkpoint, client)
        first, now = rules.first_answer(before), rules.first_answer(after) if shown else len(after)
        begun = first < len(before), now < len(after)
        # The model's running turn begins with its thinking in the client's request, and behind the checkpoint with an item that never had
        # any (A30): the history that it was made for went on with one that has.
        thinks = [fact.reasoning and not fact.late for fact in (before[first], after[now])] if all(begun) else [False]
        if thinks == [True, False] and isinstance(view.pieces[now], int):
            return False
        # What comes next must find the same last item, and the turn as far on, in both.
        if len(links) > checkpoint.covered and begun[0] == begun[1]:
            self._remember(links[-1], checkpoint)
        return True

    def _follows(self, checkpoint: Checkpoint, links: Sequence[bytes], client: View) -> bool:
        """Is this a history that it fits, or one that goes on from there in a way that changes nothing?"""
        nearest = max(checkpoint.covered, len(links) - NEAR)
        for at in range(len(links) - 1, nearest - 1, -1):
            if (fits := self._fitting.get(links[at])) is not None and fits() is checkpoint:
                return closed([entry.facts for entry in client.entries[at + 1 :]])
        return False

    def _remember(self, link: bytes, checkpoint: Checkpoint) -> None:
        self._fitting.put(link, ref(checkpoint))


def _shows_question(checkpoint: Checkpoint, client: View) -> bool:
    """Is the current turn's question still there? Not if the checkpoint was made when another one had followed, which is gone again: the
    client went back, or goes on in both ways."""
    entries = client.entries
    if any(entry.facts.opens_turn for entry in reversed(entries[checkpoint.covered :])):
        return True
    facts = client.facts
    at, shown = rules.current_turn(facts), {origin(piece) for piece in checkpoint.pieces}
    while at < checkpoint.covered and facts[at].opens_turn:
        if at not in shown:
            return False
        at += 1
    return True


def closed(facts: Sequence[Facts]) -> bool:
    """Do these items concern nothing that stands before them? Each result is the only one of a call among them, and nothing is cited."""
    pairing = rules.pair(facts)
    answered = pairing.call_of.values()
    return not pairing.orphans and len(set(answered)) == len(answered) and not any(fact.cites for fact in facts)
