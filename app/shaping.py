"""What a policy takes out of every request, compacted or not: results that are too long, and what earlier turns need not show any more.

A function of the conversation alone (and of where its current turn begins), so the same history gives the same bytes on every request and
replica without anything being stored. Applied to the view after the replay, before anything is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.core import rules
from app.core.notes import cut_result, left_out_result
from app.core.plan import rebuilt
from app.core.view import Clearing, Edited, Entry, Facts, Piece, View
from app.formats.reading import result_key
from app.request import Context
from app.settings import Policy

SHORT_RESULT = 200
"""Tokens that `compact_tool_results` leaves of a result of an earlier turn."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A result that was cut to its head and tail: item of the client's history, ordinal, the address it can be read at."""

    index: int
    ordinal: int
    key: str


def shapes(policy: Policy) -> bool:
    """Does this policy shape requests at all?"""
    return policy.history_mode != "full" or policy.max_tool_result_tokens is not None


def shape(context: Context, address: Callable[[str], str], count: Callable[[str], int]) -> tuple[View, list[Cut]]:
    """The shaped view and the results that were cut by `max_tool_result_tokens`. `address` gives where a result can be read, by a key that
    depends on its content; `count` counts tokens of a text."""
    view, policy = context.view, context.ask.policy
    facts = view.facts
    request = rules.current_turn(facts)
    head = rules.head_end(facts)
    dropped = _tool_traffic(context, request) if policy.history_mode == "messages_only" else frozenset()
    shaper = _Shaper(context, address, count)
    pieces: list[Piece] = []
    for at, piece in enumerate(view.pieces):
        if at in dropped:
            continue
        pieces.append(shaper.piece(piece, view.entries[at], head <= at < request) if isinstance(piece, int) else piece)
    if pieces == view.pieces:
        return view, []
    reader = context.reader
    return rebuilt(context.client, pieces, view.covered, reader.rewrite, reader.entries), shaper.cuts


class _Shaper:
    def __init__(self, context: Context, address: Callable[[str], str], count: Callable[[str], int]) -> None:
        self._context, self._address, self._count = context, address, count
        self._mode = context.ask.policy.history_mode
        self._cap = context.ask.policy.max_tool_result_tokens
        self.cuts: list[Cut] = []

    def piece(self, index: int, entry: Entry, earlier: bool) -> Piece:
        facts = entry.facts
        if facts.pinned:
            return index
        cleared = tuple(self._results(index, facts, earlier)) if facts.results else ()
        keeps = self._context.quirk("keeps_reasoning") and facts.calls
        bare = earlier and facts.reasoning and self._mode == "no_reasoning" and not keeps and not facts.alone
        return Edited(index, cleared, bare=bare) if cleared or bare else index

    def _results(self, index: int, facts: Facts, earlier: bool) -> list[Clearing]:
        cleared = []
        texts: list[str] | None = None
        for ordinal, result in enumerate(facts.results):
            if not result.clearable:
                continue
            if earlier and self._mode == "no_tool_results":
                cleared.append(Clearing(ordinal, left_out_result(result.tool)))
                continue
            short = earlier and self._mode == "compact_tool_results"
            most = min(SHORT_RESULT if short else result.size, self._cap or result.size)
            if result.size <= most:  # a token is a byte at least
                continue
            if texts is None:
                texts = self._context.reader.results(self._context.client.raws[index])
            text = texts[ordinal] if ordinal < len(texts) else ""
            total = self._count(text)
            if total <= most:
                continue
            capped = self._cap is not None and total > self._cap
            key = result_key(text)
            cleared.append(Clearing(ordinal, cut_result(text, total, most, self._address(key) if capped else "")))
            if capped:
                self.cuts.append(Cut(index, ordinal, key))
        return cleared


def _tool_traffic(context: Context, stop: int) -> frozenset[int]:
    """Items of the finished rounds before `stop`: calls, results, and the reasoning that led to them.

    A round stays where a call was never answered, where something is pinned, or where the user said something beside the results.
    """
    view = context.view
    facts = view.facts[:stop]
    pairing = rules.pair(facts)
    rounds = _rounds(pairing)
    open_calls = {item for item, _ in pairing.unanswered}
    gone: set[int] = set()
    for items in rounds:
        spoken = any(facts[at].results and context.reader.text(view.raws[at]) for at in items)
        if not spoken and open_calls.isdisjoint(items) and not any(facts[at].pinned for at in items):
            gone |= items
    for at in sorted(gone):
        while at and facts[at - 1].alone:
            at -= 1
            gone.add(at)
    return frozenset(gone)


def _rounds(pairing: rules.Pairing) -> list[set[int]]:
    """Items that calls and results hold together, in groups."""
    group_of: dict[int, set[int]] = {}
    for (result, _), (call, _) in pairing.call_of.items():
        merged = group_of.get(result, {result}) | group_of.get(call, {call})
        for at in merged:
            group_of[at] = merged
    return list({id(group): group for group in group_of.values()}.values())
