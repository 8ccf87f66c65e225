"""A compaction in the making: the plans that were carried out, one on what the other left, and the view that they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.plan import Checkpoint, Clear, Plan
from app.core.view import View
from app.ports import Summary


@dataclass(frozen=True, slots=True)
class Step:
    """A plan with its hole filled. `fell_back`: the summariser was asked in vain; `remains` are the lines that stay of a cleared result."""

    plan: Plan
    summary: Summary | None = None
    fell_back: bool = False
    remains: Mapping[Clear, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A rewritten view and how it came about. `settled_elsewhere`: another replica has made this compaction meanwhile."""

    view: View
    steps: tuple[Step, ...]
    level: int
    settled_elsewhere: bool = False
    prepared: Checkpoint | None = None
    """made ahead of time, archive and all"""

    @property
    def strategy(self) -> str:
        return self.prepared.strategy if self.prepared else self.steps[0].plan.strategy

    @property
    def summaries(self) -> tuple[Summary, ...]:
        return tuple(step.summary for step in self.steps if step.summary is not None)
