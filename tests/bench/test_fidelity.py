"""The fidelity bench runs the real compactor, and says so when it has nothing to run it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def conversation() -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why the jobs fail."}]
    for n in range(30):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "log", "arguments": json.dumps({"job": f"job_{100 + n}"})},
        }
        rows = "\n".join(
            f"row {row} of job_{n} took {row * 7919 % 9973} ms and left error_{row}_{n}" for row in range(40)
        )
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": rows},
        ]
    messages.append({"role": "assistant", "content": "job_103 fails, job_107 is fine."})
    return {
        "id": "one",
        "source": "made/up:here",
        "format": "openai-chat",
        "system": None,
        "tools": None,
        "messages": messages,
    }


def test_without_data_it_says_so_and_is_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fidelity

    monkeypatch.delenv("COMPACTD_FIDELITY_DATA", raising=False)
    monkeypatch.setattr("sys.argv", ["fidelity"])
    assert fidelity.main() == 0
    assert "Nothing was measured" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    import fidelity

    monkeypatch.setattr("sys.argv", ["fidelity", "nowhere.jsonl"])
    assert fidelity.main() == 2


def test_requests_are_compacted_to_their_target_and_judged(tmp_path: Path) -> None:
    import fidelity

    (data := tmp_path / "data.jsonl").write_text(json.dumps(conversation()))
    rows = list(
        fidelity.measure(data, {"compactd": fidelity.METHODS["compactd"], "drop": fidelity.METHODS["drop middle"]})
    )
    assert {(name, saved) for name, saved, *_ in rows} == {
        (name, saved) for name in ("compactd", "drop") for saved in fidelity.SAVED
    }
    for name, saved, source, reached, row in rows:
        assert source == "made/up"
        assert reached == (1 - row.saved <= (1 - saved) * (1 + fidelity.REACHED) + 0.001)
        assert row.saved / row.requests == pytest.approx(saved, abs=0.15)
        assert row.questions == row.valid == row.requests == 1
        assert 0 < row.all.needed >= row.all.kept >= row.all.in_context
        if name == "compactd":
            assert row.all.kept == row.all.needed
