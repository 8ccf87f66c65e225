"""The dashboards: as they are generated, and no panel of them empty in a real Prometheus that scraped a real compactd."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.grafana.generate import FOLDER, files
from tests.deploy.test_prometheus import ALERTS, RULES, rules, unknown
from tests.edge.processes import Process, process
from tests.edge.talks import KEYS, Talk
from tests.edge.wire import PATHS
from tests.ports import free_port
from tests.strict.server import StrictProvider

PROMETHEUS = shutil.which("prometheus")
PATIENCE = 40.0  # seconds
CONVERSATIONS = 2
"""Of each kind in one round of the load."""


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            yield f"{file.stem}: {panel['title']}", panel


def test_dashboards_are_as_they_are_generated() -> None:
    assert {file: file.read_text() for file in FOLDER.iterdir()} == files()


def test_panels_name_what_is_there() -> None:
    for name, panel in panels():
        for target in panel["targets"]:
            assert unknown(target["expr"]) == set(), name


def test_panels_do_not_lie_on_each_other_and_names_are_told_apart() -> None:
    for file in FOLDER.glob("*.json"):
        drawn = json.loads(file.read_text())["panels"]
        cells = [
            (place["x"] + across, place["y"] + down)
            for place in (panel["gridPos"] for panel in drawn)
            for across in range(place["w"])
            for down in range(place["h"])
        ]
        assert len(cells) == len(set(cells)), file.stem
        assert max(x for x, _ in cells) < 24
    uids = [json.loads(file.read_text())["uid"] for file in FOLDER.glob("*.json")]
    assert len(uids) == len(set(uids)) == 5


def test_every_dashboard_has_its_picture() -> None:
    docs = FOLDER.parents[2] / "docs"
    shown = re.findall(r"\((grafana/\w+\.png)\)", (docs / "metrics.md").read_text())
    assert sorted(shown) == [f"grafana/{file.stem}.png" for file in sorted(FOLDER.glob("*.json"))]
    assert [name for name in shown if not (docs / name).stat().st_size] == []


def test_red_begins_where_an_alert_does() -> None:
    bounds = {float(bound) for rule in rules(ALERTS) for bound in re.findall(r"(?:>|==) ([\d.]+)$", rule["expr"], re.M)}
    alarms = {
        step["value"] for _, panel in panels() for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]
    }
    assert alarms == {0.05, 0.1, 0.5, 1}
    assert alarms <= bounds


# A real Prometheus

TRIGGER = {"trigger_threshold": 1_500, "target_threshold": 600}
FAILING = {"strategy": "summarize", "summary_model": "dead:gpt-4o-mini", **TRIGGER}
POLICIES = [
    {"name": "failing", "match": {"headers": {"x-load": "failing"}}, **FAILING},
    {"name": "window", "match": {"formats": ["anthropic-messages"]}, "strategy": "sliding_window", **TRIGGER},
    {"name": "summary", "match": {"formats": ["openai-responses"]}, "strategy": "summarize", **TRIGGER},
    {"name": "clearing", "strategy": "tool_result_clearing", "keep_recent_tool_results": 1, **TRIGGER},
]  # fmt: skip


def configuration(provider: str, folder: Path) -> dict[str, Any]:
    return {
        "upstreams": {
            "provider": {"base_url": provider, "formats": list(PATHS)},
            "dead": {"base_url": "http://127.0.0.1:9", "formats": ["openai-chat"], "api_key": "k"},
        },
        "store": {"url": f"sqlite:///{folder}/compactd.db", "timeout": 5},
        "policies": POLICIES,
        "listen": {"workers": 2},
    }  # fmt: skip


def turns(form: str, words: str) -> Talk:
    talk = Talk(form)
    for number in range(6):
        talk.ask(f"{words} {number}: " + "What is on this page? " * 40).say(f"Page {number}. " + "A line of it. " * 40)
    return talk.ask("And what is on the last one?")


def load(words: str) -> Iterator[tuple[Talk, dict[str, str], str, int]]:
    """Talks, headers, what goes before the path, and the answer's status. `words` make each round's conversations new ones."""
    for number in range(CONVERSATIONS):
        told = f"{words} {number}"
        for form in PATHS:
            looped = Talk(form).ask(f"Read all files. {told}").rounds(8)
            yield from [(looped, {}, "", 200)] * 2  # compacted, then replayed
            yield turns(form, told), {}, "", 200
        yield turns("openai-chat", told), {"x-load": "failing"}, "", 200
        yield turns("gemini", told + " nothing to clear"), {}, "", 200
        yield Talk("openai-chat").ask(f"Is anybody there? {told}"), {}, "/dead", 502
        yield Talk("openai-chat").result("call_0", f"Of no call. {told}"), {}, "", 400


async def played(compactd: Process, words: str) -> set[tuple[str, str]]:
    """The load's outcomes and reasons."""
    seen = set()
    for talk, more, before, status in load(words):
        lines = (line.split(": ", 1) for line in KEYS[talk.form])
        answer = await compactd.http.post(before + PATHS[talk.form], json=talk.body, headers={**dict(lines), **more})
        assert answer.status_code == status, answer.text
        seen.add((answer.headers["x-compactd-outcome"], answer.headers.get("x-compactd-strategy", "")))
    return seen


