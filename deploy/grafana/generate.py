"""Writes the dashboards: `python -m deploy.grafana.generate`.

A dashboard is a list of panels, a panel a title, a unit and its queries by their legend. Everything else that Grafana wants to know is the
same for all and stands once, at the end. Panels flow from left to right; a row is 24 wide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
CHOSEN = 'job=~"$job", instance=~"$instance"'
PERCENTILES = (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99))


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: legend -> expression. `kind`: timeseries, stat or table of Grafana. `stacked` for parts of a whole."""

    title: str
    unit: str
    queries: dict[str, str]
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False


def stat(title: str, unit: str, query: str, about: str = "") -> Panel:
    return Panel(title, unit, {title: query}, about, "stat", width=4, height=4)


def series(metric: str, where: str = "") -> str:
    return f"compactd_{metric}{{{', '.join(filter(None, (CHOSEN, where)))}}}"


def rate(metric: str, by: str = "", where: str = "") -> str:
    """A second."""
    return f"sum by ({by}) (rate({series(metric, where)}[$__rate_interval]))"


def total(metric: str, by: str = "", where: str = "") -> str:
    """Over the time that the dashboard shows."""
    return f"sum by ({by}) (increase({series(metric, where)}[$__range]))"


def gauge(metric: str, by: str, how: str = "sum") -> str:
    return f"{how} by ({by}) ({series(metric)})"


def quantiles(
    metric: str, by: str = "", where: str = "", of: tuple[tuple[str, float], ...] = PERCENTILES
) -> dict[str, str]:
    legend = f"{{{{{by}}}}} " if by else ""
    buckets = rate(f"{metric}_bucket", f"{by}, le" if by else "le", where)
    return {legend + name: f"histogram_quantile({share}, {buckets})" for name, share in of}


def ratio(part: str, whole: str) -> str:
    return f"{part} / {whole}"


APPLIED, REPLAYED = 'outcome=~"compacted|replayed"', 'outcome="replayed"'
MISSED, DUE = 'outcome=~"declined|failed"', 'outcome=~"compacted|declined|failed"'
OWN_TIME = 'outcome!~"compacted|observed|failed"'  # without the wait for a summary
SAVED, SPENT = 'kind="saved"', 'kind="spent_on_summaries"'
CACHED, INPUT = 'kind="cache_read"', 'kind="input"'
BEFORE, AFTER = 'stage="before"', 'stage="after"'

HIT_SHARE = "Input tokens that the provider had in its prompt cache, of all that were sent."
ESTIMATE = "An estimate by public list prices, no invoice. Models without a known price count for nothing."
A_SECOND = "A second, replays included."


def asked(by: str, failed: bool = False) -> str:
    """Requests that went to providers; `failed`: those answered with 500 and more, or not at all. The two parts share no label set."""
    answers = series("upstream_responses_total", 'status=~"5.."' if failed else "")
    none = series("upstream_failures_total")
    return f"sum by ({by}) (rate({answers}[$__rate_interval]) or rate({none}[$__rate_interval]))"


def money(where: str) -> str:
    return total("estimated_cost_usd_total", where=where)


def hits(by: str = "") -> str:
    return ratio(rate("upstream_tokens_total", by, CACHED), rate("upstream_tokens_total", by, INPUT))


def tokens_of_a_request() -> dict[str, str]:
    return {
        f"{name} {word}": query
        for word, stage in (("before", BEFORE), ("after", AFTER))
        for name, query in quantiles("request_tokens", where=stage, of=PERCENTILES[:2]).items()
    }


