"""Real coding agents behind compactd, in a tool loop that outgrows the threshold several times.

The strict provider plays the model: it asks for one shell command after another, and the agent runs each. An agent must come to its end
without a single one of the requests that compactd changed being refused. `npm install` in this folder brings the agents (1.3 GB);
without them the tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.edge.processes import Process, process
from tests.strict.answers import Call, Reply
from tests.strict.server import StrictProvider, reply_in_kind

BINARIES = Path(__file__).parent / "node_modules" / ".bin"
FORMATS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
ROUNDS = 30
PATIENCE = 240.0
"""Seconds for a whole run; it takes about ten on an idle machine."""
SHELLS = ("Bash", "bash", "exec_command", "run_shell_command")
"""What the agents call their shell. `exec_command` calls its argument `cmd`."""


@dataclass(frozen=True)
class Agent:
    """`first`: tokens of its first request, about. `prepare` writes the settings that it reads from its home."""

    name: str
    command: Callable[[str], list[str]]
    first: int
    prepare: Callable[[Path, str], None] | None = None


def claude(_: str) -> list[str]:
    return ["claude", "-p", "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5", "Read all parts."]


def codex(url: str) -> list[str]:
    provider = f'{{name="proxy", base_url="{url}/v1", env_key="OPENAI_API_KEY", wire_api="responses"}}'
    return [
        "codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.1-codex",
        "-c", 'model_provider="proxy"', "-c", f"model_providers.proxy={provider}", "Read all parts.",
    ]  # fmt: skip


def gemini(_: str) -> list[str]:
    return ["gemini", "-p", "Read all parts.", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"]


def opencode(_: str) -> list[str]:
    return ["opencode", "run", "-m", "proxy/gpt-4.1", "Read all parts."]


def pi(_: str) -> list[str]:
    return ["pi", "-p", "--provider", "proxy", "--model", "gpt-4.1", "Read all parts."]


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content))


def gemini_settings(home: Path, _: str) -> None:
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True}}
    write(home / ".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}, **quiet})


def opencode_settings(home: Path, url: str) -> None:
    options = {"baseURL": f"{url}/v1", "apiKey": "key"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"gpt-4.1": {}}}
    write(home / ".config/opencode/opencode.json", {"autoupdate": False, "provider": {"proxy": provider}})


def pi_settings(home: Path, url: str) -> None:
    provider = {"baseUrl": f"{url}/v1", "apiKey": "OPENAI_API_KEY", "api": "openai-completions"}
    write(home / ".pi/agent/models.json", {"providers": {"proxy": {**provider, "models": [{"id": "gpt-4.1"}]}}})


AGENTS = [
    Agent("claude", claude, 28_000),
    Agent("codex", codex, 11_000),
    Agent("gemini", gemini, 13_000, gemini_settings),
    Agent("opencode", opencode, 8_000, opencode_settings),
    Agent("pi", pi, 3_000, pi_settings),
]
POLICIES = [
    {"strategy": "combined", "summary_model": "extractive"},
    {"strategy": "tool_result_clearing"},
    {"strategy": "summarize"},
]


class Model:
    """Asks for `ROUNDS` parts, one shell command each; it counts itself, for the history that it is shown may be compacted."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, form: str, body: dict[str, Any]) -> Reply:
        thinking = reply_in_kind(form, body).thinking
        shell = next((name for name in names(body) if name in SHELLS), None)
        if shell is None:  # a title for the conversation, a summary of it
            return Reply("What was done so far: some parts were read, one after another.")
        if self.asked == ROUNDS:
            return Reply("All parts are read.", thinking=thinking)
        self.asked += 1
        part = f"{sys.executable} -c \"for line in range(120): print('part {self.asked}, line', line, hash(line * {self.asked}))\""
        arguments = {"cmd": part} if shell == "exec_command" else {"command": part, "description": "Read a part"}
        return Reply(f"Reading part {self.asked}.", (Call(shell, arguments),), thinking)


def names(body: dict[str, Any]) -> list[str]:
    """Of the tools that a request offers, in any format."""
    tools = [inner for tool in body.get("tools") or [] for inner in tool.get("functionDeclarations", [tool])]
    return [(tool.get("function") or tool).get("name", "") for tool in tools]


async def run(agent: Agent, proxy: Process, home: Path) -> str:
    """What it prints, once it has ended well."""
    if agent.prepare:
        agent.prepare(home, proxy.url)
    (home / "work").mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": "key", "OPENAI_API_KEY": "key", "GEMINI_API_KEY": "key",
        "ANTHROPIC_BASE_URL": proxy.url, "GOOGLE_GEMINI_BASE_URL": proxy.url, "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip
    program, *arguments = agent.command(proxy.url)
    running = await asyncio.create_subprocess_exec(
        BINARIES / program, *arguments, env=environment, cwd=home / "work",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            said, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
    assert running.returncode == 0, said.decode()[-2000:]
    return said.decode()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["strategy"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_an_agent_never_notices(agent: Agent, policy: dict[str, Any], tmp_path: Path) -> None:
    if not shutil.which(BINARIES / agent.name):
        pytest.skip(f"{agent.name} is not installed: npm install in {BINARIES.parents[1].name}")
    provider = StrictProvider(answer=Model())
    trigger = agent.first + 8_000
    thresholds = {"trigger_threshold": trigger, "target_threshold": trigger - 3_000, "clear_at_least": 0}
    async with (
        provider.serve() as url,
        process(
            tmp_path,
            upstreams={"provider": {"base_url": url, "formats": FORMATS}},
            store={"url": "memory://"},
            policies=[{"name": "loop", **policy, **thresholds}],
        ) as proxy,
    ):
        said = await run(agent, proxy, tmp_path / "home")
        requests = [line for line in proxy.lines if line.get("outcome")]
    assert "All parts are read." in said
    outcomes = [line["outcome"] for line in requests if line["status"] == 200]
    assert outcomes.count("compacted") >= 1
    assert outcomes.count("replayed") >= 5
    assert not set(outcomes) & {"failed", "declined"}
    # An agent's own side requests may be wrong (Gemini CLI looks for loops in a torn history); none that was changed is.
    assert {line["outcome"] for line in requests if line["status"] == 400} <= {"passed"}
    assert max(line.get("tokens_after", 0) for line in requests) < 1.1 * trigger
