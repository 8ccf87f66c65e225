"""What earlier turns can lose under a policy's standing rules, and what has to stay with it: their reasoning, their tool traffic.

Earlier is what stands between the standing instructions and the current turn's request. An item that a provider would miss stays, and so
does what it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

import xxhash

from app.core import jsonspan, rules
from app.errors import NotCompactable
from app.request import Context

Known = Callable[[bytes, Callable[[], bool]], bool]
"""Remembers the answer to a question about one item, by a key that names both."""


class EarlierTurns:
    """Those of the context's view; items are named by their positions in it. `pairing`: None where no tool traffic is asked about."""

    def __init__(self, context: Context, pairing: rules.Pairing | None, known: Known) -> None:
        self._context, self._pairing, self._known = context, pairing, known
        self._view, self._facts = context.view, context.view.facts
        request = rules.current_turn(self._facts)
        self._start = rules.head_end(self._facts)
        # Without a request there is no telling what is earlier.
        self._stop = request if request < len(self._facts) else self._start

    def __contains__(self, at: int) -> bool:
        return self._start <= at < self._stop

    def tool(self, at: int, ordinal: int) -> str:
        """Name of the tool behind a result, "" if unknown."""
        return self._pairing.tool(self._facts, (at, ordinal)) if self._pairing else ""

    # Reasoning

    def reasoning(self) -> set[int]:
        """Items of earlier turns that lose their reasoning and stay."""
        keeps = self._context.quirk("keeps_reasoning")
        found = set()
        for at in range(self._start, self._stop):
            facts, entry = self._facts[at], self._view.entries[at]
            if (facts.reasoning or entry.thinks) and not facts.alone and not (keeps and facts.calls):
                found.add(at)
        return found

    def lone_reasoning(self) -> set[int]:
        """Items of nothing but reasoning, in earlier turns, that what they led to can be without."""
        keeps = self._context.quirk("keeps_reasoning")
        gone: set[int] = set()
        at = self._start
        while at < self._stop:
            first = at
            while at < self._stop and self._facts[at].alone and not self._facts[at].pinned:
                at += 1
            if at == first:
                at += 1
                continue
            led_to = self._led_to(at)
            calls = any(self._facts[after].calls for after in led_to)
            if led_to and not (keeps and calls) and all(map(self._is_free, led_to)):
                gone |= set(range(first, at))
        return gone

    def _led_to(self, at: int) -> list[int]:
        """What the model went on to say in one answer, from this item on up to its next reasoning."""
        found = []
        while at < len(self._facts) and self._facts[at].role == "assistant" and not self._facts[at].alone:
            found.append(at)
            at += 1
        return found

    def _answers(self) -> list[tuple[int, int]]:
        """Of each item: where the answer ends that the model goes on with there, and how many items on the way can't be told apart from
        their reasoning. In one pass: an answer may have hundreds of calls."""
        answers: list[tuple[int, int]] = []
        end, bound = len(self._facts), 0
        for at in range(len(self._facts) - 1, -1, -1):
            if self._facts[at].role != "assistant" or self._facts[at].alone:
                end, bound = at, 0
            else:
                bound += not self._is_free(at)
            answers.append((end, bound))
        return answers[::-1]

    def freed(self, gone: set[int]) -> set[int]:
        """Items that came with reasoning that goes, and must not name it any more (R12)."""
        lone = [
            at for at in gone if self._facts[at].alone and not (at + 1 < len(self._facts) and self._facts[at + 1].alone)
        ]
        return {after for at in lone for after in self._led_to(at + 1)} - gone

    def _is_free(self, at: int) -> bool:
        """Can this item be told apart from the reasoning that it came with?"""
        if self._facts[at].pinned:
            return False
        raw, form = self._view.raws[at], self._context.reader.format

        def free() -> bool:
            try:
                form.without_reasoning(jsonspan.value(raw))
            except NotCompactable:
                return False
            return True

        return self._asked(b"free", at, free)

    # Tool traffic

    def traffic(self) -> tuple[set[int], set[int]]:
        """Items of finished rounds of earlier turns (calls, results, the reasoning that led to them), and those of them that stay without
        their calls, for what they say.

        A round stays as it is where a call was never answered, where something is pinned, and where the user said something beside it.
        """
        assert self._pairing is not None
        facts = self._facts
        open_calls = {item for item, _ in self._pairing.unanswered}
        excluded = self._context.ask.policy.exclude_tools
        answers = self._answers()
        gone: set[int] = set()
        mute: set[int] = set()
        for items in _rounds(self._pairing):
            tools = {self.tool(at, ordinal) for at in items for ordinal in range(len(facts[at].results))}
            stays = any(at not in self or facts[at].pinned for at in items)
            if stays or not open_calls.isdisjoint(items) or not tools.isdisjoint(excluded):
                continue
            spoken = {at for at in items if self._says_more(at)}
            # What the model said in the same answer is told apart from the reasoning that goes.
            end, bound = answers[min(items)]
            bound -= sum(not self._is_free(at) for at in items if at < end)
            if any(facts[at].results for at in spoken) or bound:
                continue
            heard = {at for at in spoken if self._can_be_mute(at)}
            mute |= heard
            gone |= items - heard
        for at in sorted(gone):
            while at > self._start and facts[at - 1].alone and not facts[at - 1].pinned:
                at -= 1
                gone.add(at)
        return gone, mute

    def _says_more(self, at: int) -> bool:
        """Is there a text in this item besides calls and results?"""
        raw, reader = self._view.raws[at], self._context.reader
        return self._asked(b"text", at, lambda: bool(reader.text(raw)))

    def _can_be_mute(self, at: int) -> bool:
        """May this item stand without its calls, next to the model's next one?"""
        raw, form = self._view.raws[at], self._context.reader.format
        alternating = self._context.quirk("alternating_roles")
        return not alternating and self._asked(b"mute", at, lambda: form.without_calls(jsonspan.value(raw)) is not None)

    def _asked(self, what: bytes, at: int, work: Callable[[], bool]) -> bool:
        digest = xxhash.xxh3_128_digest(self._view.raws[at])
        return self._known(what + self._context.ask.format.encode() + digest, work)


def _rounds(pairing: rules.Pairing) -> list[set[int]]:
    """Items that calls and results hold together, in groups."""
    group_of: dict[int, set[int]] = {}
    for (result, _), (call, _) in pairing.call_of.items():
        less, more = sorted((group_of.get(result, {result}), group_of.get(call, {call})), key=len)
        if less is more:
            continue
        more |= less
        for at in less | {result, call}:  # the smaller into the larger: one call may have thousands of results
            group_of[at] = more
    return list({id(group): group for group in group_of.values()}.values())
