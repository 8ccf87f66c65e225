"""What would happen to a request body: the story of `app.compactor`, told without sending, storing or changing anything.

Serves `compactd preview` and `POST /compactd/api/preview`; both use the real compactor over an empty store.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from app.compactor import Compactor
from app.core import jsonspan
from app.edge.routing import Router
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.errors import NotCompactable, SummaryFailed
from app.formats import FORMATS
from app.formats.reading import open_body
from app.ports import Summary, SummaryJob
from app.registry import Registry
from app.request import Ask, Outcome
from app.settings import Settings
from app.settings.values import nearest

OFFLINE = "offline"
UNNAMED = "gemini"
"""Stands in a guessed path for a model that only the true one tells."""
MODEL_IN_PATH = (
    "A Gemini body doesn't name its model, so its window is not known: give --path /v1beta/models/MODEL:generateContent"
)


class Preview(BaseModel):
    """`body` is the request body as JSON (or as a JSON text, then byte for byte); `path` tells its format, else the body's keys do."""

    model_config = ConfigDict(extra="forbid")
    path: str = ""
    body: dict[str, Any] | str
    policy: str | None = None


class Hearer:
    """What the log would have said becomes a warning; faults are raised."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings

    def fault(self, where: str, fault: BaseException | None) -> None:  # noqa: ARG002
        if fault is not None:
            raise fault

    def note(self, event: str, **facts: str) -> None:
        self._warnings.append(f"{event}: {'; '.join(facts.values())}")

    def warn(self, event: str, **facts: str) -> None:
        self.note(event, **facts)

    def summary_failed(self, reason: str, fallback: str) -> None:
        why = "no model is asked here" if reason == OFFLINE else f"the summary failed ({reason})"
        self._warnings.append(f"{why[:1].upper()}{why[1:]}: the policy's `summary_fallback` was taken, {fallback}.")

    def archived(self, sink: str, result: str) -> None: ...

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...


class OfflineSummarizer:
    async def summarize(self, job: SummaryJob) -> Summary:  # noqa: ARG002
        raise SummaryFailed(OFFLINE)


class Trial:
    """The real compactor over an empty store of its own; what it has compacted once it replays, as the proxy would."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._router = Router(settings)
        self.warnings: list[str] = []
        self._registry = Registry(settings.models, self.warnings.append)
        hearer = Hearer(self.warnings)
        self._compactor = Compactor(
            Guarded(MemoryStore(), 1.0, hearer), OfflineSummarizer(), hearer, settings.public_base
        )

    def ask(self, path: str, raw: bytes, policy: str | None) -> Ask | str:
        """The request as the edge would hand it over, or why it would not be looked at."""
        route = self._router.route(path.partition("?")[0].encode(), False)
        if route.target is None:
            known = ", ".join(FORMATS)
            return f"{path} is no path whose requests carry a conversation (formats: {known}). Give --path."
        form = FORMATS[route.target.format]
        try:
            opened = open_body(form, raw)
        except NotCompactable as refusal:
            return f"The body can't be looked into ({refusal.reason}); it would pass untouched."
        name = opened.model or route.target.model
        upstream = self._router.by_model(route, name)
        chosen = (
            self._settings.policy_named(policy) if policy else self._settings.policy_for(name, form.name, upstream, {})
        )
        if chosen is None:
            if not policy:
                return "No policy matches; the request would pass untouched."
            hint = nearest(policy, [known.name for known in self._settings.policies])
            return f"There is no policy named {policy!r}{hint or '.'}"
        told = len(self.warnings)
        model = self._registry.lookup(name, upstream).with_quirks(self._settings.upstreams[upstream].quirks)
        if name == UNNAMED:
            self.warnings[told:] = [MODEL_IN_PATH]
        return Ask(opened, form.name, upstream, model, chosen, "preview")

    async def decide(self, ask: Ask) -> Outcome:
        outcome = await self._compactor.decide(ask)
        await self._compactor.settle(outcome, 0)
        return outcome


async def preview(settings: Settings, request: Preview) -> dict[str, Any]:
    """Outcome, tokens and forwarded body. An impossible request gives `{"error": …}` with what was wrong."""
    raw = (
        request.body.encode("utf-8", "surrogatepass") if isinstance(request.body, str) else jsonspan.dump(request.body)
    )
    trial = Trial(settings)
    ask = trial.ask(request.path or guessed_path(raw), raw, request.policy)
    if isinstance(ask, str):
        return {"error": ask}
    policy, model, outcome = ask.policy, ask.model, await trial.decide(ask)
    return {
        "outcome": outcome.result, "reason": outcome.reason, "policy": policy.name, "upstream": ask.upstream, "format": ask.format,
        "strategy": outcome.strategy, "level": outcome.level, "model": model.name, "context_window": model.context_window,
        "trigger_tokens": policy.trigger_tokens(model.context_window), "tokens_before": outcome.before,
        "tokens_after": outcome.after, "count_source": outcome.source, "bytes_before": len(raw), "bytes_after": len(outcome.body),
        "warnings": list(dict.fromkeys(trial.warnings)), "body": outcome.body.decode("utf-8", "replace"),
    }  # fmt: skip


def guessed_path(text: str | bytes) -> str:
    """The path of a body that does not say which format it has: by its keys, where they tell."""
    try:
        keys: Any = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, dict):
        return "/v1/chat/completions"
    if "contents" in keys:
        return f"/v1beta/models/{UNNAMED}:generateContent"
    if "input" in keys:
        return "/v1/responses"
    messages = keys.get("messages")
    contents = (
        [message.get("content") for message in messages or () if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )
    blocks = [
        block for content in contents if isinstance(content, list) for block in content if isinstance(block, dict)
    ]
    own = {"tool_use", "tool_result", "thinking"}
    anthropic = (
        "system" in keys or "anthropic_version" in keys or any(str(block.get("type")) in own for block in blocks)
    )
    return "/v1/messages" if anthropic else "/v1/chat/completions"
