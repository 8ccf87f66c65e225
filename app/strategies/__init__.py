"""The strategies: one file each, and this table."""

from __future__ import annotations

from app.strategies.base import Strategy
from app.strategies.combined import Combined
from app.strategies.sliding_window import SlidingWindow
from app.strategies.summarize import Summarize
from app.strategies.tool_result_clearing import ToolResultClearing

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (Summarize(), SlidingWindow(), ToolResultClearing(), Combined())
}
