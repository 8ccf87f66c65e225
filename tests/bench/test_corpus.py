"""The corpus is the same everywhere, has its sizes to the byte, and is what an agent could have sent."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_corpus_is_the_same_in_every_process(tmp_path: Path) -> None:
    written = []
    for seed in ("1", "2"):
        directory = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, str(BENCH / "corpus.py"), str(directory), "2k", "100k"]
        subprocess.run(command, check=True, env=environment)
        written.append({path.name: path.read_bytes() for path in sorted(directory.iterdir())})
    assert written[0] == written[1]
    assert len(written[0]) == 12


def test_corpus_is_the_same_on_every_machine() -> None:
    import corpus

    digest = hashlib.sha256(corpus.body("chat", "100k") + corpus.body("anthropic", "100k", cold=True)).hexdigest()
    assert digest.startswith("d9cd5f38c45fadc6")


KINDS: list[dict[str, bool]] = [{}, {"stream": True}, {"cold": True}]


@pytest.mark.parametrize("shape", ["chat", "anthropic"])
@pytest.mark.parametrize(
    ("size", "kind"), [*((size, kind) for size in ("2k", "100k", "1m") for kind in KINDS), ("4m", {})], ids=str
)
def test_bodies_are_json_of_their_size(shape: str, size: str, kind: dict[str, bool]) -> None:
    import corpus

    raw = corpus.body(shape, size, **kind)
    request = json.loads(raw)
    assert len(raw) == {"2k": 2_000, "100k": 100_000, "1m": 1_000_000, "4m": 4_000_000}[size]
    assert request.get("stream", False) == kind.get("stream", False)
    assert request["messages"][-1]["role"] == "user"
    assert corpus.SALT in json.dumps(request["messages"][-1])
    if not kind.get("cold"):
        assert raw.count(corpus.SALT.encode()) == 1


def test_a_cold_body_has_a_salt_in_every_message() -> None:
    import corpus

    for shape in corpus.SHAPES:
        messages = json.loads(corpus.body(shape, "100k", cold=True))["messages"]
        assert all(corpus.SALT in json.dumps(message) for message in messages if message["role"] != "system")


def test_chat_history_is_well_formed() -> None:
    import corpus

    messages = json.loads(corpus.body("chat", "1m"))["messages"]
    due: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
            continue
        assert not due
        due = [call["id"] for call in message.get("tool_calls", [])]
        assert all(json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", []))
    roles = [message["role"] for message in messages]
    assert not due
    assert roles.count("user") > 5
    assert not any(a == b == "user" for a, b in pairwise(roles))


def test_anthropic_history_is_well_formed() -> None:
    import corpus

    messages = json.loads(corpus.body("anthropic", "1m"))["messages"]
    due: list[str] = []
    for position, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[position % 2]
        answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert answered == due
        due = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
