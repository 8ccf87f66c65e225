"""What is shown: a live table on a terminal, a line for each request elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.demo.tally import PRICE, READ, WRITTEN, Row, Tally

_HEADINGS = (
    "request",
    "client",
    "session",
    "messages",
    "tokens",
    "sent on",
    "outcome",
    "strategy",
    "level",
    "cached",
    "saved so far",
)
_RIGHT = frozenset({"request", "messages", "tokens", "sent on", "level", "cached", "saved so far"})
_COLORS = {"compacted": "green", "replayed": "cyan", "failed": "red", "declined": "yellow"}
_LINE = "{:>7}  {:<9}  {:<7}  {:>8}  {:>7}  {:>7}  {:<9}  {:<20}  {:>5}  {:>6}  {:>12}"


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, in the order of the headings."""
    share = f"{100 * row.cached // row.prompt} %" if row.prompt else ""
    return (
        str(row.number), row.client, row.story, str(row.messages), f"{row.before:,}", f"{row.after:,}", row.outcome, row.strategy,
        row.level, share, f"{row.saved:,}",
    )  # fmt: skip


@contextmanager
def shown(console: Console, tally: Tally) -> Iterator[Callable[[Row], None]]:
    """Gives the function that shows a row."""
    if not console.is_terminal:
        console.print(_LINE.format(*_HEADINGS), soft_wrap=True, highlight=False)
        yield lambda row: console.print(_LINE.format(*cells(row)), soft_wrap=True, highlight=False)
        return
    with Live(_table(tally, console.height), console=console, auto_refresh=False) as live:
        yield lambda _: live.update(_table(tally, console.height), refresh=True)


def _table(tally: Tally, height: int) -> Table:
    """The latest rows, as many as fit."""
    table = Table(title="an agent's requests on their way through compactd", caption=_caption(tally))
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", no_wrap=True)
    for row in tally.rows[-max(5, height - 8) :]:
        table.add_row(*cells(row), style=_COLORS.get(row.outcome))
    return table


def _caption(tally: Tally) -> str:
    return f"{tally.compactions} compactions, {tally.saved:,} tokens not sent, {tally.rejected} rejected"


def summary(tally: Tally) -> list[str]:
    """The end: what was sent, what was not, what it would have been without. All tokens by the provider's count."""
    less = 1 - tally.prompt / tally.direct_prompt if tally.direct_prompt else 0.0
    cached = tally.cached / tally.prompt if tally.prompt else 0.0
    return [
        f"requests     {len(tally.rows)} answered, {tally.rejected} rejected by the provider, {len(tally.failed)} failed",
        f"tokens       {tally.direct_prompt:,} in the clients' requests, {tally.prompt:,} sent on: {less:.0%} less",
        f"window       {tally.too_long} requests were longer than the model's {tally.window:,} tokens and would have been refused",
        f"compactions  {tally.compactions}, and {tally.prefix_breaks} prefix breaks between them",
        f"cache        {cached:.0%} of the tokens sent on came from the provider's prompt cache",
        f"cost         ${PRICE * tally.prompt:.2f} instead of ${PRICE * tally.direct_prompt:.2f} where no prompt cache is; "
        f"${tally.cost:.2f} instead of ${tally.direct_cost:.2f} with one",
        f"             (estimates: ${PRICE * 1e6:.2f} per million input tokens, cache reads at {READ:.0%}, writes at {WRITTEN:.0%})",
        *(f"failed       {failure}" for failure in tally.failed),
    ]
