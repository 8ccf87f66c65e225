"""What would happen to a request body: the story of `app.compactor`, told without sending, storing or changing anything.

Serves `compactd preview` and `POST /compactd/api/preview`; both use the real compactor over an empty store.
"""

from __future__ import annotations

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
from app.request import Ask
from app.settings import Settings


class Preview(BaseModel):
    """`body` is the request body as JSON (or as a JSON text, then byte for byte); `path` tells its format."""

    model_config = ConfigDict(extra="forbid")
    path: str = "/v1/chat/completions"
    body: dict[str, Any] | str
    policy: str | None = None


class Silent:
    def fault(self, where: str, fault: BaseException | None) -> None:  # noqa: ARG002
        if fault is not None:
            raise fault

    def note(self, event: str, **facts: str) -> None: ...

    def summary_failed(self, reason: str, fallback: str) -> None: ...

    def warn(self, event: str, **facts: str) -> None: ...

    def archived(self, sink: str, result: str) -> None: ...

    def store_seconds(self, op: str, seconds: float) -> None: ...

    def store_error(self, op: str) -> None: ...


class NoModel:
    async def summarize(self, job: SummaryJob) -> Summary:  # noqa: ARG002
        raise SummaryFailed("offline")


async def preview(settings: Settings, request: Preview) -> dict[str, Any]:
    """Outcome, tokens and forwarded body. An impossible request gives `{"error": …}` with what was wrong."""
    raw = (
        request.body.encode("utf-8", "surrogatepass") if isinstance(request.body, str) else jsonspan.dump(request.body)
    )
    router, warnings = Router(settings), []  # type: tuple[Router, list[str]]
    registry = Registry(settings.models, warnings.append)
    route = router.route(request.path.partition("?")[0].encode(), False)
    if route is None or route.target is None:
        known = ", ".join(FORMATS)
        return {
            "error": f"{request.path} is no path whose requests carry a conversation (formats: {known}). Give --path."
        }
    form = FORMATS[route.target.format]
    try:
        opened = open_body(form, raw)
    except NotCompactable as refusal:
        return {"error": f"The body can't be looked into ({refusal.reason}); it would pass untouched."}
    name = route.target.model or opened.model
    upstream = router.by_model(route, name)
    if request.policy is not None:
        policy = settings.policy_named(request.policy)
        if policy is None:
            return {"error": f"There is no policy named {request.policy!r}."}
    else:
        policy = settings.policy_for(name, form.name, upstream, {})
        if policy is None:
            return {"error": "No policy matches; the request would pass untouched."}
    model = registry.lookup(name, upstream)
    model = model.with_quirks(settings.upstreams[upstream].quirks)
    silent = Silent()
    compactor = Compactor(Guarded(MemoryStore(), 1.0, silent), NoModel(), silent, settings.public_base)
    outcome = await compactor.decide(Ask(opened, form.name, upstream, model, policy, "preview"))
    return {
        "outcome": outcome.result, "reason": outcome.reason, "policy": policy.name, "upstream": upstream, "format": form.name,
        "strategy": outcome.strategy, "level": outcome.level, "model": model.name, "context_window": model.context_window,
        "trigger_tokens": policy.trigger_tokens(model.context_window), "tokens_before": outcome.before,
        "tokens_after": outcome.after, "count_source": outcome.source, "bytes_before": len(raw), "bytes_after": len(outcome.body),
        "warnings": warnings, "body": outcome.body.decode("utf-8", "replace"),
    }  # fmt: skip
