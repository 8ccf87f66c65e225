"""Headers, metrics and log tell the same figures, on the provider's own scale: what was asked, what was sent on, and the difference."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from app.core import tokens
from tests.edge.talks import MODELS, Talk
from tests.edge.wire import compactd, configured
from tests.strict.server import StrictProvider
from tests.strict.tokens import measure

POLICY = {"strategy": "tool_result_clearing", "trigger_threshold": 3_000, "target_threshold": 1_500}
FORMS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]


def counted(text: str) -> int:
    """Another tokeniser than ours."""
    return int(tokens.count(text, "cl100k_base") * 1.4)


@pytest.mark.parametrize("form", FORMS)
async def test_all_figures_are_on_one_scale(form: str) -> None:
    provider = StrictProvider(count=counted)
    told: list[tuple[int, int]] = []
    with structlog.testing.capture_logs() as lines:
        async with (
            provider.serve() as url,
            compactd(configured(url, policies=[{"name": "low", **POLICY}])) as proxy,
        ):
            talk = Talk(form).ask("Read all of it.")
            for number in range(16):
                talk.rounds(1, text="a line of a file, and its number is 4711\n" * 40, first=number)
                answer = await proxy.ask(talk.request())
                before, after = (int(answer[f"x-compactd-tokens-{name}"]) for name in ("before", "after"))
                told.append((before, after))
                asked = provider.requests[-1]
                if number > 3:  # by then the session has shown its scale
                    assert answer["x-compactd-count-source"] == "usage"
                    assert after == pytest.approx(asked.tokens, rel=0.03)
                assert (after < before) is (answer["x-compactd-outcome"] in ("compacted", "replayed"))
            sums: dict[str, Any] = {
                stage: proxy.metric("request_tokens_sum", format=form, stage=stage) for stage in ("before", "after")
            }
            cleared = proxy.metric("tokens_cleared_total", format=form, strategy=POLICY["strategy"], model=MODELS[form])
    assert told[-1][1] < told[-1][0] / 2
    assert (sums["before"], sums["after"]) == tuple(map(sum, zip(*told, strict=True)))
    assert cleared == sums["before"] - sums["after"] > 0
    logged = [(line["tokens_before"], line["tokens_after"]) for line in lines if line["event"] == "request"]
    assert logged == told
    # The client's whole conversation, as its provider would have counted it.
    assert told[-1][0] == pytest.approx(measure(form, talk.body, counted).total, rel=0.03)
