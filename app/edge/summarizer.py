"""Asking a model for a summary. (In the making: says so honestly, and the policy's fallback is taken.)"""

from __future__ import annotations

from app.errors import SummaryFailed
from app.ports import Summary, SummaryJob


class ModelSummarizer:
    async def summarize(self, job: SummaryJob) -> Summary:  # noqa: ARG002
        raise SummaryFailed("not_available")
