"""Whether a request gets in: credentials, the fields and headers that every call needs, the rules of its format.

What the body alone can't show is added here: betas (they are in the headers), bound signatures, and which Responses item
came with which reasoning, which the provider knows because it gave them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from . import VIOLATIONS, anthropic_betas, binding
from .routes import Route
from .transport import Seen
from .violation import Violation


class Admission:
    def __init__(self) -> None:
        self.reasoning = binding.Reasoning()

    def violations(
        self, seen: Seen, path: Route, body: dict[str, Any], quirks: frozenset[str], binds_thinking: bool
    ) -> Iterator[Violation]:
        """All that is wrong with a request. Notes on it how many thinking blocks were dropped."""
        form = seen.form
        yield from _required(seen, path, body)
        if form == "openai-responses":
            check = VIOLATIONS[form](body, model=seen.model, quirks=quirks, came_with=self.reasoning.came_with)
            yield from [*check, *self.reasoning.check(body)]
            return
        yield from VIOLATIONS[form](body, model=seen.model, quirks=quirks)
        if form == "anthropic-messages":
            betas = anthropic_betas.betas(seen.headers)
            yield from anthropic_betas.violations(body, betas)
            if binds_thinking:
                bound, seen.dropped_thinking = binding.check(body, betas)
                yield from bound


def credential(seen: Seen) -> str:
    """The key that a request came with; empty if none."""
    bearer = seen.header("authorization").removeprefix("Bearer ")
    keys = [bearer, *(seen.header(name) for name in ("x-api-key", "x-goog-api-key", "api-key"))]
    return next((key for key in keys if key), "") or parse_qs(seen.query).get("key", [""])[0]


def _required(seen: Seen, path: Route, body: dict[str, Any]) -> Iterator[Violation]:
    """Fields and headers without which no call is possible."""
    if seen.form == "anthropic-messages":
        if not seen.header("anthropic-version"):
            yield Violation("F1", "", "anthropic-version: header is required")
        counting = path.action == "count"
        for key in ("model",) if counting else ("model", "max_tokens"):
            if not body.get(key):
                yield Violation("T1", key, f"{key}: Field required")
        for key in ("max_tokens", "stream") if counting else ():
            if key in body:
                yield Violation("T1", key, f"{key}: Extra inputs are not permitted")
    elif seen.form != "gemini" and not seen.model:
        yield Violation("Q21", "model", "you must provide a model parameter")
    elif path.deployment and "api-version" not in parse_qs(seen.query):
        yield Violation("Q21", "", "Missing required query parameter: 'api-version'.")
