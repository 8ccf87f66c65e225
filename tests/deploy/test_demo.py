"""The demonstration: its stories are what providers accept, and its run is a real one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import shop
from deploy.demo.__main__ import reply, steps
from deploy.demo.clients import Chat, Client, Messages
from deploy.demo.story import STORIES, TOOLS, Story
from deploy.demo.tally import Tally
from tests.strict import VIOLATIONS
from tests.strict.answers import Answer, chat, messages
from tests.strict.prefix_cache import Usage
from tests.strict.server import Seen

ROOT = Path(__file__).parents[2]
GRAMMARS = {"openai-chat": chat, "anthropic-messages": messages}


def bodies(story: Story, kind: type[Client]) -> list[dict[str, Any]]:
    """What a client sends in a story, with the provider's answers in their real grammar."""
    sent = []
    for number, (client, step) in enumerate(steps(story)):
        if not isinstance(client, kind):
            continue
        sent.append(json.loads(json.dumps(client.request())))
        answer = Answer(reply(step, number), Usage(10), "demo", f"{number:024x}")
        client.answered(GRAMMARS[client.format].whole(answer))
        if step.calls:
            client.tools_answered(step.calls)
    return sent


@pytest.mark.parametrize("kind", [Chat, Messages])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_is_what_a_provider_accepts(story: Story, kind: type[Client]) -> None:
    sent = bodies(story, kind)
    assert len(sent) == sum(len(turn.steps) for turn in story.turns)
    assert [VIOLATIONS[kind.format](body) for body in sent] == [[] for _ in sent]


@pytest.mark.parametrize("kind", [Chat, Messages])
def test_every_request_carries_the_whole_history(kind: type[Client]) -> None:
    counts = [len(body["messages"]) for body in bodies(STORIES[0], kind)]
    assert counts == sorted(set(counts))


def test_every_run_says_the_same() -> None:
    assert bodies(STORIES[0], Chat) == bodies(STORIES[0], Chat)


def test_tools_are_called_as_they_are_declared() -> None:
    calls = [call for story in STORIES for turn in story.turns for step in turn.steps for call in step.calls]
    assert {call.name for call in calls} == set(TOOLS)
    assert all(set(call.arguments) <= set(TOOLS[call.name][1]) for call in calls)
    assert all(call.result for call in calls)


def test_files_and_search_show_the_same_line() -> None:
    found = shop.search(r"quantize\(CENT, rounding=ROUND_HALF_EVEN")
    path, number, line = found.split(":", 2)
    assert f"{number:>4}  {line.removeprefix(' ')}" in shop.read_file(path)


def test_a_test_run_counts_what_it_lists() -> None:
    text = shop.run_tests(failing="reported_order", extra=("reported_order",))
    listed = re.findall(r"^tests/\S+ (PASSED|FAILED)", text, re.MULTILINE)
    assert f"collected {len(listed)} items" in text
    assert f"1 failed, {len(listed) - 1} passed" in text
    assert listed.count("FAILED") == 1


def seen(*texts: str, status: int = 200) -> Seen:
    history = [{"role": "user", "content": text} for text in texts]
    return Seen("POST", "/v1/chat/completions", "", (), b"", body={"messages": history}, model="demo", status=status)


def test_a_history_that_changed_without_a_compaction_is_a_prefix_break() -> None:
    tally = Tally(window=100)
    tally.arrived(seen("a", "b"), compacted=False)
    tally.arrived(seen("a", "b", "c"), compacted=False)
    assert tally.prefix_breaks == 0
    tally.arrived(seen("note", "c"), compacted=True)
    tally.arrived(seen("note", "c", "d"), compacted=False)
    assert tally.prefix_breaks == 0
    tally.arrived(seen("another note", "c", "d"), compacted=False)
    assert tally.prefix_breaks == 1


def test_a_refused_request_counts_as_rejected() -> None:
    tally = Tally(window=100)
    tally.arrived(seen("a", status=400), compacted=False)
    assert tally.rejected == 1


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.demo", "--plain", "--folder", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)


def test_the_run(tmp_path: Path) -> None:
    done = run(tmp_path / "demo", "--requests", "26", "--window", "8000")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines if re.match(r"\s+\d+  (chat|anthropic)", line)]
    assert [int(row[0]) for row in rows] == list(range(1, 27))
    assert {row[1] for row in rows if "compacted" in row} == {"chat", "anthropic"}
    assert "26 answered, 0 rejected by the provider, 0 failed" in done.stdout
    assert " 0 prefix breaks" in done.stdout
    assert "opened just now" in done.stdout
    listed = subprocess.run(
        [Path(sys.executable).with_name("compactd"), "archive", "list", "--config", tmp_path / "demo" / "compactd.yaml"],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    archives = re.findall(r"compaction_\S+", listed.stdout)
    assert archives
    assert any(archive in done.stdout for archive in archives)


def test_a_request_that_the_provider_refuses_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--requests", "4", "--window", "450")
    assert done.returncode == 1
    assert "failed" in done.stdout
