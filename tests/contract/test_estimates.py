"""What compactd says a request has, held against what its provider reports: after the first answer two per cent off at most (p95).

The provider is the strict one's own count with another tokeniser, a factor on top, and more for each item and for tools than we know of.
The conversations are scripted, a tenant's one after the other, each short: the longer one gets, the better it is known.
`bench/estimates.py` measures the same on recorded conversations.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from app.core import rules, tokens
from app.formats import FORMATS
from app.settings import Policy
from tests.contract.scripts import WRITERS, Call, Round, Script, Turn, text
from tests.edge.talks import Talk as Written
from tests.story import House, Talk, policy
from tests.strict.tokens import measure

PER_ITEM, FOR_TOOLS = 3, 346
COUNTED = policy(
    trigger_threshold=1, target_threshold=1, min_messages_before_compaction=1_000_000, compact_first_request=False
)
SHORTENED = policy(
    strategy="tool_result_clearing", trigger_threshold=4_000, target_threshold=2_000, compact_first_request=False
)


def reading(seed: int, rounds: int = 16) -> Script:
    """One question, and results of any length until it can be answered."""
    random = Random(seed)
    calls = (Call(f"c{at}", "read", random.choice([120, 300, 900, 2_000, 5_000])) for at in range(rounds))
    return Script((Turn(text(random, "Read all of it."), tuple(Round((call,)) for call in calls)),), signs=False)


def reported(form: str, body: bytes, ratio: float) -> int:
    size = measure(form, json.loads(body), lambda text: int(tokens.count(text, "cl100k_base") * ratio))
    return size.total + PER_ITEM * len(size.items) + FOR_TOOLS


async def errors(form: str, ratio: float, rules_: Policy) -> tuple[list[float], int]:
    """Shares by which level 2 estimates are off, and how many of those requests were made shorter."""
    house, found, shorter = House(), [], 0
    tools = {key: value for key, value in Written(form).body.items() if key == "tools"}
    for seed in range(4):
        for number, asked in enumerate(reading(seed).requests()):
            talk = Talk(*(item for _, item in WRITERS[form](asked)), form=form, **tools)
            outcome = await house.decide(talk, rules_, session=f"s{seed}")
            told = reported(form, outcome.body, ratio)
            assert outcome.context is not None
            if number:
                assert rules.level(outcome.context.client.facts) == 2
                assert outcome.source == "usage"
                found.append(abs(outcome.after - told) / told)
                shorter += outcome.changed
            await house.compactor.settle(outcome, told)
    return found, shorter


@pytest.mark.parametrize("ratio", [0.85, 1.0, 1.3, 1.5])
@pytest.mark.parametrize("rules_", [COUNTED, SHORTENED], ids=["whole", "shortened"])
async def test_level_2_is_counted_to_two_per_cent_at_any_ratio(ratio: float, rules_: Policy) -> None:
    of_all = [await errors(form, ratio, rules_) for form in FORMATS]
    assert all((shorter > 20) is (rules_ is SHORTENED) for _, shorter in of_all)
    found = sorted(error for of_one, _ in of_all for error in of_one)
    assert len(found) > 200
    assert found[int(0.95 * len(found))] <= 0.02


async def test_another_tenants_conversations_teach_nothing() -> None:
    """Nothing of one tenant's is used for another: the second request of each one's first conversation is as far off."""
    house, told = House(), []
    for tenant in ("one", "other"):
        for number, asked in enumerate(list(reading(0).requests())[:2]):
            talk = Talk(*(item for _, item in WRITERS["openai-chat"](asked)))
            outcome = await house.decide(talk, COUNTED, tenant=tenant, session="s")
            await house.compactor.settle(outcome, reported("openai-chat", outcome.body, 1.5))
            told += [outcome.after] * number
    assert told[0] == told[1]