OVERVIEW = [
    stat("Requests", "reqps", rate("requests_total")),
    stat("Compacted or replayed", "percentunit", ratio(rate("requests_total", where=APPLIED), rate("requests_total"))),
    stat(
        "Provider errors", "percentunit", ratio(asked("", failed=True), asked("")),
        "Answers of 500 and more, and those that never came or broke off.",
    ),
    stat(
        "Overhead, 99 %", "s", quantiles("overhead_seconds", where=OWN_TIME)["99 %"],
        "What compactd adds, waits for summaries not counted.",
    ),
    stat("Tokens not sent", "short", total("tokens_cleared_total")),
    stat("Saved (estimate)", "currencyUSD", f"{money(SAVED)} - {money(SPENT)}", f"Less what summaries cost. {ESTIMATE}"),
    Panel("Requests by outcome", "reqps", {"{{outcome}}": rate("requests_total", "outcome")}, stacked=True),
    Panel("Requests by format", "reqps", {"{{format}}": rate("requests_total", "format")}, stacked=True),
    Panel("Requests in flight", "short", {"{{instance}}": gauge("inflight_requests", "instance")}, stacked=True),
    Panel(
        "Reasons", "reqps", {"{{outcome}}: {{reason}}": f"topk(10, {rate('requests_total', 'outcome, reason')})"},
        "The ten most frequent ones.",
    ),
    Panel(
        "Overhead", "s", quantiles("overhead_seconds", where=OWN_TIME),
        "From a request's last byte to its forwarding. Those that may have waited for a summary are on the dashboard for compaction.",
    ),
    Panel(
        "Time to the first byte", "s", quantiles("upstream_first_byte_seconds", "upstream", of=PERCENTILES[:2]),
        "From forwarding to the head of the provider's answer.",
    ),
    Panel("Answers of providers", "reqps", {"{{upstream}} {{status}}": rate("upstream_responses_total", "upstream, status")}),
    Panel("Provider errors", "percentunit", {"{{upstream}}": ratio(asked("upstream", failed=True), asked("upstream"))}),
    Panel("No answer", "reqps", {"{{upstream}} {{code}}": rate("upstream_failures_total", "upstream, code")}),
    Panel(
        "Never expected", "reqps",
        {"rejected as {{class}}": rate("rejections_total", "class"), "fault in {{where}}": rate("faults_total", "where")},
        "Compacted requests that a provider refused, and faults that a request survived. Both should be nothing.",
    ),
    Panel("Clients that left", "reqps", {"{{format}}": rate("clients_disconnected_total", "format")}),
    Panel("Sources of counts", "reqps", {"{{source}}": rate("count_source_total", "source")}, stacked=True),
]  # fmt: skip

COMPACTION = [
    stat("Compactions", "short", total("compactions_total")),
    stat("Replays", "short", total("requests_total", where=REPLAYED)),
    stat("Due, but missed", "percentunit", ratio(rate("requests_total", where=MISSED), rate("requests_total", where=DUE))),
    stat(
        "Tokens not sent", "percentunit",
        f"1 - {ratio(rate('request_tokens_sum', where=AFTER), rate('request_tokens_sum', where=BEFORE))}",
        "Of all input tokens that were counted.",
    ),
    stat("Saved (estimate)", "currencyUSD", money(SAVED), ESTIMATE),
    stat("Summaries (estimate)", "currencyUSD", money(SPENT), ESTIMATE),
    Panel("New compactions by strategy", "reqps", {"{{strategy}}": rate("compactions_total", "strategy")}, stacked=True),
    Panel(
        "New compactions by level", "reqps", {"level {{level}}": rate("compactions_total", "level")},
        "1: before a new question. 2: inside a tool loop.", stacked=True,
    ),
    Panel("Due, but missed: why", "reqps", {"{{outcome}}: {{reason}}": rate("requests_total", "outcome, reason", MISSED)}),
    Panel("Tokens of a request", "short", tokens_of_a_request()),
    Panel(
        "Tokens not sent, by strategy", "short", {"{{strategy}}": rate("tokens_cleared_total", "strategy")}, A_SECOND,
        stacked=True,
    ),
    Panel(
        "Tokens not sent, by model", "short", {"{{model}}": f"topk(10, {rate('tokens_cleared_total', 'model')})"}, A_SECOND,
        stacked=True,
    ),
    Panel("Duration of summaries", "s", quantiles("summary_seconds")),
    Panel(
        "Summaries without success", "reqps", {"{{reason}}": rate("summary_failures_total", "reason")},
        "The policy's fallback was taken.",
    ),
    Panel("Tokens of summaries", "short", {"{{direction}}": rate("summary_tokens_total", "direction")}, "A second."),
    Panel(
        "Money (estimates)", "currencyUSD", {"{{kind}}": f"sum by (kind) (increase({series('estimated_cost_usd_total')}[1h]))"},
        f"In the hour before. {ESTIMATE}",
    ),
    Panel(
        "Overhead of new compactions", "s", quantiles("overhead_seconds", where='outcome="compacted"'),
        "With the wait for the summary.",
    ),
    Panel(
        "Refused, or too long", "reqps",
        {"{{format}} refused": rate("rejections_total", "format"), "{{format}} too long": rate("overflows_total", "format")},
        "What providers said; each time it could, compactd sent something better.",
    ),
]  # fmt: skip

