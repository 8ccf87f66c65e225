"""How likely a string is to be needed again, so that room goes to what the next steps will ask for.

Measured on real conversations: of the strings that stood in the history, which did the assistant write again after a cut? A logistic
model over kind, place, frequency and age, fitted on all sources but one and judged on that one, gave the factors below, rounded. On
sources that it has not seen it is as good as boosted trees (average precision .26 and .27), and halving or doubling any one factor moves
recall by .01 at most, so nothing finer is worth having.
What predicts: the assistant used it already, above all in a call (25 % of such strings come back, 1 to 3 % of those that only a result
held); it stands in several places; it is recent. What does not: its place in a result, the size of that result, an error beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from app.summaries.lines import Kind, clean, kind_of, runs_of

KINDS: dict[str, float] = {"number": 1.2, "identifier": 1.1, "word": 1.0, "id": 0.9, "path": 0.8, "url": 0.6}
COMMON = 0.02
"""A word that the tokenizer knows as one token: half of every text, hardly ever what a step hangs on."""
IN_CALL, SAID = 4.0, 2.5
"""Factors for what stood in a call's arguments, and in the assistant's own text."""
OFTEN, OFTEN_ENOUGH = 0.3, 64
"""Exponent of how many lines hold it, up to so many."""
AGE = -0.45
"""Exponent of its age in items."""
LENGTH = -0.2
"""Exponent of its length: a long path comes back less often than a short name."""


class Worth:
    """Gathers the strings of a history, oldest line first, then tells what each is worth."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._named = _Named()
        self.kinds = self._named.kinds
        self._often: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._called: set[str] = set()
        self._said: set[str] = set()

    def strings(self, line: str) -> list[str]:
        """The distinct strings of a line that could be worth something."""
        found = dict.fromkeys(map(self._named.__getitem__, runs_of(line)))
        found.pop("", None)
        return list(found)

    def note(self, strings: Sequence[Sequence[str]], at: int, said: str) -> None:
        """These lines' strings stood in item `at`; `said` is who said it."""
        self._often.update(chain.from_iterable(strings))
        self._last.update(dict.fromkeys(chain.from_iterable(strings), at))
        if said == "call":
            self._called.update(chain.from_iterable(strings))
        elif said in ("assistant", "user"):
            self._said.update(chain.from_iterable(strings))

    def weights(self, now: int) -> dict[str, int]:
        """What each string is worth at item `now`, in hundred-thousandths: sums of integers are the same everywhere."""
        ages = [100_000 * (1 + age) ** AGE for age in range(now + 2)]
        often_of = [often**OFTEN for often in range(OFTEN_ENOUGH + 1)]
        weights = {}
        for string, often in self._often.items():
            kind = self.kinds[string]
            weight = KINDS[kind]
            if kind == "word" and self._count(" " + string.lower()) <= 1:
                weight = COMMON
            if string in self._called:
                weight *= IN_CALL
            elif string in self._said:
                weight *= SAID
            weight *= often_of[min(often, OFTEN_ENOUGH)] * ages[now - self._last[string]] * len(string) ** LENGTH
            weights[string] = int(weight)
        return weights


class _Named(dict[str, str]):
    """Runs of characters and the strings that they are, "" for what nobody would look for; each looked at once."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[str, Kind] = {}
        """of each string"""

    def __missing__(self, run: str) -> str:
        string = clean(run)
        kind = self.kinds.get(string) or kind_of(string)
        if kind:
            self.kinds[string] = kind
        self[run] = named = string if kind else ""
        return named
