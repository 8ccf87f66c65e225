"""When a request is due for a compaction, and why it may not have one all the same."""

from __future__ import annotations

import time

from app.core import rules
from app.request import Context
from app.settings import Policy

MAX_REJECTIONS = 3
"""After so many refusals by the provider, a session gets no new plan, and its requests no shape."""


def least_tokens(policy: Policy, window: int) -> int:
    """Tokens below which nothing is ever done, for a context window of so many."""
    thresholds = (policy.trigger_tokens(window), policy.idle_tokens(window), policy.prepare_tokens(window))
    return min(tokens for tokens in thresholds if tokens is not None)


def trigger_tokens(context: Context) -> int:
    """Tokens from which on this request is to be compacted; lower where the provider's cache has gone cold anyway."""
    policy, window, session = context.ask.policy, context.ask.model.context_window, context.found.session
    idle = policy.idle_tokens(window)
    rested = session is not None and time.time() - session.updated > policy.cache_ttl
    return idle if idle is not None and rested else policy.trigger_tokens(window)


def rejected_too_often(context: Context) -> bool:
    """Has a provider refused what we made of this session's requests too often?"""
    session = context.found.session
    return session is not None and session.rejections >= MAX_REJECTIONS


def ineligible(context: Context) -> str:
    """Why no new compaction may be made, "" if it may."""
    policy, session, facts = context.ask.policy, context.found.session, context.view.facts
    if len(context.client) < policy.min_messages_before_compaction:
        return "too_few_messages"
    if session is None and not policy.compact_first_request and not context.store_failed:
        return "first_request"
    most = policy.max_compactions_per_session
    if most is not None and (session.compactions if session else 0) >= most:
        return "max_compactions"
    if rejected_too_often(context):
        return "rejected_before"
    request, level = rules.current_turn(facts), rules.level(facts)
    # Where the running turn may be folded, its request may have become part of a recap.
    if request >= len(facts) and (policy.protect_current_turn or level != 2):
        return "no_request"
    if level == 1 and request <= rules.cut_start(facts):
        return "nothing_before_turn"
    return ""
