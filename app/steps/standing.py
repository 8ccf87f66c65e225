"""The policy's standing rules, carried out: what `shaping` says is taken out of the request, and what was cut is archived."""

from __future__ import annotations

from dataclasses import replace

from app.core import tokens
from app.core.view import View, size_of
from app.request import Context
from app.steps import counting
from app.steps.archiving import Archivist
from app.steps.eligibility import rejected_too_often
from app.steps.shaping import Shaping, shapes
from app.threads import in_thread


class StandingRules:
    def __init__(self, archivist: Archivist) -> None:
        self._archivist = archivist
        self._shaping = Shaping()

    async def apply(self, context: Context) -> None:
        """Shape the context's view. Not for a session whose shaped requests were refused too often."""
        if not shapes(context.ask.policy) or rejected_too_often(context):
            return
        view, encoding = context.view, context.ask.model.encoding
        work = (
            context, lambda key: self._archivist.result_address(context, key), lambda text: tokens.count(text, encoding)
        )  # fmt: skip
        new = sum(size_of(raw) for raw, entry in zip(view.raws, view.entries, strict=True) if entry.tokens < 0)
        if new > counting.COUNT_INLINE:
            shaped, cuts = await in_thread(new, self._shaping.shape, *work)
        else:
            shaped, cuts = self._shaping.shape(*work)
        context.unshaped, context.view = view, shaped
        await self._archivist.archive_results(context, cuts)

    async def applied(self, context: Context, view: View) -> View:
        """A view that a checkpoint has just given, shaped and counted; the context stays as it is."""
        replayed = replace(context, view=view)
        await self.apply(replayed)
        await counting.fill(context.reader, replayed.view)
        return replayed.view
