"""What the documentation shows of commands is what they print."""

from __future__ import annotations

import pytest

from tests.docs.consoles import all_blocks, commands, run, steady

BLOCKS = all_blocks()


@pytest.mark.parametrize(
    "block", [block for _, block in BLOCKS], ids=[f"{page}-{at}" for at, (page, _) in enumerate(BLOCKS)]
)
def test_a_console_block_is_what_its_commands_print(block: str) -> None:
    assert commands(block)
    assert steady(run(block)) == steady(block)


def test_there_are_some() -> None:
    assert {page for page, _ in BLOCKS} >= {"docs/how-it-works.md", "docs/policies.md"}
