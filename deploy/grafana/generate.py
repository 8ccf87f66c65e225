"""Writes the dashboards of boards.py: `python -m deploy.grafana.generate`. `python -m deploy.grafana.pictures` draws them.

Everything that Grafana wants to know and that is the same for all stands here once. Panels flow from left to right; a row is 24 wide, and
figures share one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.grafana.boards import DASHBOARDS, Panel

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SMALL = {
    "none": 1, "short": 10, "reqps": 0.1, "reqpm": 1, "opm": 1, "ops": 0.1, "s": 0.001, "percentunit": 0.1, "currencyUSD": 0.01,
}  # fmt: skip
"""Unit -> to where an axis goes at least: one of nothing but zeros would go up to 100."""
BY_THE_MINUTE = ("opm", "reqpm")
COLORED = ("{{outcome}}", "{{sink}} {{result}}")
"""Legends whose words have colors of their own."""
COLORS = {
    "passed": "blue", "replayed": "purple", "compacted": "green", "observed": "light-blue", "declined": "orange", "failed": "red",
    "ok": "green",
}  # fmt: skip


def placed(panels: list[Panel]) -> Iterator[tuple[Panel, dict[str, int]]]:
    figures = sum(panel.kind == "stat" for panel in panels)
    x = y = below = 0
    for panel in panels:
        width = 24 // figures if panel.kind == "stat" else panel.width
        if x + width > 24 or (x and panel.height != below):
            x, y = 0, y + below
        yield panel, {"x": x, "y": y, "w": width, "h": panel.height}
        x, below = x + width, panel.height


def steps(alarm: float | None) -> dict[str, Any]:
    red = [] if alarm is None else [{"value": alarm, "color": "red"}]
    return {"mode": "absolute", "steps": [{"value": None, "color": "green"}, *red]}


def colors(panel: Panel) -> list[dict[str, Any]]:
    if not set(COLORED) & set(panel.queries):
        return []
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^| ){word}$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for word, color in COLORS.items()
    ]


def target(query: str, legend: str, letter: str) -> dict[str, Any]:
    """A sum over all that is shown is asked for once, at the end, and not anew for each point of a line."""
    once = "$__range" in query
    return {
        "refId": letter, "datasource": SOURCE, "expr": query, "legendFormat": legend, "instant": once, "range": not once,
    }  # fmt: skip


def drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """One panel as Grafana wants it."""
    defaults: dict[str, Any] = {"unit": panel.unit, "noValue": panel.nothing, "thresholds": steps(panel.alarm)}
    rare = panel.unit in BY_THE_MINUTE  # of which only what happened is there, and a line would join it
    if panel.unit in ("none", "locale"):
        defaults["decimals"] = 0
    look: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area", "colorMode": "value"}
    if panel.kind == "timeseries":
        defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "bars" if rare else "line", "fillOpacity": 60 if rare else 30 if panel.stacked else 0, "showPoints": "auto",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "off" if panel.alarm is None else "dashed"},
            "axisSoftMax": 2 * panel.alarm if panel.alarm else SMALL[panel.unit],
        }  # fmt: skip
        look = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.about, "gridPos": place,
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults, "overrides": colors(panel)}, "options": look,
        "targets": [
            target(query, legend, chr(ord("A") + at)) for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }  # fmt: skip


def chooser(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "definition": query, "refresh": 2,
        "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}, "sort": 1,
    }  # fmt: skip


def dashboard(name: str) -> dict[str, Any]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    others = {"type": "dashboards", "tags": ["compactd"], "title": "compactd", "includeVars": True, "keepTime": True}
    return {
        "uid": f"compactd-{name}", "title": f"compactd: {name}", "tags": ["compactd"], "schemaVersion": 39, "version": 1,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "30s", "timezone": "browser", "editable": True, "links": [others],
        "templating": {"list": [
            {**source, "current": {"text": "prometheus", "value": "prometheus"}},
            chooser("job", "label_values(compactd_build_info, job)"),
            chooser("instance", 'label_values(compactd_build_info{job=~"$job"}, instance)'),
        ]},
        "panels": [drawn(panel, number, place) for number, (panel, place) in enumerate(placed(DASHBOARDS[name]), 1)],
    }  # fmt: skip


def files() -> dict[Path, str]:
    """File -> content."""
    return {FOLDER / f"{name}.json": json.dumps(dashboard(name), indent=1) + "\n" for name in DASHBOARDS}


if __name__ == "__main__":
    for file, content in files().items():
        file.write_text(content)
