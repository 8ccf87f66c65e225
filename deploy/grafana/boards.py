"""What the dashboards show: for each a list of panels, a panel a title, a unit and its queries by their legend.

How a panel then looks is the same for all of a kind, and generate.py's matter. What is frequent is shown a second, what is rare a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

CHOSEN = 'job=~"$job", instance=~"$instance"'
PERCENTILES = (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99))


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: legend -> expression. `kind`: timeseries or stat of Grafana. `stacked` for parts of a whole. `alarm`: where the alert that
    looks at this begins. `nothing`: what the panel says where there are no series, because what it counts has not happened."""

    title: str
    unit: str
    queries: dict[str, str]
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    alarm: float | None = None
    nothing: str = "None"


def stat(title: str, unit: str, query: str, about: str = "", alarm: float | None = None) -> Panel:
    return Panel(title, unit, {title: query}, about, "stat", height=5, alarm=alarm)


def series(metric: str, where: str = "") -> str:
    return f"compactd_{metric}{{{', '.join(filter(None, (CHOSEN, where)))}}}"


def rate(metric: str, by: str = "", where: str = "") -> str:
    """A second."""
    return f"sum by ({by}) (rate({series(metric, where)}[$__rate_interval]))"


def minutely(metric: str, by: str = "", where: str = "") -> str:
    """A minute, of what is rare; kinds that did not happen are left out."""
    return f"60 * {rate(metric, by, where)} > 0"


def total(metric: str, by: str = "", where: str = "") -> str:
    """Over the time that the dashboard shows."""
    return f"sum by ({by}) (increase({series(metric, where)}[$__range]))"


def gauge(metric: str, by: str, how: str = "sum") -> str:
    return f"{how} by ({by}) ({series(metric)})"


def quantiles(
    metric: str, by: str = "", where: str = "", of: tuple[tuple[str, float], ...] = PERCENTILES
) -> dict[str, str]:
    legend = f"{{{{{by}}}}}" if by else ""
    buckets = rate(f"{metric}_bucket", f"{by}, le" if by else "le", where)
    named = {name: f"histogram_quantile({share}, {buckets})" for name, share in of}
    return {f"{legend} {name}".strip() if len(of) > 1 or not by else legend: query for name, query in named.items()}


def share(part: str, whole: str) -> str:
    """Also where there is no series for the part yet: then it is nothing."""
    return f"({part} or 0 * {whole}) / {whole}"


APPLIED, REPLAYED = 'outcome=~"compacted|replayed"', 'outcome="replayed"'
MISSED, DUE = 'outcome=~"declined|failed"', 'outcome=~"compacted|declined|failed"'
OWN_TIME = 'outcome!~"compacted|observed|failed"'  # without the wait for a summary
RARE, REFUSED, UNSOUND = 'reason!~"below_threshold|checkpoint"', 'status=~"[45].."', 'class!="original_too"'
SAVED, SPENT = 'kind="saved"', 'kind="spent_on_summaries"'
CACHED, INPUT = 'kind="cache_read"', 'kind="input"'
BEFORE, AFTER = 'stage="before"', 'stage="after"'

HIT_SHARE = "Input tokens that the provider had in its prompt cache, of all that were sent."
ESTIMATE = "An estimate by public list prices, no invoice. Models without a known price count for nothing."
ERRORS = "Answers of 500 and more, and those that never came or broke off."
OUTCOMES = "`declined` and `failed`: a compaction was due, and the client's own request went on."
A_SECOND = "A second, replays included."


def asked(by: str, failed: bool = False) -> str:
    """Requests that went to providers; `failed`: those answered with 500 and more, or not at all. The two parts share no label set."""
    answers = series("upstream_responses_total", 'status=~"5.."' if failed else "")
    none = series("upstream_failures_total")
    return f"sum by ({by}) (rate({answers}[$__rate_interval]) or rate({none}[$__rate_interval]))"


def failing(by: str = "") -> str:
    return share(asked(by, failed=True), asked(by))


def money(where: str) -> str:
    return total("estimated_cost_usd_total", where=where)


def hits(by: str = "") -> str:
    return share(rate("upstream_tokens_total", by, CACHED), rate("upstream_tokens_total", by, INPUT))


def tokens_of_a_request() -> dict[str, str]:
    return {
        f"{name} {word}": query
        for word, stage in (("before", BEFORE), ("after", AFTER))
        for name, query in quantiles("request_tokens", where=stage, of=PERCENTILES[:2]).items()
    }


