"""A strategy of the operator's own: what it is handed, what it may answer, and how its answer becomes a plan."""

from __future__ import annotations

from app.own.contract import CompactionContext, CompactionPlan, CompactionSplit, CompactionUsage

__all__ = ["CompactionContext", "CompactionPlan", "CompactionSplit", "CompactionUsage"]
