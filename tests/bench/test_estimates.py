"""The estimates bench: a provider with another scale than ours is reckoned with, and what it measures is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.ports import Recorder


def conversation(number: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Find out why job {number} fails."}]
    for n in range(14):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "log", "arguments": json.dumps({"job": n})}}
        rows = "\n".join(f"row {row} of job {n} took {row * 7919 % 9973} ms" for row in range(30))
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": rows},
        ]
    messages.append({"role": "assistant", "content": "The disk is full."})
    return {"id": f"conversation {number}", "format": "openai-chat", "messages": messages}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "conversations.jsonl"
    file.write_text("".join(json.dumps(conversation(number)) + "\n" for number in range(4)))
    return file


async def test_level_2_is_held_at_another_ratio(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from estimates import main, parsed

    assert await main(parsed(["--data", str(data), "--ratios", "1.0", "1.4", "--cold"])) == 0
    told = capsys.readouterr().out
    for kind in (
        "x 1.0",
        "x 1.4",
        "cold",
        "usage, level 2, whole",
        "usage, level 2, new",
        "level 2, openai-chat",
        "held",
    ):
        assert kind in told


async def test_what_is_far_off_misses_the_bar(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import estimates

    monkeypatch.setattr(estimates, "BAR", 0.0)
    assert await estimates.main(estimates.parsed(["--data", str(data), "--ratios", "1.4"])) == 1
    assert "missed at 1.4" in capsys.readouterr().out


def test_the_bench_is_told_all_that_a_recorder_is() -> None:
    from estimates import NullRecorder

    assert {name for name in vars(Recorder) if not name.startswith("_")} <= set(dir(NullRecorder))