OVERVIEW = [
    stat("Requests", "reqps", rate("requests_total")),
    stat("Compacted or replayed", "percentunit", share(rate("requests_total", where=APPLIED), rate("requests_total"))),
    stat("Provider errors", "percentunit", failing(), ERRORS, alarm=0.05),
    stat(
        "Overhead, 99 %", "s", quantiles("overhead_seconds", where=OWN_TIME)["99 %"],
        "What compactd adds, waits for summaries not counted.", alarm=0.1,
    ),
    stat("Tokens not sent", "short", total("tokens_cleared_total")),
    stat("Saved (estimate)", "currencyUSD", f"{money(SAVED)} - {money(SPENT)}", f"Less what summaries cost. {ESTIMATE}"),
    Panel("Requests by outcome", "reqps", {"{{outcome}}": rate("requests_total", "outcome")}, OUTCOMES, stacked=True),
    Panel("Requests by format", "reqps", {"{{format}}": rate("requests_total", "format")}, stacked=True),
    Panel("Requests in flight", "short", {"{{instance}}": gauge("inflight_requests", "instance")}, stacked=True),
    Panel(
        "Reasons", "reqps", {"{{outcome}}: {{reason}}": f"topk(10, {rate('requests_total', 'outcome, reason', RARE)})"},
        "Of requests that were neither short enough nor simply replayed; the ten most frequent ones.",
    ),
    Panel(
        "Overhead", "s", quantiles("overhead_seconds", where=OWN_TIME),
        "From a request's last byte to its forwarding. Those that may have waited for a summary are on the dashboard for compaction.",
        alarm=0.1,
    ),
    Panel(
        "Time to the first byte", "s", quantiles("upstream_first_byte_seconds", "upstream", of=PERCENTILES[:2]),
        "From forwarding to the head of the provider's answer.",
    ),
    Panel(
        "Provider errors", "percentunit", {"{{upstream}}": failing("upstream")}, ERRORS,
        alarm=0.05,
    ),
    Panel(
        "Refused by providers", "reqpm", {"{{upstream}} {{status}}": minutely("upstream_responses_total", "upstream, status", REFUSED)},
        "Answers of 400 and more that went to clients.", stacked=True,
    ),
    Panel(
        "No answer", "reqpm", {"{{upstream}} {{code}}": minutely("upstream_failures_total", "upstream, code")},
        "Providers that could not be reached, were too late, or broke off.", stacked=True,
    ),
    Panel(
        "Never expected", "reqpm",
        {
            "rejected as {{class}}": minutely("rejections_total", "class", UNSOUND),
            "fault in {{where}}": minutely("faults_total", "where"),
        },
        "Compacted requests that a provider refused though it took the original, and faults that a request survived.",
        stacked=True, nothing="None, as it should be",
    ),
    Panel("Clients that left", "reqpm", {"{{format}}": minutely("clients_disconnected_total", "format")}, stacked=True),
    Panel("Sources of counts", "reqps", {"{{source}}": rate("count_source_total", "source")}, stacked=True),
]  # fmt: skip

COMPACTION = [
    stat("Compactions", "locale", total("compactions_total")),
    stat("Replays", "locale", total("requests_total", where=REPLAYED)),
    stat(
        "Due, but missed", "percentunit", share(total("requests_total", where=MISSED), total("requests_total", where=DUE)),
        "Of the compactions that were due in all the time that is shown.", alarm=0.5,
    ),
    stat(
        "Tokens not sent", "percentunit",
        f"1 - {rate('request_tokens_sum', where=AFTER)} / {rate('request_tokens_sum', where=BEFORE)}",
        "Of all input tokens that were counted.",
    ),
    stat("Saved (estimate)", "currencyUSD", money(SAVED), ESTIMATE),
    stat("Summaries (estimate)", "currencyUSD", money(SPENT), ESTIMATE),
    Panel("New compactions by strategy", "opm", {"{{strategy}}": minutely("compactions_total", "strategy")}, stacked=True),
    Panel(
        "New compactions by level", "opm", {"level {{level}}": minutely("compactions_total", "level")},
        "1: before a new question. 2: inside a tool loop.", stacked=True,
    ),
    Panel(
        "Due, but missed: why", "reqpm", {"{{outcome}}: {{reason}}": minutely("requests_total", "outcome, reason", MISSED)},
        "The client's own request went to the provider.", stacked=True,
    ),
    Panel("Tokens of a request", "short", tokens_of_a_request(), "As the client sent it, and as it was forwarded."),
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
        "Summaries without success", "opm", {"{{reason}}": minutely("summary_failures_total", "reason")},
        "The policy's fallback was taken.", stacked=True,
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
        "Refused, or too long", "reqpm",
        {"{{format}} refused": minutely("rejections_total", "format"), "{{format}} too long": minutely("overflows_total", "format")},
        "What providers said; each time it could, compactd sent something better.", stacked=True,
    ),
]  # fmt: skip

