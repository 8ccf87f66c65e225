"""Schemathesis against the admin API, from its own description. Skipped where it is not installed.

`python -m tests.fuzz.test_fuzz_api --seconds 120` runs it longer, with the counts told.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.edge.talks import Talk
from tests.edge.test_operations import LOW
from tests.edge.wire import compactd, configured
from tests.strict.server import StrictProvider

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")

KNOWN = frozenset({200, 307, 308, 400, 401, 403, 404, 405, 413, 422})
"""A fault of ours would be a 5xx."""


def _cases(schema: dict[str, Any], count: int) -> list[Any]:
    """Generated requests for every operation of the description, right ones and wrong ones."""
    made: list[Any] = []
    for result in schemathesis.openapi.from_dict(schema).get_all_operations():
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            with suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong with an operation that takes nothing
                made += _some(result.ok().as_strategy(generation_mode=mode), count)
    return made


def _some(strategy: Any, count: int) -> list[Any]:
    found: list[Any] = []

    @hypothesis.settings(
        max_examples=count, database=None, deadline=None, derandomize=count <= 50, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(strategy)
    def gather(case: Any) -> None:
        found.append(case)

    gather()
    return found


async def run(count: int, seconds: float = 1e9) -> tuple[list[str], Counter[str]]:
    """What was broken, and how often each status came."""
    broken: list[str] = []
    told: Counter[str] = Counter()
    ends = time.monotonic() + seconds
    async with StrictProvider().serve() as url, compactd(configured(url, policies=[LOW]), patience=1e6) as proxy:
        await proxy.ask(Talk("openai-chat").ask("Read.").rounds(8).request())
        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=20) as http:
            schema = (await http.get("/compactd/api/openapi.json")).json()
            while True:
                cases = await asyncio.to_thread(_cases, schema, count)
                random.Random(0).shuffle(cases)
                for case in cases:
                    asked = case.as_transport_kwargs(base_url=proxy.url)
                    asked = {
                        key: value
                        for key, value in asked.items()
                        if key in ("method", "url", "headers", "params", "json", "data")
                    }
                    if isinstance(asked.get("data"), str | bytes):
                        asked["content"] = asked.pop("data")
                    try:
                        answer = await http.request(**asked)
                    except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError, ValueError, TypeError):
                        told["not to be sent"] += 1
                        continue
                    told["cases"] += 1
                    told[str(answer.status_code)] += 1
                    if answer.status_code not in KNOWN:
                        broken.append(f"{answer.status_code}: {case.method} {case.formatted_path}")
                    if "content-security-policy" not in answer.headers and "x-compactd-outcome" not in answer.headers:
                        broken.append(f"unguarded: {case.method} {case.formatted_path}")
                if time.monotonic() > ends or seconds == 1e9:
                    return broken, told


async def test_the_admin_api_answers_whatever_it_is_asked() -> None:
    broken, told = await run(6)
    assert broken == []
    assert told["cases"] > 50
    assert told["200"] > 15
    assert told["422"] > 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    broken, told = asyncio.run(run(200, parser.parse_args().seconds))
    print(f"{told.pop('cases'):,} cases, {len(broken)} broken: {dict(told)}")
    for why in broken[:20]:
        print(f"  {why}")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
