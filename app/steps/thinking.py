"""Reasoning that is bound to the prefix it was made behind (Claude from 5.1 on; rules AB1 to AB5).

A compaction changes that prefix, so signed blocks kept behind it would be refused. Either the provider is asked to drop them, or they are
taken out here, or the plan is declined. Blocks that were made behind the compacted prefix are valid behind it, since that is replayed byte
for byte: only those made before are at risk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from app.core import jsonspan, rules
from app.core.plan import Plan
from app.core.view import View
from app.errors import NotCompactable
from app.formats.base import Binding
from app.ports import Recorder
from app.request import Context

QUIRK = "binds_thinking"


def fit_reasoning(context: Context, view: View, plan: Plan, recorder: Recorder) -> Plan:
    """The plan with what it must do about bound reasoning. Raises NotCompactable("thinking_bound") where it can't be made to fit."""
    if not context.quirk(QUIRK):
        return plan
    changed = min([plan.start] * plan.cuts + [place.item for place in plan.clear], default=len(view))
    given_back = plan.given_back
    kept = [
        at
        for at, entry in enumerate(view.entries)
        if at >= changed and entry.facts.reasoning and (at in given_back or not plan.start <= at < plan.stop)
    ]
    if not kept:
        return plan
    mode, way = context.ask.policy.thinking_binding, _binding(context).way
    if mode == "error" or way == "forbidden":
        raise NotCompactable("thinking_bound")
    if mode == "drop_block" and way in ("ask", "allowed"):
        return plan
    # The running round's reasoning must come back as it is (A28).
    if kept[-1] >= rules.open_round(view.facts):
        raise NotCompactable("thinking_bound")
    recorder.warn(
        "reasoning_removed", strategy=plan.strategy, because=mode if mode == "strip" else "the request can't ask for it"
    )
    return replace(plan, bare=tuple(kept))


def earlier_reasoning(context: Context) -> Literal["", "strip", "keep"]:
    """What a standing rule that changes earlier turns has to do about the reasoning in them: nothing, since it is bound to nothing or the
    provider is asked to drop it; take it out; or leave those turns alone."""
    if not context.quirk(QUIRK):
        return ""
    mode, way = context.ask.policy.thinking_binding, _binding(context).way
    if mode == "error" or way == "forbidden":
        return "keep"
    return "" if mode == "drop_block" and way in ("ask", "allowed") else "strip"


def ask_to_drop(context: Context, body: bytes) -> tuple[bytes, str]:
    """A rewritten body that asks the provider to drop what does not fit, and the beta value that the request's header then needs."""
    if not context.quirk(QUIRK) or context.ask.policy.thinking_binding != "drop_block":
        return body, ""
    binding = _binding(context)
    return (jsonspan.edit(body, binding.edits), binding.beta) if binding.way == "ask" else (body, "")


def _binding(context: Context) -> Binding:
    return context.reader.format.binding(context.ask.opened.fields)
