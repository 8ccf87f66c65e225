"""The last resort for a turn that runs on and on: fold its oldest rounds into one note right after the question.

No strategy of a policy's choice but a step after it, taken only where the request would otherwise not fit. The question stays verbatim and
first, the latest rounds and the open round stay as they are, and cuts lie only where rules allow. Rounds whose results were cleared go
even where the target is reached without them: nothing of them could be read any more.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from app.core import rules
from app.core.notes import is_cleared
from app.core.plan import Plan
from app.core.view import Edited, View
from app.strategies.base import Goal
from app.strategies.stretch import says_something

NOTE_SHARE = 0.1
"""Of the target: what the note about the folded rounds may be expected to take."""


class FoldRounds:
    name: ClassVar[str] = "fold_rounds"

    def plan(self, view: View, goal: Goal) -> Plan | None:
        facts = view.facts
        question = rules.current_turn(facts)
        while question < len(facts) and facts[question].opens_turn and not facts[question].note:
            question += 1
        question = max(question, rules.cut_start(facts))
        allowed = rules.cuts(facts)
        last = rules.open_round(facts)
        last = next((at for at in range(question, last) if facts[at].pinned), last)
        start = next((at for at in range(question, last) if allowed[at]), last)
        stops = [at for at in range(start + 1, last + 1) if allowed[at] and at < len(facts)]
        if not stops:
            return None
        left = view.tokens + int(goal.target * NOTE_SHARE)
        end = start
        for at, stop in pairwise([start, *stops]):
            if left <= goal.target and not _all_cleared(view, at, stop):
                break
            left -= sum(max(0, entry.tokens) for entry in view.entries[at:stop])
            end = stop
        return Plan(self.name, start, end, "summary") if says_something(facts, start, end) else None


def _all_cleared(view: View, start: int, stop: int) -> bool:
    """Was every result of these items cleared? Then their lines in the note say more than they do, and take less room. One that a standing
    rule cut to its head and tail was not: it can be read."""
    cleared = {
        (at, place.ordinal)
        for at in range(start, stop)
        if isinstance(piece := view.pieces[at], Edited)
        for place in piece.cleared
        if not place.inputs and is_cleared(place.text)
    }
    results = sum(len(view.entries[at].facts.results) for at in range(start, stop))
    return 0 < results == len(cleared)