class Prometheus:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.url = str(http.base_url)

    async def ask(self, query: str) -> list[float]:
        """The values that there are. Raises AssertionError for a query that can't be read."""
        answer = (await self._http.get("/api/v1/query", params={"query": query})).json()
        assert answer["status"] == "success", (query, answer)
        values = [float(sample["value"][1]) for sample in answer["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    async def saw(self, query: str, value: float) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.ask(query) != [value]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@asynccontextmanager
async def prometheus(folder: Path, targets: dict[str, str], every: str = "500ms") -> AsyncIterator[Prometheus]:
    """`targets`: instance -> URL."""
    address = f"127.0.0.1:{free_port()}"
    scraped = [
        {"targets": [url.removeprefix("http://")], "labels": {"instance": name}} for name, url in targets.items()
    ]
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "rule_files": [str(RULES), str(ALERTS)],
        "scrape_configs": [{"job_name": "compactd", "static_configs": scraped}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = (
        "--config.file=prometheus.yml",
        f"--web.listen-address={address}",
        "--storage.tsdb.path=data",
        "--log.level=error",
    )
    running = await asyncio.create_subprocess_exec(str(PROMETHEUS), *options, cwd=folder)
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=10) as http:
            async with asyncio.timeout(PATIENCE):
                while True:
                    with suppress(httpx.TransportError):
                        if (await http.get("/-/ready")).status_code == 200:
                            break
                    await asyncio.sleep(0.05)
            yield Prometheus(http)
    finally:
        running.kill()
        await running.wait()


def asked_now(expression: str) -> str:
    """A panel's query as Grafana would send it, over the minute that the test takes. What did not happen is not left out."""
    expression = expression.removesuffix(" > 0")
    for name, value in {"$__rate_interval": "60s", "$__range": "60s", "$job": ".*", "$instance": ".*"}.items():
        expression = expression.replace(name, value)
    assert not re.search(r"\$\w", expression), expression
    return expression


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed")
async def test_no_panel_and_no_rule_is_empty(tmp_path: Path) -> None:
    """Two rounds of load, each seen by a scrape, on two workers: what is true of a fleet in use is true of this."""
    provider = StrictProvider()
    async with (
        provider.serve() as url,
        process(tmp_path, **configuration(url, tmp_path)) as compactd,
        prometheus(tmp_path, {"compactd": compactd.url}) as watching,
    ):
        count = len([*load("")])
        for number, words in enumerate(("first", "second"), 1):
            seen = await played(compactd, words)
            await watching.saw("sum(compactd_requests_total)", number * count)
        assert {outcome for outcome, _ in seen} == {"passed", "compacted", "replayed", "declined"}
        assert {strategy for _, strategy in seen} == {"", "tool_result_clearing", "sliding_window", "summarize"}
        queries = [(name, target["expr"]) for name, panel in panels() for target in panel["targets"]]
        queries += [(rule["record"], rule["expr"]) for rule in rules(RULES)]
        empty = [(name, query) for name, query in queries if not await watching.ask(asked_now(query))]
    assert len(queries) > 60
    assert empty == []
