"""Several strategies in a row, each on what the last one left, until the target is reached.

The default order goes from what loses least to what costs most: clear old tool results, drop what lies outside the window, summarise. A
stage that can't act, or that would lose the turn, is skipped. A later cut swallows an earlier one, so that the summariser reads the
originals and not what the stages before it left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from app.core.plan import Plan
from app.core.view import View, size_of
from app.strategies.base import Goal, Strategy
from app.strategies.sliding_window import SlidingWindow
from app.strategies.summarize import Summarize
from app.strategies.tool_result_clearing import ToolResultClearing

PLACEHOLDER_TOKENS = 30
NOTE_TOKENS = 40
_STAGES: dict[str, Strategy] = {stage.name: stage for stage in (ToolResultClearing(), SlidingWindow(), Summarize())}


class Combined:
    name: ClassVar[str] = "combined"

    def plan(self, view: View, goal: Goal) -> Plan | None:
        whole: Plan | None = None
        for stage in goal.combined_order:
            if whole and tokens_after(view, whole) <= goal.target:
                break
            step = _STAGES[stage].plan(view, goal)
            if step is None or (stage == "summarize" and not step.cuts):
                continue
            if stage == "sliding_window" and goal.summary_is_free and "summarize" in goal.combined_order:
                step = replace(step, note="summary")
            whole = replace(_merged(view, whole, step) if whole else step, strategy=self.name)
        return whole


def _merged(view: View, first: Plan, second: Plan) -> Plan:
    """Both plans in one: one cut that holds both, a summary if either wanted one, all clearings outside the cut.

    Where something pinned stands between them, there can't be one cut for both: then the larger one is made.
    """
    start, stop, note = first.start, first.stop, first.note
    if second.cuts and first.cuts:
        start, stop = min(start, second.start), max(stop, second.stop)
        note = "summary" if "summary" in (first.note, second.note) else second.note
        if any(view.entries[at].facts.pinned for at in range(start, stop)):
            larger = max(first, second, key=lambda plan: plan.stop - plan.start)
            start, stop, note = larger.start, larger.stop, larger.note
    elif second.cuts:
        start, stop, note = second.start, second.stop, second.note
    places = dict.fromkeys((*first.clear, *second.clear))
    clear = tuple(place for place in places if not start <= place.item < stop)
    whole = first.continuation or second.continuation
    return Plan(second.strategy, start, stop, note, clear, continuation=whole)


def tokens_after(view: View, plan: Plan) -> int:
    """What the items would count after this plan, by the share of bytes that goes."""
    freed = 0.0
    gone: dict[int, int] = {}
    for place in plan.clear:
        facts = view.entries[place.item].facts
        size = facts.calls[place.ordinal].size if place.inputs else facts.results[place.ordinal].size
        gone[place.item] = gone.get(place.item, 0) + size
    for item, size in gone.items():
        tokens, raw = max(0, view.entries[item].tokens), max(1, size_of(view.raws[item]))
        freed += max(0.0, tokens * min(1.0, size / raw) - PLACEHOLDER_TOKENS)
    for at in range(plan.start, plan.stop):
        if not view.entries[at].facts.stays:
            freed += max(0, view.entries[at].tokens)
    return int(view.tokens - freed) + (NOTE_TOKENS if plan.cuts else 0)
