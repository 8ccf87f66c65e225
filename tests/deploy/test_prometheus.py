"""Rules and alerts: sound by Prometheus' own tools, each alert tried and explained, nothing named that compactd does not tell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from app.edge.metrics import Metrics

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES, ALERTS, TESTS = (FOLDER / f"compactd.{kind}.yml" for kind in ("rules", "alerts", "test"))
PROMTOOL = shutil.which("promtool")
tool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")


def rules(file: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def told() -> set[str]:
    """The series that compactd exposes, by name."""
    names = set()
    for family in Metrics(CollectorRegistry()).registry.collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + end for end in ends}
    return names


def unknown(expressions: str) -> set[str]:
    """Series of compactd's that an expression names and nobody makes."""
    recorded = {rule["record"] for rule in rules(RULES)}
    named = set(re.findall(r"(?<![\w:])(?:\w+:)?compactd_\w+(?::\w+)?", expressions))
    return named - told() - recorded


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


@tool
def test_rules_are_sound() -> None:
    checked = run("check", "rules", RULES, ALERTS)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@tool
def test_alerts_fire_where_they_should_and_nowhere_else() -> None:
    tried = run("test", "rules", TESTS)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, silent = set(), set()
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent).add(one["alertname"])
    assert fires == silent == {rule["alert"] for rule in rules(ALERTS)}


@pytest.mark.parametrize("file", [RULES, ALERTS])
def test_rules_name_what_is_there(file: Path) -> None:
    assert [unknown(rule["expr"]) for rule in rules(file)] == [set()] * len(rules(file))


def test_a_name_that_nobody_makes_is_found() -> None:
    assert unknown("rate(compactd_request_total[5m]) > job:compactd_nothing:rate5m") == {
        "compactd_request_total", "job:compactd_nothing:rate5m",
    }  # fmt: skip


def test_every_alert_is_explained_in_the_runbook_and_no_other() -> None:
    alerts = {rule["alert"]: rule for rule in rules(ALERTS)}
    headings = re.findall(r"^## (\w+)\n\n(Page|Ticket)\. ", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert {name: kind.lower() for name, kind in headings} == {
        name: alert["labels"]["severity"] for name, alert in alerts.items()
    }
    for name, alert in alerts.items():
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert (ROOT / page).is_file()
        assert anchor == name.lower()
