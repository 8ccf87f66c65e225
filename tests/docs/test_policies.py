"""Every recipe of the cookbook is a configuration that loads as it stands, and its measured figures are those that come out."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.settings import Policy, Settings, load
from tests.docs.pages import DOCS, ROOT, blocks, page, prose, rows, section

PAGE = page("policies.md")
SESSIONS = runpy.run_path(str(ROOT / "bench" / "sessions.py"))
FRUGAL, play = SESSIONS["FRUGAL"], SESSIONS["play"]
HEADINGS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
RECIPES = [
    pytest.param(block, id=f"{heading}-{at}")
    for heading in HEADINGS
    for at, block in enumerate(blocks(section(PAGE, heading), "yaml"))
]


def settings(block: str, folder: Path) -> Settings:
    file = folder / "compactd.yaml"
    file.write_text(block)
    return load(file, {})


@pytest.mark.parametrize("block", RECIPES)
def test_a_recipe_is_a_sound_configuration(block: str, tmp_path: Path) -> None:
    assert settings(block, tmp_path).policies
    checked = CliRunner().invoke(cli, ["check", "-c", str(tmp_path / "compactd.yaml")])
    assert checked.exit_code == 0, checked.output


def test_every_section_but_the_first_has_a_recipe() -> None:
    assert [heading for heading in HEADINGS[1:] if not blocks(section(PAGE, heading), "yaml")] == []


def test_names_between_backticks_that_look_like_options_are_options() -> None:
    known = {*Policy.model_fields, "context_management", "compact_threshold", "gain_too_small", "client_compaction"}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?:: [^`]+)?`", prose(PAGE)))
    values = {"no_reasoning", "no_tool_results", "compact_tool_results", "messages_only", "tool_result_clearing",
              "sliding_window", "drop_block", "compactd_request_tokens", "compactd_tokens_cleared_total",
              "compactd_estimated_cost_usd_total"}  # fmt: skip
    assert len(named) > 15
    assert named - known - values == set()


def test_the_first_policy_that_matches_is_taken(tmp_path: Path) -> None:
    (block,) = blocks(section(PAGE, "One policy for each"), "yaml")
    made = settings(block, tmp_path)

    def chosen(model: str, form: str, **headers: str) -> str:
        policy = made.policy_for(
            model, form, "openai", {name.replace("_", "-"): value for name, value in headers.items()}
        )
        assert policy
        return policy.name

    assert chosen("gpt-5", "openai-chat", x_team="eval-1") == "leave-alone"
    assert made.policies[0].mode == "off"
    assert chosen("claude-opus-4-5", "anthropic-messages", x_app="coder") == "agents"
    assert chosen("claude-opus-4-5", "anthropic-messages") == "default"
    assert chosen("gemini-2.5-pro", "gemini") == "gemini"


def test_the_frugal_one_is_the_measured_one(tmp_path: Path) -> None:
    (block,) = blocks(section(PAGE, "The frugal one"), "yaml")
    made = settings(block, tmp_path).policies[0]
    assert made == Policy(name="frugal", **FRUGAL)
    steps = load(DOCS / "examples" / "steps.yaml", {})
    scaled = steps.policy_named("frugal")
    assert scaled is not None
    relative = {"name", "trigger_threshold", "target_threshold", "fold_rounds_above", "archive_history"}
    assert scaled.model_dump(exclude=relative) == made.model_dump(exclude=relative)


def figures(row: list[str]) -> list[float]:
    return [float(cell.partition(" ")[0]) for cell in row[1:]]


def changed(label: str) -> dict[str, Any]:
    """The options of a row of the table, on top of the frugal policy."""
    if label == "nothing":
        return FRUGAL
    name, _, value = label.strip("`").partition(": ")
    return {**FRUGAL, name: None if value == "null" else int(value)}


@pytest.mark.parametrize("label", ["nothing", "`target_threshold: 2200`"])
async def test_the_table_of_the_frugal_one_is_measured(label: str) -> None:
    """Two of its rows, played again. Costs may move in the third digit, facts by a few, where strategies are worked on."""
    row = next(row for row in rows(section(PAGE, "The frugal one")) if row[0] == label)
    chat = await play("openai-chat", "chat", 40_000, changed(label))
    run = await play("openai-chat", "agentic", 40_000, changed(label))
    came = [chat["cost"], chat["breaks"], chat["user"], chat["results"], run["cost"], run["breaks"], run["results"]]
    assert figures(row) == [pytest.approx(value, rel=0.02, abs=4 if value > 1 else 0) for value in came]
