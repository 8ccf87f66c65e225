"""How likely a string is to be needed again, so that room goes to what the next steps will ask for.

Measured on real conversations (`make fidelity`): of the strings that stood in the history, which did the assistant write again after a
cut? A logistic model over kind, place, frequency and age, fitted on all sources but one and judged on that one, gave the factors below,
rounded. It is as good as a boosted forest on sources it has not seen (average precision .30 and .27), so nothing finer is worth having.
What predicts: the assistant used it already, above all in a call (25 % of such strings come back, 1 to 3 % of those that only a result
held); it stands in several places; it is recent. What does not: its place in a result, the size of that result, an error beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from app.summaries.lines import Kind, clean, kind_of

KINDS: dict[Kind, float] = {"number": 1.2, "identifier": 1.1, "word": 1.0, "id": 0.9, "path": 0.8, "url": 0.6, "": 0.0}
COMMON = 0.05
"""A word that the tokenizer knows as one token: half of every text, hardly ever what a step hangs on."""
IN_CALL, SAID = 4.0, 2.0
"""Factors for what stood in a call's arguments, and in the assistant's own text."""
OFTEN = 0.4
"""Exponent of how many lines hold it."""
AGE = -0.45
"""Exponent of its age in items."""
LENGTH = -0.2
"""Exponent of its length: a long path comes back less often than a short name."""


class Worth:
    """Gathers the strings of a history, oldest line first, then tells what each is worth."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._cleaned: dict[str, str] = {}
        self._often: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._called: set[str] = set()
        self._said: set[str] = set()

    def read(self, runs: Iterable[str]) -> list[str]:
        """The distinct cleaned strings of one line's runs."""
        cleaned = self._cleaned
        found = {}
        for run in runs:
            string = cleaned.get(run)
            if string is None:
                string = cleaned[run] = clean(run)
            if string:
                found[string] = None
        return list(found)

    def note(self, strings: Sequence[Sequence[str]], at: int, said: str) -> None:
        """These lines' strings stood in item `at`; `said` is who said it."""
        self._often.update(chain.from_iterable(strings))
        for line in strings:
            self._last.update(dict.fromkeys(line, at))
            if said == "call":
                self._called.update(line)
            elif said == "assistant":
                self._said.update(line)

    def weights(self, now: int) -> dict[str, float]:
        """What each string is worth at item `now`."""
        ages = [(1 + age) ** AGE for age in range(now + 2)]
        weights = {}
        for string, often in self._often.items():
            kind = kind_of(string)
            weight = KINDS[kind]
            if kind == "word" and self._count(" " + string.lower()) <= 1:
                weight = COMMON
            if not weight:
                continue
            if string in self._called:
                weight *= IN_CALL
            elif string in self._said:
                weight *= SAID
            weights[string] = weight * often**OFTEN * ages[now - self._last[string]] * len(string) ** LENGTH
        return weights
