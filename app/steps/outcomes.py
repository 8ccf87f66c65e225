"""The way out: the body that goes upstream for a view, and the outcome that says what became of the request."""

from __future__ import annotations

from app.core import jsonspan
from app.core.view import raw_bytes, size_of
from app.request import Ask, Context, Outcome, Result
from app.steps.thinking import ask_to_drop

PASSING = frozenset({"below_threshold", "nothing_before_turn", "first_request"})
"""Reasons why a request simply passes; all others decline a compaction that was due."""


def passed_uncounted(ask: Ask, about: int) -> Outcome:
    """The outcome of a request that is surely below every threshold; `about` is a guess at its tokens."""
    body = ask.opened.body
    return Outcome(
        body, "passed", "below_threshold", before=about, after=about, source="approximate", session=ask.session
    )


def outcome_of(context: Context, reason: str, new: bool = False) -> Outcome:
    """The outcome for the context's view: its bytes, or the client's own where nothing was changed or may be."""
    view, counted, session = context.view, context.counted, context.found.session
    checkpoint = context.checkpoint
    observing = context.ask.policy.mode == "observe"
    body, beta = (context.ask.opened.body, "") if observing else upstream_body(context)
    result: Result = (
        "compacted" if new else "replayed" if view.changed else "passed" if reason in PASSING else "declined"
    )
    if observing and view.changed:
        result = "observed"
    if result in ("replayed", "observed") and reason == "below_threshold":
        reason = "checkpoint" if view.covered else "standing_rules"
    return Outcome(
        body, result, "store_unavailable" if context.store_failed else reason,
        strategy=checkpoint.strategy if checkpoint else "",
        level=checkpoint.level if checkpoint else 0,
        before=counted.before,
        after=counted.of(view) if new else counted.now if view.changed else counted.before,
        source=counted.source,
        session=context.session,
        compactions=(session.compactions if session else 0) + (new and not observing),
        archive=checkpoint.archive if checkpoint else "",
        beta=beta,
        context=context,
    )  # fmt: skip


def upstream_body(context: Context) -> tuple[bytes, str]:
    """The client's body with the context's view in the place of its history, and what the beta header has to say for its sake."""
    view, body = context.view, context.ask.opened.body
    if not view.changed:
        return body, ""
    pieces = [piece if isinstance(piece, int) else raw_bytes(view.raws[at]) for at, piece in enumerate(view.pieces)]
    sizes = [size_of(raw) for raw in context.client.raws]
    return ask_to_drop(context, jsonspan.splice(body, context.reader.format.history, pieces, sizes))
