"""What a sound configuration comes to, in a few lines: what is allowed but rarely meant shows there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.settings import EXTRACTIVE, Policy, Settings, Upstream, describe
from app.steps.rewriting import MODELLESS


def outline(settings: Settings) -> Iterator[str]:
    """Store, upstreams and policies, a line each, secrets masked; what belongs to the line before is set in."""
    apart = settings.listen.workers > 1 and settings.store.url.startswith("memory:")
    yield f"store: {describe(settings)['store']['url']}{' (each worker has one of its own)' if apart else ''}"
    for name, upstream in settings.upstreams.items():
        yield f"upstream {name}: {upstream.base_url} ({', '.join(upstream.formats)})"
    for policy in settings.policies:
        trigger, target = map(_threshold, (policy.trigger_threshold, policy.target_threshold))
        if isinstance(policy.trigger_threshold, int) and isinstance(policy.target_threshold, float):
            target += " (or of the trigger, where that is less)"
        yield f"policy {policy.name}: {policy.strategy}, mode {policy.mode}, from {trigger} down to {target}"
        if policy.strategy not in MODELLESS:
            yield f"  summaries: {_writer(policy, settings.upstreams)}"
    if not settings.policies:
        yield "no policy: every request passes untouched"


def _writer(policy: Policy, upstreams: Mapping[str, Upstream]) -> str:
    """Who writes its summaries. A word before a colon that is no upstream's name is part of the model's: only here that shows."""
    name, model = policy.summary_target(upstreams)
    if policy.summary_model == EXTRACTIVE:
        return "without a model"
    if name is None:
        return f"{model} of the request's own upstream" if model else "the request's own model"
    keyless = "" if upstreams[name].brings_credentials else ", for requests that go there (it has no api_key)"
    return f"{model} of upstream {name}{keyless}"


def _threshold(value: float) -> str:
    return f"{value:,} tokens" if isinstance(value, int) else f"{value:.0%} of the window"
