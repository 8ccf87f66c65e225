"""What is counted: a row for each request, and the sums that the demonstration ends with.

Every figure is measured. Tokens before and after come from compactd's response headers; what the provider's cache gave comes from the
provider's own usage; and what the same requests would have been without compactd comes from the provider's counter, applied to the bodies
that the clients sent. Only money is an estimate, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.demo.clients import Client, Usage
from tests.strict.prefix_cache import PrefixCache, canonical
from tests.strict.server import Seen
from tests.strict.tokens import measure

PRICE = 3.00 / 1_000_000
"""Dollars for an input token, about what a large model costs. Reading the cache costs a tenth of it, writing a quarter more."""
READ, WRITTEN = 0.1, 1.25


@dataclass(frozen=True, slots=True)
class Row:
    """One request, as the table shows it. `saved` is the sum of tokens not sent so far, this request included."""

    number: int
    client: str
    story: str
    messages: int
    before: int
    after: int
    outcome: str
    strategy: str
    level: str
    prompt: int
    cached: int
    saved: int


@dataclass(slots=True)
class Tally:
    """The sums. `window` is the model's, in tokens."""

    window: int
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    rejected: int = 0
    compactions: int = 0
    prefix_breaks: int = 0
    too_long: int = 0
    """Requests that the provider would have refused as the clients sent them."""
    prompt: int = 0
    cached: int = 0
    cost: float = 0.0
    direct_prompt: int = 0
    direct_cost: float = 0.0
    archive: str = ""
    _direct: PrefixCache = field(default_factory=PrefixCache)
    _last: dict[str, list[str]] = field(default_factory=dict)

    @property
    def saved(self) -> int:
        """Tokens that were in the clients' requests and did not go to the provider."""
        return sum(row.before - row.after for row in self.rows)

    def sent(self, client: Client, body: dict[str, Any]) -> None:
        """A client has sent this body."""
        size = measure(client.format, body)
        self.too_long += size.total > self.window
        use = self._direct.use("demo", client.format, body["model"], body, size)
        self.direct_prompt += use.prompt
        self.direct_cost += _dollars(use.prompt, use.cached, use.written)

    def arrived(self, seen: Seen, compacted: bool) -> None:
        """The provider got this request. Its history has to begin with the one before it, unless a new compaction was made."""
        if seen.violations or seen.status >= 400:
            self.rejected += 1
        assert seen.body is not None
        history = [canonical(item) for item in seen.body["messages"]]
        key = seen.model
        last = self._last.get(key, [])
        if not compacted and history[: len(last)] != last:
            self.prefix_breaks += 1
        self._last[key] = history

    def answered(self, client: Client, messages: int, headers: Mapping[str, str], usage: Usage) -> Row:
        """The client has got an answer with these headers."""
        before = int(headers.get("x-compactd-tokens-before", usage.prompt))
        after = int(headers.get("x-compactd-tokens-after", before))
        outcome = headers.get("x-compactd-outcome", "none")
        self.compactions += outcome == "compacted"
        self.archive = headers.get("x-compactd-archive", self.archive)
        self.prompt += usage.prompt
        self.cached += usage.cached
        self.cost += _dollars(usage.prompt, usage.cached, usage.written)
        row = Row(
            len(self.rows) + 1, client.label, client.story.name, messages, before, after, outcome,
            headers.get("x-compactd-strategy", ""), headers.get("x-compactd-level", ""), usage.prompt, usage.cached,
            self.saved + before - after,
        )  # fmt: skip
        self.rows.append(row)
        return row


def _dollars(prompt: int, cached: int, written: int) -> float:
    return PRICE * (prompt - cached - written + READ * cached + WRITTEN * written)
