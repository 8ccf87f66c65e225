"""The snippets of "Getting started" run as they stand, against a compactd with a strict provider behind it; only the address is another.

A Python snippet whose SDK is not installed is skipped. JavaScript ones run where COMPACTD_NODE_MODULES names a folder `node_modules` with
their SDKs in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.edge.routing import Router
from app.formats import FORMATS
from app.settings import load
from tests.docs.pages import ROOT, blocks, page, section
from tests.edge.wire import Running, compactd, configured
from tests.strict.server import StrictProvider

PAGE = page("getting-started.md")
ADDRESS = "http://127.0.0.1:8787"
NODE_MODULES = os.environ.get("COMPACTD_NODE_MODULES", "")
KEYS = {f"{name}_API_KEY": "k" for name in ("OPENAI", "AZURE_OPENAI", "ANTHROPIC", "GEMINI")}
QUIET = {"LANGSMITH_TRACING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


@asynccontextmanager
async def behind() -> AsyncIterator[tuple[StrictProvider, Running]]:
    provider = StrictProvider()
    async with provider.serve() as url:
        one = {"base_url": url, "formats": list(FORMATS)}
        async with compactd(configured(url, upstreams={"provider": one, "azure": one}), patience=90) as proxy:
            yield provider, proxy


async def run(command: list[str], folder: Path) -> str:
    """What a program prints; it sees no proxy of the machine and no key but the made ones."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, env={**kept, **KEYS, **QUIET}, capture_output=True, text=True, timeout=80, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    return str(done.stdout)


def wanted(snippet: str) -> list[str]:
    return re.findall(r"^(?:from|import) (\w+(?:\.\w+)?)", snippet, re.MULTILINE)


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def titled(language: str) -> list[Any]:
    return [
        pytest.param(code, id="-".join(sorted(set(wanted(code)))) or str(at))
        for at, code in enumerate(blocks(PAGE, language))
    ]


def taken(provider: StrictProvider) -> None:
    """It was asked, in a format that is looked at, and found nothing to complain of."""
    asked = [seen for seen in provider.requests if seen.method == "POST"]
    assert asked
    assert [(seen.status, seen.violations) for seen in asked] == [(200, [])] * len(asked)
    assert all(seen.form in FORMATS for seen in asked)


@pytest.mark.parametrize("snippet", titled("python"))
async def test_a_python_snippet_runs(snippet: str, tmp_path: Path) -> None:
    absent = [module for module in wanted(snippet) if not installed(module)]
    if absent:
        pytest.skip(f"{absent[0]} is not installed")
    async with behind() as (provider, proxy):
        (tmp_path / "snippet.py").write_text(snippet.replace(ADDRESS, proxy.url))
        said = await run([sys.executable, "snippet.py"], tmp_path)
        assert said.strip()
        assert proxy.metric("inflight_requests") == 0
        taken(provider)


@pytest.mark.skipif(not NODE_MODULES or shutil.which("node") is None, reason="COMPACTD_NODE_MODULES names no SDKs")
@pytest.mark.parametrize("snippet", blocks(PAGE, "js"))
async def test_a_javascript_snippet_runs(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    async with behind() as (provider, proxy):
        (tmp_path / "snippet.mjs").write_text(snippet.replace(ADDRESS, proxy.url))
        assert "Read 1 items." in await run(["node", "snippet.mjs"], tmp_path)
        taken(provider)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl_shows_what_the_page_shows(tmp_path: Path) -> None:
    command = next(block for block in blocks(PAGE, "sh") if block.startswith("curl"))
    shown = next(block for block in blocks(PAGE, "text") if block.startswith("x-compactd"))
    async with behind() as (provider, proxy):
        said = await run(["bash", "-c", command.replace(ADDRESS, proxy.url)], tmp_path)
        taken(provider)
    assert set(shown.split("\n")) <= set(said.replace("\r", "").split("\n"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_the_first_look_at_a_saved_request_works(tmp_path: Path) -> None:
    """Of "Troubleshooting"."""
    command = blocks(page("troubleshooting.md"), "sh")[0]
    shutil.copy(ROOT / "docs" / "examples" / "agent.json", tmp_path / "request.json")
    async with behind() as (provider, proxy):
        said = await run(["bash", "-c", command.replace(ADDRESS, proxy.url)], tmp_path)
        taken(provider)
    assert {"x-compactd-outcome", "x-compactd-reason"} <= {line.partition(":")[0] for line in said.splitlines()}


def served(url: str) -> set[str]:
    """The formats of the conversation paths below a base URL, as the clients that have it complete them."""
    path = url.removeprefix(ADDRESS)
    ends = ("/chat/completions", "/responses", "/v1/messages", "/messages", "/v1beta/models/m:generateContent")
    return {form.name for end in ends for form in FORMATS.values() if form.target(path + end)}


def test_codex_has_what_it_needs() -> None:
    (block,) = blocks(PAGE, "toml")
    provider = tomllib.loads(block)["model_providers"]["compactd"]
    assert provider["wire_api"] == "responses"
    assert "openai-responses" in served(provider["base_url"])


def test_settings_in_json_lead_to_compactd() -> None:
    found = [one for block in blocks(PAGE, "json") for one in re.findall(r'"base(?:URL|Url)": "([^"]+)"', block)]
    assert all(json.loads(block) for block in blocks(PAGE, "json"))
    assert len(found) == 4
    assert all(served(url) for url in found)


def test_the_keys_example_is_sound(tmp_path: Path) -> None:
    (block,) = blocks(section(PAGE, "Keys"), "yaml")
    file = tmp_path / "compactd.yaml"
    file.write_text(block)
    settings = load(file, {"OPENAI_API_KEY": "sk", "CLIENT_KEY": "one", "ANN_KEY": "two"})
    assert settings.upstreams["openai"].brings_credentials
    assert not settings.upstreams["anthropic"].brings_credentials
    assert settings.auth.clients["ann"].policy == "default"
    assert yaml.safe_load(block)["auth"]["keys"] == ["${CLIENT_KEY}"]


def test_requests_go_to_the_provider_that_is_meant(tmp_path: Path) -> None:
    (block,) = blocks(section(PAGE, "More providers"), "yaml")
    file = tmp_path / "compactd.yaml"
    file.write_text(block)
    router = Router(load(file, {}))

    def taken_by(path: str, model: str = "gpt-4o") -> str:
        route = router.route(path.encode(), False)
        assert route
        assert route.target
        return router.by_model(route, model)

    assert taken_by("/azure/openai/deployments/gpt-4o/chat/completions") == "azure"
    assert taken_by("/openrouter/v1/chat/completions") == "openrouter"
    assert taken_by("/local/v1/chat/completions") == taken_by("/v1/chat/completions", "my-model-7b") == "local"
    assert taken_by("/v1/chat/completions") == "openai"
    named = re.findall(r"^\| `(\w+)` \|", section(PAGE, "More providers"), re.MULTILINE)
    assert set(named) == set(load(file, {}).upstreams) - {"openai", "anthropic", "gemini"}


def test_a_lower_threshold_can_be_set_as_shown() -> None:
    given = dict(re.findall(r"\b(COMPACTD_\w+)=(\d+)", PAGE))
    for file in (None, ROOT / "config" / "compactd.yaml"):
        policy = load(file, given).policies[0]
        assert (policy.trigger_threshold, policy.target_threshold) == (2_000, 1_000)


def test_its_address_is_the_default_one() -> None:
    assert load(None, {}).public_base == ADDRESS
    assert set(re.findall(r"http://127\.0\.0\.1:\d+", PAGE)) == {ADDRESS}
