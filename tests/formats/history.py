"""A conversation in one wire format, cut and cleared as compactd does it, judged by the strict provider that knows nothing of compactd.

What is tried are real bodies: items become JSON, go through the reader, the plan and the splice, and come back as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.core import jsonspan, rules
from app.core.plan import Clear, Plan, apply
from app.core.view import EntryCache, Facts, View, raw_bytes, size_of
from app.formats import FORMATS
from app.formats.reading import Reader, open_body
from tests.strict import VIOLATIONS

NOTE = "[3 earlier messages were removed here by compaction (sliding window); what they said may be missing.]"
CLEARED = "[Tool result cleared by compaction.]"
Item = dict[str, Any]


class History:
    """`fields` are the body's other top-level fields; `quirks` rules of servers that the strict provider shall add."""

    def __init__(self, form: str, *items: Item, quirks: frozenset[str] = frozenset(), **fields: Any) -> None:
        self.form = FORMATS[form]
        self.body = json.dumps({**fields, self.form.history: list(items)}, ensure_ascii=False).encode()
        self._quirks = quirks
        self._reader = Reader(self.form, "o200k_base", EntryCache())
        self.view = self._view(self.body)
        self.facts: list[Facts] = self.view.facts

    @property
    def boundaries(self) -> list[int]:
        """Where the rules allow a cut, without both ends."""
        allowed = rules.cuts(self.facts)
        return [at for at in range(1, len(self.facts)) if allowed[at]]

    def applied(self, plan: Plan, lead: bool = False) -> bytes:
        """The body that a plan makes of this one; `lead`: the note goes into the item after the cut."""
        text = (NOTE if lead else self.form.note(NOTE)) if plan.note else b""
        after = apply(self.view, self.view, plan, text, lambda _: CLEARED, self._reader.rewrite, self._reader.entries)
        pieces = [
            piece if isinstance(piece, int) else raw_bytes(raw)
            for piece, raw in zip(after.pieces, after.raws, strict=True)
        ]
        return jsonspan.splice(self.body, self.form.history, pieces, [size_of(raw) for raw in self.view.raws])

    def cut(self, start: int, stop: int) -> list[Item]:
        """The items that are left, with a note where the cut was."""
        return self.items(self.applied(Plan("test", start, stop, "omitted")))

    def clear(self, *places: Clear) -> list[Item]:
        return self.items(self.applied(Plan("test", clear=places)))

    def clearable(self) -> tuple[Clear, ...]:
        """Every place that the facts offer for clearing, outside the open round."""
        found: list[Clear] = []
        for at in range(rules.open_round(self.facts)):
            fact = self.facts[at]
            if not fact.pinned:
                found += [Clear(at, n) for n, result in enumerate(fact.results) if result.clearable]
                found += [Clear(at, n, True) for n, call in enumerate(fact.calls) if call.clearable]
        return tuple(found)

    def cuts(self) -> Iterator[tuple[int, int]]:
        """Every cut that a strategy may want: at allowed places, of nothing pinned, not of the open round or the question asked now."""
        allowed = rules.cuts(self.facts)
        end, question = rules.open_round(self.facts), rules.current_turn(self.facts)
        for start in range(rules.head_end(self.facts), end):
            for stop in range(start + 1, end + 1):
                touched = start <= question < stop or any(fact.pinned for fact in self.facts[start:stop])
                if allowed[start] and allowed[stop] and not touched:
                    yield start, stop

    def refusals(self, body: bytes) -> Counter[str]:
        """How often the strict provider names each rule."""
        found = VIOLATIONS[self.form.name](json.loads(body), quirks=self._quirks)
        return Counter(violation.rule for violation in found)

    def worse(self, plan: Plan) -> Counter[str]:
        """What a plan adds to what the client's own body breaks already: by our rules or the provider's."""
        after = self.applied(plan)
        new = rules.violations(self._view(after).facts) - rules.violations(self.facts)
        return self.refusals(after) - self.refusals(self.body) + Counter(rule for rule, _, _ in new)

    def assert_never_worse(self) -> int:
        """No cut and no clearing that the rules allow makes the provider refuse more than before. How many were tried."""
        tried = 0
        for start, stop in self.cuts():
            tried += 1
            assert not self.worse(Plan("test", start, stop, "omitted")), (start, stop)
        if places := self.clearable():
            tried += 1
            assert not self.worse(Plan("test", clear=places)), places
        return tried

    def assert_forbidden(self, start: int, stop: int, rule: str) -> None:
        """The rules allow no such cut, and the provider would have refused it by this rule."""
        allowed = rules.cuts(self.facts)
        assert not (allowed[start] and allowed[stop])
        assert rule in self.refusals(self.applied(Plan("test", start, stop, "omitted"))) - self.refusals(self.body)

    def items(self, body: bytes) -> list[Item]:
        return json.loads(body)[self.form.history]

    def _view(self, body: bytes) -> View:
        raws = open_body(self.form, body).raws
        return View(raws, self._reader.entries(raws))
