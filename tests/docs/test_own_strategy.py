"""The page about strategies of one's own: its examples run as they stand, its names are as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from app.cli import cli
from app.own import CompactionContext
from app.settings import Settings
from app.strategies.llm_compactor import LlmCompactor
from tests.story import House, Talk, sent, texts, words

PAGE = (Path(__file__).parents[2] / "docs" / "own-strategy.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The page's example, laid out as it says."""
    (tmp_path / "house_rules.py").write_text(blocks("python")[0])
    (tmp_path / "compactd.yaml").write_text(blocks("yaml")[0])
    monkeypatch.syspath_prepend(tmp_path)
    return Settings(**yaml.safe_load(blocks("yaml")[0]))


def test_the_example_is_sound(settings: Settings, tmp_path: Path) -> None:
    checked = CliRunner().invoke(cli, ["check", "-c", str(tmp_path / "compactd.yaml")])
    assert (checked.exit_code, "house_rules:compact" in checked.stdout) == (0, True)
    assert settings.policies[0].strategy == "house_rules:compact"


async def test_the_example_summarises_and_keeps_two_turns(settings: Settings) -> None:
    talk, house = Talk.of(8, 200), House("They counted to seven.")
    outcome = await house.decide(talk, settings.policies[0], window=2_000)
    assert (outcome.result, outcome.strategy) == ("compacted", "house_rules:compact")
    assert "They counted to seven." in texts(outcome)[0]
    assert sent(outcome)[1:] == talk.items[14:]
    assert house.witness.warnings == []


async def test_the_example_cuts_results_down_where_that_is_enough(settings: Settings) -> None:
    talk = Talk().ask("Read.").round(2_000).round(2_000).answer().ask("And?").answer("This.").ask("So?")
    house = House()
    outcome = await house.decide(talk, settings.policies[0], window=4_500)
    assert outcome.result == "compacted"
    assert house.writer.jobs == []
    assert [len(item["content"] or "") < 2_100 for item in sent(outcome)] == [True] * len(talk.items)
    assert sent(outcome)[2]["content"].endswith("[The rest was removed by compaction.]")
    assert words(2_000) in json.loads((await house.archive(outcome)).document)["items"][0]["item"]["content"]


async def test_the_example_leaves_alone_what_it_can_not_help(settings: Settings) -> None:
    talk = Talk().ask(words(3_000)).answer().ask("So?").ask("Well?")
    outcome = await House().decide(talk, settings.policies[0], window=4_000)
    assert (outcome.reason, outcome.body) == ("nothing_to_compact", talk.body)


def test_the_ready_one_is_made_as_shown() -> None:
    made: dict[str, Any] = {}
    exec(blocks("python")[1], made)
    assert isinstance(made["compact"], LlmCompactor)
    assert (made["compact"].threshold_tokens, made["compact"].keep_turns) == (150_000, 3)


def test_the_table_names_everything_that_the_context_has() -> None:
    told = set(re.findall(r"^\| `(?:await )?(\w+)(?:\(.*?\))?` \|", PAGE, re.MULTILINE))
    assert told == {name for name in dir(CompactionContext) if not name.startswith("_")}
