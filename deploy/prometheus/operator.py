"""Writes the rules as the Prometheus operator wants them: `python -m deploy.prometheus.operator`.

The rules are kept in the files beside this one, where promtool reads and tests them; a PrometheusRule is the same groups in an object.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
FILE = HERE.parent / "kubernetes/monitoring/rules.yaml"
SOURCES = ("compactd.rules.yml", "compactd.alerts.yml")


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def manifest() -> str:
    groups: list[Any] = []
    for source in SOURCES:
        groups += yaml.safe_load((HERE / source).read_text())["groups"]
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "compactd"},
        "spec": {"groups": groups},
    }
    head = "# Made from deploy/prometheus by `python -m deploy.prometheus.operator`; change it there.\n"
    return head + yaml.dump(made, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)


if __name__ == "__main__":
    FILE.write_text(manifest(), encoding="utf-8")
