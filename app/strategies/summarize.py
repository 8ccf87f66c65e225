"""Put one recap in the place of everything before the current turn (or before the last N turns).

Before a run the pending question follows the recap verbatim; inside a tool loop the whole current turn does. A prefix that is nothing but
an earlier recap or notice is never summarised again: then old tool results inside the current turn are cleared instead, and the plan says
so. What the recap says is a hole in the plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from app.core import rules
from app.core.plan import Plan
from app.core.view import Facts, View
from app.strategies.base import Goal
from app.strategies.stretch import kept_from, longest, says_something
from app.strategies.tool_result_clearing import ToolResultClearing


class Summarize:
    name: ClassVar[str] = "summarize"

    def plan(self, view: View, goal: Goal) -> Plan | None:
        facts = view.facts
        if not goal.protect_current_turn and goal.level == 2:
            return self._everything(facts)
        start, stop = longest(facts, kept_from(facts, goal))
        if says_something(facts, start, stop):
            return Plan(self.name, start, stop, "summary")
        clearing = ToolResultClearing().plan(view, goal)
        return replace(clearing, because="nothing_to_summarize") if clearing else None

    def _everything(self, facts: list[Facts]) -> Plan | None:
        """The running turn too: its tool tail goes into the recap, and the conversation ends on a continuation."""
        start = rules.cut_start(facts)
        whole = not any(fact.pinned for fact in facts[start:]) and says_something(facts, start, len(facts))
        return Plan(self.name, start, len(facts), "summary", continuation=True) if whole else None
