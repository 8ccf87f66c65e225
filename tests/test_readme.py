"""The README tells the truth: what it names exists, and what exists at these places is named."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from anthropic import Anthropic
from openai import OpenAI
from typer.testing import CliRunner

from app.cli import cli
from app.edge.operations import operations
from app.formats import FORMATS
from app.main import App
from app.settings import load
from app.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE)
ADDRESS = "http://127.0.0.1:8787"


def code() -> list[str]:
    """All code of the README: blocks line by line, and what stands between backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", rest)


def section(heading: str) -> str:
    return README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_its_make_targets_exist() -> None:
    named = {line.split()[1] for line in code() if re.match(r"make [a-z]+", line)}
    assert {"serve", "test", "demo"} <= named
    assert named <= set(TARGETS)


def test_make_lists_every_target() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\w+)", listed, re.MULTILINE) == TARGETS
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    assert phony[1].split() == TARGETS


def test_no_target_is_longer_than_five_lines() -> None:
    recipes = re.findall(r"^[^\s#].*:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert len(recipes) >= len(TARGETS) - 1
    assert max(len(recipe.splitlines()) for recipe in recipes) <= 5


def test_its_commands_exist_with_their_options() -> None:
    lines = [line for line in code() if re.match(r"(\.venv/bin/)?compactd \w", line)]
    assert len(lines) >= 5
    for line in lines:
        _, *words = line.partition("#")[0].split()
        command: Any = typer.main.get_command(cli)
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


def test_every_command_is_named() -> None:
    group: Any = typer.main.get_command(cli)
    assert [name for name in group.commands if f"compactd {name}" not in README and name != "version"] == []


def test_its_check_of_the_shipped_configuration_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, ["check", "--config", "config/compactd.yaml"])
    assert result.exit_code == 0, result.output


def test_named_files_exist() -> None:
    paths = {text for text in code() if re.fullmatch(r"(app|bench|config|deploy|docs|tests)/[\w./]*", text)}
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_folder_is_named() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    folders -= {"data", "build", "dist"} | {name for name in folders if name.endswith(".egg-info")}
    assert [name for name in sorted(folders) if f"`{name}/`" not in section("Where the code is")] == []


def test_its_response_headers_are_those_that_are_sent() -> None:
    source = "".join(path.read_text() for path in (ROOT / "app/edge").glob("*.py"))
    assert set(re.findall(r"x-compactd-[a-z-]+", README)) == set(re.findall(r'b?"(x-compactd-[a-z-]+)"', source))


def test_its_endpoints_exist() -> None:
    app = App(load(None, {"COMPACTD_STORE__URL": "memory://"}))
    served = set(operations(app).pages.openapi()["paths"]) | {"/compactd/", "/compactd/api/openapi.json"}
    rows = [line.split("|")[1] for line in section("Endpoints of its own").splitlines() if line.startswith("| `")]
    named = set(re.findall(r"(/[a-z][\w/{}.]*)`", "".join(rows)))
    assert len(named) > 8
    assert {re.sub(r"{\w+}", "{}", path) for path in named} <= {re.sub(r"{\w+}", "{}", path) for path in served}


def test_its_conversation_paths_are_looked_at() -> None:
    named = re.findall(r"`POST (/v1\S+?)`", section("How it decides"))
    found = {form.name for form in FORMATS.values() for path in named if form.target(path.replace("{model}", "m"))}
    assert found == set(FORMATS)


def test_its_strategies_are_those_that_exist() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("Strategies"), re.MULTILINE)) == set(STRATEGIES)


@pytest.mark.parametrize("line", [text for text in code() if re.match(r"(OpenAI|Anthropic)\(", text)])
def test_its_sdk_settings_are_accepted(line: str) -> None:
    makers = {kind.__name__: partial(kind, api_key="k") for kind in (OpenAI, Anthropic)}
    client = eval(line, dict(makers))
    path = "chat/completions" if line.startswith("OpenAI") else "v1/messages"
    assert any(
        form.target(f"{client.base_url}".removeprefix(ADDRESS).rstrip("/") + "/" + path) for form in FORMATS.values()
    )


def test_its_address_is_the_default_one() -> None:
    assert load(None, {}).public_base == ADDRESS
    assert set(re.findall(r"http://[\w.]+:\d+", README)) == {ADDRESS}


def test_it_shows_a_run_of_the_demonstration() -> None:
    shown = section("See it work")
    assert re.search(r"^ +\d+  chat .* compacted ", shown, re.MULTILINE)
    assert re.search(r"^ +\d+  anthropic .* replayed ", shown, re.MULTILINE)
    assert "0 rejected by the provider, 0 failed" in shown
