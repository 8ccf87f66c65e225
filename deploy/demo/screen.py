"""What is shown: a live table on a terminal, a line for each request elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.demo.tally import READ, WRITTEN, PRICE, Row, Tally

_HEADINGS = ("request", "client", "session", "messages", "tokens", "sent on", "outcome", "strategy", "level", "cached", "saved so far")
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
    """The end: what was sent, what was not, what it would have been without."""
    wanted = sum(row.before for row in tally.rows)
    share = tally.saved / wanted if wanted else 0.0
    cached = tally.cached / tally.prompt if tally.prompt else 0.0
    return [
        f"requests     {len(tally.rows)} answered, {tally.rejected} rejected by the provider, {len(tally.failed)} failed",
        f"tokens       {wanted:,} in the clients' requests; {wanted - tally.saved:,} sent on, {tally.saved:,} ({share:.0%}) not sent",
        f"window       {tally.too_long} requests were longer than the model's {tally.window:,} tokens: refused, without compactd",
        f"compactions  {tally.compactions}; {tally.prefix_breaks} prefix breaks between them",
        f"cache        {cached:.0%} of all prompt tokens came from the provider's cache",
        f"cost         ${tally.cost:.2f} instead of ${tally.direct_cost:.2f} with a window that large (estimate: ${PRICE * 1e6:.0f} per million"
        f" input tokens, cache reads at {READ:.0%}, writes at {WRITTEN:.0%})",
        *(f"failed       {failure}" for failure in tally.failed),
    ]
