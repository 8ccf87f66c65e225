"""The figures for compactd in the comparison are those of the cookbook, which are measured."""

from __future__ import annotations

from tests.docs.pages import page, rows, section


def test_its_rows_are_the_measured_ones() -> None:
    told = [row for row in rows(section(page("comparison.md"), "Other proxies")) if row[0].startswith("compactd")]
    measured = {row[0]: row[1:] for row in rows(section(page("policies.md"), "The frugal one"))}
    frugal = measured["nothing"]
    clearing = next(row for name, row in measured.items() if name.startswith("plain `tool_result_clearing`"))
    for row, source in zip(told, (frugal, clearing), strict=True):
        costs = [f"{float(source[at]):.2f}"[1:] for at in (0, 4)]
        assert row[1:] == [" / ".join(costs), source[1], source[2].partition(" ")[0]]