CACHING = [
    stat("Cache hits", "percentunit", hits(), HIT_SHARE),
    stat(
        "New prefixes", "percentunit", ratio(rate("compactions_total"), rate("requests_total", where=APPLIED)),
        "New compactions, of all requests that went out compacted. Each changes the cached prefix once; replays keep it.",
    ),
    stat("Replays", "reqps", rate("requests_total", where=REPLAYED)),
    Panel("Cache hits by provider", "percentunit", {"{{upstream}}": hits("upstream")}, HIT_SHARE, width=12),
    Panel("Cache hits by model", "percentunit", {"{{model}}": hits("model")}, HIT_SHARE, width=12),
    Panel(
        "Tokens that providers reported", "short", {"{{kind}}": rate("upstream_tokens_total", "kind")},
        "A second. Cached tokens are part of the input.", width=12,
    ),
    Panel(
        "What changes prefixes", "reqps",
        {
            "new compactions, {{strategy}}": rate("compactions_total", "strategy"),
            "refused and undone": rate("rejections_total"),
            "too long, compacted more": rate("overflows_total"),
        },
        "Events after which a provider sees another prefix than before.", width=12,
    ),
]  # fmt: skip

STATE = [
    stat("Without the store", "none", f"max({series('store_degraded')})", "1: a replica does without it."),
    stat("Look-ups, 99 %", "s", quantiles("store_seconds", where='op="lookup"')["99 %"], "One for each request that is looked at."),
    stat("Failed operations", "percentunit", ratio(rate("store_errors_total"), rate("store_seconds_count"))),
    stat("Archives", "short", total("archives_total", where='result="ok"')),
    Panel("Store operations", "ops", {"{{op}}": rate("store_seconds_count", "op")}, width=12),
    Panel(
        "Store operations that failed", "ops", {"{{op}}": rate("store_errors_total", "op")},
        "Also what took longer than `store.timeout`.", width=12,
    ),
    Panel("Duration, 99 %", "s", quantiles("store_seconds", "op", of=PERCENTILES[2:]), width=12),
    Panel("Duration, median", "s", quantiles("store_seconds", "op", of=PERCENTILES[:1]), width=12),
    Panel(
        "Replicas without their store", "none", {"{{instance}}": gauge("store_degraded", "instance", "max")},
        "1 while the breaker is open.", width=12,
    ),
    Panel("Archives written", "ops", {"{{sink}} {{result}}": rate("archives_total", "sink, result")}, width=12),
]  # fmt: skip

FLEET = [
    stat("Replicas", "none", f"count({series('build_info')})"),
    stat("Stopping", "none", f"sum({series('draining')})"),
    stat("Without store", "none", f"sum({series('store_degraded')})"),
    Panel("Versions", "none", {"{{version}}": gauge("build_info", "version", "count")}, stacked=True),
    Panel("Requests", "reqps", {"{{instance}}": rate("requests_total", "instance")}, stacked=True),
    Panel("Requests in flight", "none", {"{{instance}}": gauge("inflight_requests", "instance")}),
    Panel("Overhead, 99 %", "s", quantiles("overhead_seconds", "instance", OWN_TIME, PERCENTILES[2:])),
    Panel("Provider errors", "reqps", {"{{instance}}": asked("instance", failed=True)}),
    Panel("Stopping", "none", {"{{instance}}": gauge("draining", "instance", "max")}),
    Panel("Compactions", "reqps", {"{{instance}}": rate("compactions_total", "instance")}),
]  # fmt: skip

DASHBOARDS = {"overview": OVERVIEW, "compaction": COMPACTION, "caching": CACHING, "state": STATE, "fleet": FLEET}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def placed(panels: list[Panel]) -> Iterator[tuple[Panel, dict[str, int]]]:
    x = y = below = 0
    for panel in panels:
        if x + panel.width > 24 or (x and panel.height != below):
            x, y = 0, y + below
        yield panel, {"x": x, "y": y, "w": panel.width, "h": panel.height}
        x, below = x + panel.width, panel.height


def drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """One panel as Grafana wants it."""
    defaults: dict[str, Any] = {"unit": panel.unit}
    look: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area", "colorMode": "value"}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none"}
        defaults |= {"min": 0, "custom": {"fillOpacity": 20, "showPoints": "never", "stacking": stacking}}
        look = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.about, "gridPos": place,
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": look,
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
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