CACHING = [
    stat("Cache hits", "percentunit", hits(), HIT_SHARE),
    stat(
        "New prefixes", "percentunit", share(rate("compactions_total"), rate("requests_total", where=APPLIED)),
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
        "What changes prefixes", "opm",
        {
            "new compactions, {{strategy}}": minutely("compactions_total", "strategy"),
            "refused and undone": minutely("rejections_total"),
            "too long, compacted more": minutely("overflows_total"),
        },
        "Events after which a provider sees another prefix than before.", width=12, stacked=True,
    ),
]  # fmt: skip

STATE = [
    stat("Without the store", "none", f"sum({series('store_degraded')})", "Replicas that do without it now.", alarm=1),
    stat("Look-ups, 99 %", "s", quantiles("store_seconds", where='op="lookup"')["99 %"], "One for each request that is looked at."),
    stat("Failed operations", "percentunit", share(rate("store_errors_total"), rate("store_seconds_count"))),
    stat("Archives", "locale", total("archives_total", where='result="ok"')),
    Panel("Store operations", "ops", {"{{op}}": rate("store_seconds_count", "op")}, width=12),
    Panel(
        "Store operations that failed", "opm", {"{{op}}": minutely("store_errors_total", "op")},
        "Also what took longer than `store.timeout`.", width=12, stacked=True,
    ),
    Panel("Duration, 99 %", "s", quantiles("store_seconds", "op", of=PERCENTILES[2:]), width=12),
    Panel("Duration, median", "s", quantiles("store_seconds", "op", of=PERCENTILES[:1]), width=12),
    Panel(
        "Replicas without their store", "none", {"{{instance}}": gauge("store_degraded", "instance", "max")},
        "1 while the breaker is open.", width=12, stacked=True,
    ),
    Panel("Archives written", "opm", {"{{sink}} {{result}}": minutely("archives_total", "sink, result")}, width=12, stacked=True),
]  # fmt: skip

FLEET = [
    stat("Replicas", "none", f"count({series('build_info')})"),
    stat("Stopping", "none", f"sum({series('draining')})"),
    stat("Without the store", "none", f"sum({series('store_degraded')})", alarm=1),
    Panel("Versions", "none", {"{{version}}": gauge("build_info", "version", "count")}, "Replicas of each.", stacked=True),
    Panel("Requests", "reqps", {"{{instance}}": rate("requests_total", "instance")}, stacked=True),
    Panel("Requests in flight", "none", {"{{instance}}": gauge("inflight_requests", "instance")}, stacked=True),
    Panel("Overhead, 99 %", "s", quantiles("overhead_seconds", "instance", OWN_TIME, PERCENTILES[2:]), alarm=0.1),
    Panel("Provider errors", "percentunit", {"{{instance}}": failing("instance")}, ERRORS, alarm=0.05),
    Panel("Compactions", "opm", {"{{instance}}": minutely("compactions_total", "instance")}, stacked=True),
    Panel(
        "Due, but missed", "reqpm", {"{{instance}}": minutely("requests_total", "instance", MISSED)},
        "The client's own request went to the provider.", stacked=True,
    ),
    Panel(
        "Without the store", "none", {"{{instance}}": gauge("store_degraded", "instance", "max")},
        "1 while the breaker is open.", stacked=True,
    ),
    Panel(
        "Stopping", "none", {"{{instance}}": gauge("draining", "instance", "max")}, "1 while running requests end.", stacked=True
    ),
]  # fmt: skip

DASHBOARDS = {"overview": OVERVIEW, "compaction": COMPACTION, "caching": CACHING, "state": STATE, "fleet": FLEET}
