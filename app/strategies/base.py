"""What a strategy is: a pure decision over facts.

It sees the view and the goal and says what should leave. No model, no clock, no format, no I/O: a summary is a hole in its plan that the
compactor fills. A strategy returns None when it can't do anything worth doing; the original request then goes upstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from app.core.plan import Plan
from app.core.view import View


@dataclass(frozen=True, slots=True)
class Goal:
    """The policy's parameters as a strategy needs them; sizes in tokens, by the local count of the view's items.

    tokens   the view's items now
    target   where the items should end
    level    1 before a new question, 2 inside a tool loop
    summary_is_free   the recap needs no model: then there is no reason to drop items without one
    """

    tokens: int
    target: int
    level: int
    keep_recent_messages: int = 5
    keep_recent_turns: int | None = None
    keep_recent_tool_results: int = 3
    clear_tool_inputs: bool = False
    exclude_tools: frozenset[str] = frozenset()
    notice: bool = True
    combined_order: tuple[str, ...] = ("tool_result_clearing", "sliding_window", "summarize")
    summary_is_free: bool = False
    protect_current_turn: bool = True


class Strategy(Protocol):
    name: ClassVar[str]

    def plan(self, view: View, goal: Goal) -> Plan | None: ...
