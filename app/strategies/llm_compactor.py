"""The classic compactor, written as anybody would write one against `CompactionContext`: a threshold, and the last N turns verbatim.

Not in the table of strategies: it is reached like code of the operator's own, as `app.strategies.llm_compactor:llm_compactor`, or as an
instance with other figures in a module of theirs. What it summarises is exactly what it drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.own import CompactionContext, CompactionPlan


class LlmCompactor:
    """Acts from `threshold_tokens` input tokens on, reported or counted; keeps the last `keep_turns` turns."""

    def __init__(self, threshold_tokens: int = 60_000, keep_turns: int = 2) -> None:
        if threshold_tokens < 1 or keep_turns < 1:
            raise ValueError("threshold_tokens and keep_turns must be 1 or more")
        self.threshold_tokens = threshold_tokens
        self.keep_turns = keep_turns

    async def __call__(self, context: CompactionContext) -> CompactionPlan | None:
        reported = context.last_usage.input_tokens if context.last_usage else 0
        if max(reported, context.tokens) < self.threshold_tokens:
            return None
        split = context.split_at_user_turn(self.keep_turns)
        if not split.older:
            return None
        return split.plan(summary=await context.summarize(context.render(split.older)))


llm_compactor = LlmCompactor()
"""With the defaults, for `strategy: app.strategies.llm_compactor:llm_compactor`."""
