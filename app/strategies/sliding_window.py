"""Keep the last N items (or turns), drop what stands before them, and say so in a note.

It guarantees validity, not size: a start inside a tool exchange walks forward past it; if that runs off the end, backward to the latest
item that is neither call nor result. In a tool loop, and before a new question alike, the window never opens after the current turn's
request: the question is always there.
"""

from __future__ import annotations

from typing import ClassVar

from app.core import rules
from app.core.plan import Plan
from app.core.view import Facts, View
from app.strategies.base import Goal
from app.strategies.stretch import kept_from, longest, says_something


class SlidingWindow:
    name: ClassVar[str] = "sliding_window"

    def plan(self, view: View, goal: Goal) -> Plan | None:
        facts = view.facts
        opening = self._opening(facts, goal)
        if opening is None:
            return None
        start, stop = longest(facts, opening)
        if not says_something(facts, start, stop) or not (goal.notice or facts[stop].opens_turn):
            return None
        return Plan(self.name, start, stop, "omitted" if goal.notice else "")

    def _opening(self, facts: list[Facts], goal: Goal) -> int | None:
        """Where the window opens; None: nowhere that is allowed."""
        size = len(facts)
        allowed = rules.cuts(facts)
        request = rules.current_turn(facts)
        wanted = kept_from(facts, goal) if goal.keep_recent_turns else size - goal.keep_recent_messages
        wanted = max(0, min(wanted, request, size - 1))

        def fits(at: int) -> bool:
            # Without a notice the history must go on beginning with the user (A15, G2).
            return allowed[at] and (goal.notice or facts[at].opens_turn)

        forward = next((at for at in range(wanted, min(request, size - 1) + 1) if fits(at)), None)
        if forward is not None:
            return forward
        plain = (at for at in range(wanted, -1, -1) if not facts[at].calls and not facts[at].results and fits(at))
        return next(plain, None)
