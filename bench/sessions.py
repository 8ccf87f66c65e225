"""What a long session costs through compactd, relative to sending it all, and what the model still knows at its end.

An 80-step session is played request by request, full history each time, in all four formats and two shapes: `chat` (a question, a tool
call, an answer, 80 times) and `agentic` (one question, 80 tool rounds). Costs are cache-aware, in units of an uncached input token of a
provider that charges 1.25 for writing its cache and 0.1 for reading it: what a request shares with the one before it, item by item from
the front, counts as cached. A fact is planted in every user message and in every tool result; at the end they are looked for in what is
forwarded.

    python bench/sessions.py [--window 40000] [--policy '{"keep_recent_tool_results": 3}']   (on top of the frugal policy below)
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.compactor import Compactor
from app.core import tokens
from app.edge.preview import Hearer, OfflineSummarizer
from app.edge.replay import Bill
from app.edge.stores.guarded import Guarded
from app.edge.stores.memory import MemoryStore
from app.formats import FORMATS
from app.formats.reading import open_body
from app.registry import Registry
from app.request import Ask
from app.settings import load

STEPS = 80
WORDS = (  # noqa: SIM905
    "order shipment invoice retry queue worker shard index cursor ledger batch tenant replica schema migration payload header token "
    "cache router handler parser planner bucket window offset segment commit branch release deploy rollback metric alert"
).split()
FRUGAL = {
    "strategy": "combined",
    "combined_order": ["tool_result_clearing", "summarize"],
    "summary_model": "extractive",
    "trigger_threshold": 17_200,
    "target_threshold": 4_400,
    "fold_rounds_above": 5_000,
    "keep_recent_tool_results": 1,
    "keep_user_messages": 150,
    "keep_values": 3_000,
}
"""Steps that are large and rare, about one in eleven rounds, down to a quarter; a long turn is folded as soon as it stays above that."""


def fact(kind: str, step: int) -> str:
    """A value that can't be guessed, such as `UF-3-9c41d2`."""
    return f"{kind}-{step}-{hashlib.sha256(f'{kind}{step}'.encode()).hexdigest()[:6]}"


