"""Ten thousand spoiled bodies through compactd: `python -m tests.fuzz.fuzz_bodies --count 10000`.

A case is a format and a number; `--form gemini --only 4711` runs it again. Ends with 1 if a promise was broken, naming the cases.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter

import structlog

from tests.edge.wire import PATHS
from tests.fuzz.harness import Failed, harness

FRESH_EVERY = 500
"""Cases that one compactd gets; then another begins, so that what it remembers stays small."""


async def run(form: str, numbers: range) -> tuple[dict[int, str], Counter[str]]:
    """What was broken, by case, and how often each outcome came."""
    broken: dict[int, str] = {}
    outcomes: Counter[str] = Counter()
    for start in range(0, len(numbers), FRESH_EVERY):
        async with harness() as proxy:
            for number in numbers[start : start + FRESH_EVERY]:
                try:
                    await proxy.case(form, number)
                except Failed as failure:
                    broken[number] = str(failure)
                except Exception as fault:
                    broken[number] = f"{type(fault).__name__}: {fault}"
            outcomes.update(proxy.outcomes)
            faults = proxy.app.metrics.faults.collect()[0].samples
            outcomes.update({f"fault {sample.labels['where']}": int(sample.value) for sample in faults if sample.value})
    return broken, outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="cases per format")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--form", choices=list(PATHS), action="append", help="this format only; may be repeated")
    parser.add_argument("--only", type=int, help="this case only")
    given = parser.parse_args()
    structlog.configure(processors=[_drop])
    numbers = range(given.first, given.first + given.count) if given.only is None else range(given.only, given.only + 1)
    failed = False
    for form in given.form or PATHS:
        began = time.monotonic()
        broken, outcomes = asyncio.run(run(form, numbers))
        print(f"{form}: {len(numbers):,} cases in {time.monotonic() - began:.0f} s, {len(broken)} broken", flush=True)
        for outcome, count in sorted(outcomes.items(), key=lambda pair: -pair[1]):
            print(f"  {count:>7,}  {outcome}")
        for number, why in list(broken.items())[:20]:
            print(f"  --form {form} --only {number}: {why[:300]}")
        failed = failed or bool(broken)
    return int(failed)


def _drop(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


if __name__ == "__main__":
    raise SystemExit(main())
