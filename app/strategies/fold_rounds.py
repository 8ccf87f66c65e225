"""The last resort for a turn that runs on and on: fold its oldest rounds into one note right after the question.

No strategy of a policy's choice but a step after it, taken only where the request would otherwise not fit. The question stays verbatim and
first, the latest rounds and the open round stay as they are, and cuts lie only where rules allow.
"""

from __future__ import annotations

from typing import ClassVar

from app.core import rules
from app.core.plan import Plan
from app.core.view import View
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
        allowed = rules.cuts(facts)
        last = rules.open_round(facts)
        last = next((at for at in range(question, last) if facts[at].pinned), last)
        start = next((at for at in range(question, last) if allowed[at]), last)
        stops = [at for at in range(start + 1, last + 1) if allowed[at] and at < len(facts)]
        if not stops:
            return None
        left = view.tokens + int(goal.target * NOTE_SHARE)
        at = start
        for stop in stops:
            left -= sum(max(0, entry.tokens) for entry in view.entries[at:stop])
            at = stop
            if left <= goal.target:
                break
        return Plan(self.name, start, at, "summary") if says_something(facts, start, at) else None