def prose(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def result_text(step: int) -> str:
    """A tool result of some 1,500 tokens with one line that matters."""
    lines = [f"{n:4d} {prose(step * 1000 + n, 12)}" for n in range(1, 90)]
    lines[step % 80] = f"{step % 80 + 1:4d} assigned reference {fact('TF', step)} to account {step * 37 + 1000}"
    return "\n".join(lines)


class Script:
    """A session as neutral steps; `history(form, n)` writes what stands before the n-th answer in a format."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def requests(self) -> list[list[tuple[str, Any]]]:
        talk: list[tuple[str, Any]] = []
        asked = []
        for step in range(STEPS):
            if self.shape == "chat" or step == 0:
                talk.append(("user", f"Step {step}: please check {prose(step, 20)}. Remember {fact('UF', step)}."))
                if self.shape == "chat":
                    asked.append(list(talk))
            talk.append(("call", (f"call_{step}", "read", {"path": f"src/module_{step}.py"})))
            talk.append(("result", (f"call_{step}", "read", result_text(step))))
            asked.append(list(talk))
            if self.shape == "chat":
                talk.append(
                    (
                        "assistant",
                        f"Done with step {step}: {prose(step + 500, 40)}. The reference is {fact('TF', step)}.",
                    )
                )
        return asked


def body(form: str, talk: list[tuple[str, Any]]) -> bytes:
    write = {"openai-chat": _chat, "anthropic-messages": _anthropic, "openai-responses": _responses, "gemini": _gemini}[
        form
    ]
    return json.dumps(write(talk)).encode()


def _chat(talk: list[tuple[str, Any]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "system", "content": "You are careful."}]
    for kind, said in talk:
        if kind in ("user", "assistant"):
            items.append({"role": kind, "content": said})
        elif kind == "call":
            call = {"id": said[0], "type": "function", "function": {"name": said[1], "arguments": json.dumps(said[2])}}
            items.append({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            items.append({"role": "tool", "tool_call_id": said[0], "content": said[2]})
    return {"model": "bench", "messages": items}


def _anthropic(talk: list[tuple[str, Any]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for kind, said in talk:
        if kind in ("user", "assistant"):
            items.append({"role": kind, "content": said})
        elif kind == "call":
            block = {"type": "tool_use", "id": said[0], "name": said[1], "input": said[2]}
            items.append({"role": "assistant", "content": [block]})
        else:
            items.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": said[0], "content": said[2]}]}
            )
    return {"model": "bench", "max_tokens": 1000, "system": "You are careful.", "messages": items}


def _responses(talk: list[tuple[str, Any]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for kind, said in talk:
        if kind == "user":
            items.append({"role": "user", "content": said})
        elif kind == "assistant":
            items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]})
        elif kind == "call":
            items.append(
                {"type": "function_call", "call_id": said[0], "name": said[1], "arguments": json.dumps(said[2])}
            )
        else:
            items.append({"type": "function_call_output", "call_id": said[0], "output": said[2]})
    return {"model": "bench", "instructions": "You are careful.", "input": items}


def _gemini(talk: list[tuple[str, Any]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for kind, said in talk:
        if kind in ("user", "assistant"):
            items.append({"role": "user" if kind == "user" else "model", "parts": [{"text": said}]})
        elif kind == "call":
            items.append({"role": "model", "parts": [{"functionCall": {"name": said[1], "args": said[2]}}]})
        else:
            answer = {"functionResponse": {"name": said[1], "response": {"output": said[2]}}}
            items.append({"role": "user", "parts": [answer]})
    return {"systemInstruction": {"parts": [{"text": "You are careful."}]}, "contents": items}


@cache
def counted(item: bytes) -> int:
    return tokens.count(item.decode(), "o200k_base")


async def play(form: str, shape: str, window: int, policy: dict[str, Any]) -> dict[str, Any]:
    settings = load(None, {}, {"models": {"*": {"context_window": window}}, "policies": [{"name": "bench", **policy}]})
    silent = Hearer([])
    compactor = Compactor(Guarded(MemoryStore(), 5.0, silent), OfflineSummarizer(), silent, settings.public_base)
    model = Registry(settings.models, print).lookup("bench")
    history = FORMATS[form].history
    direct, through = Bill(), Bill()
    compactions, sent = 0, b""
    for talk in Script(shape).requests():
        raw = body(form, talk)
        ask = Ask(
            open_body(FORMATS[form], raw), form, "openai", model, settings.policies[0], "bench", client_model="bench"
        )
        outcome = await compactor.decide(ask)
        await compactor.settle(outcome, 0)
        sent = outcome.body
        compactions += outcome.result == "compacted"
        for bill, written in ((direct, raw), (through, sent)):
            items = [json.dumps(item).encode() for item in json.loads(written)[history]]
            bill.add(items, [counted(item) for item in items])
    text = sent.decode()
    asked = range(STEPS) if shape == "chat" else range(1)
    return {
        "cost": through.cost / direct.cost,
        "breaks": through.breaks,
        "compactions": compactions,
        "user": sum(fact("UF", step) in text for step in asked),
        "of_user": len(asked),
        "results": sum(fact("TF", step) in text for step in range(STEPS)),
        "tokens": tokens.count(text, "o200k_base"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--window", type=int, default=40_000)
    parser.add_argument("--policy", type=json.loads, default={})
    given = parser.parse_args()
    policy = {**FRUGAL, **given.policy}
    print(
        f"{'format':20} {'shape':8} {'cost':>6} {'breaks':>6} {'compact':>7} {'user facts':>10} {'result facts':>12} {'last':>7}"
    )
    for form in FORMATS:
        for shape in ("chat", "agentic"):
            got = asyncio.run(play(form, shape, given.window, policy))
            print(
                f"{form:20} {shape:8} {got['cost']:6.3f} {got['breaks']:6} {got['compactions']:7} "
                f"{got['user']:4} of {got['of_user']:2} {got['results']:6} of {STEPS} {got['tokens']:7}"
            )


if __name__ == "__main__":
    main()
