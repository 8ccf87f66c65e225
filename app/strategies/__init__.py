"""The strategies: one file each, and this table."""

from __future__ import annotations

from app.strategies.base import Strategy
from app.strategies.sliding_window import SlidingWindow
from app.strategies.tool_result_clearing import ToolResultClearing

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (SlidingWindow(), ToolResultClearing())}
