"""Which part of a conversation a cut may take: the longest stretch before the kept part that holds nothing pinned.

A pinned item stays with its neighbours, so it splits what lies before the kept part in two; one cut takes one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core import rules
from app.core.view import Facts
from app.strategies.base import Goal


def kept_from(facts: Sequence[Facts], goal: Goal) -> int:
    """Where the part begins that stays verbatim: the current turn, or the last N turns; with fewer than N turns everything stays."""
    request = rules.current_turn(facts)
    if not goal.keep_recent_turns:
        return request
    asks = [fact.opens_turn and not fact.note for fact in facts]
    # Requests that follow each other without an answer are one.
    openings = [at for at in range(min(request + 1, len(facts))) if asks[at] and not (at and asks[at - 1])]
    return openings[-goal.keep_recent_turns] if len(openings) >= goal.keep_recent_turns else rules.cut_start(facts)


def longest(facts: Sequence[Facts], stop: int) -> tuple[int, int]:
    """(start, stop) of the longest stretch after the standing instructions and before `stop` that a cut may take; equal: there is none."""
    allowed = rules.cuts(facts)
    best = (stop, stop)
    start = rules.cut_start(facts)
    for end in [*(at for at in range(start, stop) if facts[at].pinned), stop]:
        first = next((at for at in range(start, end + 1) if allowed[at]), end)
        last = next((at for at in range(end, first - 1, -1) if allowed[at]), first)
        if last - first > best[1] - best[0]:
            best = (first, last)
        start = end + 1
    return best


def says_something(facts: Sequence[Facts], start: int, stop: int) -> bool:
    """Is there anything in this stretch besides what compactd itself wrote and what stays anyway?"""
    return any(not facts[at].note and not facts[at].stays for at in range(start, stop))
