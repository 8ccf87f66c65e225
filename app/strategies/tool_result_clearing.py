"""Put a short placeholder where old tool results (and, if asked, call arguments) stood.

Structure, ids, order and error flags stay, so the conversation keeps its shape and its story; only the bulk goes. The newest results stay
readable, and the open round, which the model has yet to answer, is never touched: neither its results nor its call arguments.
"""

from __future__ import annotations

from typing import ClassVar

from app.core import rules
from app.core.notes import is_cleared
from app.core.plan import Clear, Plan
from app.core.view import Edited, View
from app.strategies.base import Goal

WORTH_CLEARING = 160
"""Bytes: below this a placeholder would not be shorter than what it replaces."""


class ToolResultClearing:
    name: ClassVar[str] = "tool_result_clearing"

    def plan(self, view: View, goal: Goal) -> Plan | None:
        facts = view.facts
        pairing = rules.pair(facts)
        start, closed = rules.cut_start(facts), rules.open_round(facts)
        places = [
            (at, ordinal)
            for at, fact in enumerate(facts)
            for ordinal, result in enumerate(fact.results)
            if result.clearable
        ]
        kept = set(places[max(0, len(places) - goal.keep_recent_tool_results) :])
        cleared = {
            Clear(at, place.ordinal, place.inputs)
            for at, piece in enumerate(view.pieces)
            if isinstance(piece, Edited)
            for place in piece.cleared
            if is_cleared(place.text)
        }
        clear: list[Clear] = []
        for at, ordinal in places:
            result = facts[at].results[ordinal]
            old = start <= at < closed and (at, ordinal) not in kept
            if not old or facts[at].pinned or pairing.tool(facts, (at, ordinal)) in goal.exclude_tools:
                continue
            if result.size > WORTH_CLEARING:
                clear.append(Clear(at, ordinal))
            call = pairing.call_of.get((at, ordinal))
            if goal.clear_tool_inputs and call is not None:
                called = facts[call[0]].calls[call[1]]
                # Blanking a call that carries reasoning is safe here: its round is closed, and reasoning itself stays.
                if called.clearable and called.size > 2 and not facts[call[0]].pinned:
                    clear.append(Clear(*call, inputs=True))
        # What was cleared before keeps its placeholder, which names the true size and the archive.
        places_left = tuple(place for place in dict.fromkeys(clear) if place not in cleared)
        return Plan(self.name, clear=places_left) if places_left else None
