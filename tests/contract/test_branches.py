"""One prefix, several continuations: a checkpoint is found by its prefix alone, so what comes behind it may be another story.

A tool call without an answer, long ago, leaves with its group. The same prefix with the answer right behind it must not be given that cut:
the answer would stand without its call (A4, C2, R2, G4).
"""

from __future__ import annotations

import pytest

from tests.edge.talks import MODELS, Talk, compacted
from tests.edge.wire import compactd, configured
from tests.strict.server import StrictProvider

STRATEGIES = [
    {"strategy": "sliding_window", "keep_recent_messages": 1},
    {"strategy": "summarize", "summary_model": "extractive", "keep_recent_messages": 1},
    {"strategy": "combined", "summary_model": "extractive", "keep_recent_messages": 1, "keep_recent_tool_results": 0},
]
LOW = {"name": "low", "trigger_threshold": 2_000, "target_threshold": 500, "clear_at_least": 0}


def prefix(form: str) -> Talk:
    """Ends with a call that is yet to be answered."""
    return Talk(form).ask("Read all of it.").rounds(10).call("call_10")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("form", MODELS)
@pytest.mark.parametrize("policy", STRATEGIES, ids=lambda policy: policy["strategy"])
async def test_answer_that_one_branch_has_and_the_other_has_not(form: str, policy: dict[str, object]) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url, policies=[LOW | policy]), patience=20) as proxy:
        broken = prefix(form).ask("Never mind. What do you know?")
        for _ in range(2):
            await proxy.ask(broken.request())
        whole = prefix(form).result("call_10", "the end").say("Done.").ask("What do you know?")
        asked = len(provider.requests)
        for _ in range(3):
            assert (await proxy.ask(whole.request())).status == 200
        seen = provider.requests[asked:]
        assert [one.violations for one in seen] == [[]] * 3
        assert compacted(seen[-1].body)
        assert seen[1].raw == seen[2].raw
