"""What the project's habits are written in (workflows, hooks, forms) names things that exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job.get("steps", [])]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there(workflow: Path) -> None:
    commands = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    scripts = re.findall(r"(?:^|\s)((?:deploy|\.ci)/[\w./-]+)", commands, re.M)
    assert [script for script in scripts if not (ROOT / script).stat().st_mode & 0o111] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make (\w+)", commands)) <= set(targets)
    tests = re.findall(r"ARGS=(tests/\S+)", commands)
    assert [test for test in tests if not (ROOT / test).exists()] == []


def test_the_workflow_runs_what_lands_a_change_and_makes_the_image() -> None:
    commands = [step.get("run") for step in steps(ROOT / ".github/workflows/ci.yml")]
    assert ".ci/run" in commands
    assert any("deploy/check-docker.sh" in command for command in commands if command)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_write_only_where_it_says_so(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_versions_agree() -> None:
    assert PROJECT["project"]["version"] == __version__
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_an_installed_compactd_has_all_its_files() -> None:
    globs = PROJECT["tool"]["setuptools"]["package-data"]["app"]
    shipped = {path for glob in globs for path in (ROOT / "app").glob(glob)}
    others = {path for path in (ROOT / "app").rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert others - shipped == set()


def test_hooks_use_the_locked_tools() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = {hook["entry"].split()[0] for hook in local["hooks"]}
    assert {tool.removeprefix(".venv/bin/") for tool in tools} == {"ruff", "mypy", "python"}
    assert {"ruff", "mypy", "pytest"} <= {
        re.split(r"[\[>=<]", name)[0] for name in PROJECT["project"]["optional-dependencies"]["dev"]
    }


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("dependabot", [ROOT / ".github/dependabot.yml"]),
        ("github-issue-forms", FORMS),
        ("compose-spec", [ROOT / "docker-compose.yml", ROOT / "deploy/sidecar/docker-compose.yml"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_form_is_as_its_reader_wants_it(schema: str, files: list[Path]) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
