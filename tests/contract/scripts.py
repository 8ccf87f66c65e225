"""One neutral conversation, written in every wire format.

A script is turns of rounds of calls, drawn from one number. Each writer says which steps of the script every item of its format holds, so
that what happens to a conversation can be told without naming the format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import settings

Item = dict[str, Any]
Step = str
"""`3?` a question, `3.1!` the model's step in its round 1, `3.1.0=` the result of a call in it, `3.` the answer, `3#` instructions."""
Written = list[tuple[frozenset[Step], Item]]


def few(number: int) -> int:
    """So many examples, twenty times as many with the profile `thorough`."""
    return number * 20 if settings.get_current_profile_name() == "thorough" else number


@dataclass(frozen=True)
class Call:
    id: str
    tool: str
    size: int
    """characters of its result"""


@dataclass(frozen=True)
class Round:
    calls: tuple[Call, ...]
    thinks: bool = False
    lost: bool = False
    """the client lost the last result"""


@dataclass(frozen=True)
class Turn:
    asks: str
    rounds: tuple[Round, ...] = ()
    answers: str = ""
    """"" while the turn is running"""
    thinks: bool = False
    instructs: bool = False


@dataclass(frozen=True)
class Script:
    """`ids`: whether calls have ids where they may do without, `signs`: whether they are signed where they can be (Gemini)."""

    turns: tuple[Turn, ...]
    ids: bool = True
    signs: bool = True

    def requests(self) -> Iterator[Script]:
        """What a client would send before each of the model's steps, its history ever longer."""
        for at, turn in enumerate(self.turns):
            before = self.turns[:at]
            for rounds in range(len(turn.rounds) + 1):
                yield replace(
                    self, turns=(*before, replace(turn, rounds=turn.rounds[:rounds], answers="", thinks=False))
                )


def script(seed: int, turns: int = 6, rounds: int = 4, plain: bool = False) -> Script:
    """`plain`: nothing that only some formats have, nothing broken, one call a round."""
    random = Random(seed)
    number = iter(range(1_000))
    tools = ["read", "search", "write_file"]
    broken = not plain and random.random() < 0.2
    reused = not plain and random.random() < 0.2

    def call() -> Call:
        ident = next(number)
        return Call(f"c{ident % 3 if reused else ident}", random.choice(tools), random.choice([20, 300, 900, 2_000]))

    def some_round(thinks: bool) -> Round:
        calls = tuple(call() for _ in range(1 if plain else random.choice([1, 1, 1, 2, 3])))
        calls = tuple({one.id: one for one in calls}.values())
        return Round(calls, thinks, broken and random.random() < 0.1)

    def turn(at: int) -> Turn:
        thinks = not plain and random.random() < 0.4
        made = tuple(some_round(thinks) for _ in range(random.choice([0, 0, 1, 2, random.randint(0, rounds)])))
        instructs = not plain and random.random() < 0.15
        return Turn(text(random, f"Question {at}."), made, text(random, f"Answer {at}."), thinks, instructs)

    return Script(tuple(turn(at) for at in range(random.randint(1, turns))), random.random() < 0.5, not plain)


WORDS = [
    "the",
    "harbour",
    "ship",
    "pays",
    "crane",
    "Lagerhaus",
    "船",
    "entrepôt",
    "4711",
    "/src/app.py",
    "error:",
    "not found",
    "✓",
]


def text(random: Random, opening: str) -> str:
    return f"{opening} {' '.join(random.choices(WORDS, k=random.choice([3, 20, 80])))}"


def result(call: Call) -> str:
    random = Random(call.size)
    return f"Result {call.id}: " + " ".join(random.choices(WORDS, k=call.size // 6))[: call.size]


def arguments(call: Call) -> dict[str, str]:
    return {"path": f"/src/{call.id}.py", "query": "harbour " * 4}


def answered(one: Round) -> tuple[Call, ...]:
    return one.calls[:-1] if one.lost else one.calls


def chat(script: Script) -> Written:
    items: Written = []

    def add(steps: set[Step], **item: Any) -> None:
        items.append((frozenset(steps), item))

    add({"system"}, role="system", content="You are a harbour master.")
    for at, turn in enumerate(script.turns):
        add({f"{at}?"}, role="user", content=turn.asks)
        if turn.instructs:
            add({f"{at}#"}, role="developer", content=f"Rule {at}.")
        for n, one in enumerate(turn.rounds):
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": json.dumps(arguments(call))},
                }
                for call in one.calls
            ]
            thought = {"reasoning_content": "Hm."} if one.thinks else {}
            add({f"{at}.{n}!"}, role="assistant", content=None, tool_calls=calls, **thought)
            for k, call in enumerate(answered(one)):
                add({f"{at}.{n}.{k}="}, role="tool", tool_call_id=call.id, content=result(call))
        if turn.answers:
            add(
                {f"{at}."},
                role="assistant",
                content=turn.answers,
                **({"reasoning_content": "Hm."} if turn.thinks else {}),
            )
    return items


def anthropic(script: Script) -> Written:
    items: Written = []
    for at, turn in enumerate(script.turns):
        items.append((frozenset({f"{at}?"}), {"role": "user", "content": turn.asks}))
        if turn.instructs:
            items.append((frozenset({f"{at}#"}), {"role": "system", "content": f"Rule {at}."}))
        for n, one in enumerate(turn.rounds):
            thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}] if one.thinks else []
            calls = [
                {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.tool, "input": arguments(call)}
                for call in one.calls
            ]
            items.append((frozenset({f"{at}.{n}!"}), {"role": "assistant", "content": [*thought, *calls]}))
            results: list[Item] = [
                {"type": "tool_result", "tool_use_id": f"toolu_{call.id}", "content": result(call)}
                for call in answered(one)
            ]
            steps = frozenset(f"{at}.{n}.{k}=" for k in range(len(results)))
            items.append(
                (steps, {"role": "user", "content": results or [{"type": "text", "text": "Nothing came back."}]})
            )
        if turn.answers:
            thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}] if turn.thinks else []
            content: Any = [*thought, {"type": "text", "text": turn.answers}] if thought else turn.answers
            items.append((frozenset({f"{at}."}), {"role": "assistant", "content": content}))
    return items


def responses(script: Script) -> Written:
    items: Written = []
    number = iter(range(10_000))

    def thinks(steps: set[Step]) -> None:
        item = {"type": "reasoning", "id": f"rs_{next(number)}", "summary": [], "encrypted_content": "gAAAAAB"}
        items.append((frozenset(steps), item))

    for at, turn in enumerate(script.turns):
        items.append((frozenset({f"{at}?"}), {"role": "user", "content": [{"type": "input_text", "text": turn.asks}]}))
        if turn.instructs:
            items.append((frozenset({f"{at}#"}), {"role": "developer", "content": f"Rule {at}."}))
        for n, one in enumerate(turn.rounds):
            step = {f"{at}.{n}!"}
            if one.thinks:
                thinks(step)
            for call in one.calls:
                given = json.dumps(arguments(call))
                made = {
                    "type": "function_call",
                    "id": f"fc_{next(number)}",
                    "call_id": call.id,
                    "name": call.tool,
                    "arguments": given,
                }
                items.append((frozenset(step), made))
            for k, call in enumerate(answered(one)):
                items.append(
                    (
                        frozenset({f"{at}.{n}.{k}="}),
                        {"type": "function_call_output", "call_id": call.id, "output": result(call)},
                    )
                )
        if turn.answers:
            step = {f"{at}."}
            if turn.thinks:
                thinks(step)
            content = [{"type": "output_text", "text": turn.answers, "annotations": []}]
            said = {
                "type": "message",
                "id": f"msg_{next(number)}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
            items.append((frozenset(step), said))
    return items


def gemini(script: Script) -> Written:
    items: Written = []

    def add(steps: set[Step], role: str, *parts: Item) -> None:
        items.append((frozenset(steps), {"role": role, "parts": list(parts)}))

    for at, turn in enumerate(script.turns):
        add({f"{at}?"}, "user", {"text": turn.asks})
        for n, one in enumerate(turn.rounds):
            ids = [{"id": call.id} if script.ids else {} for call in one.calls]
            calls: list[Item] = [
                {"functionCall": {"name": call.tool, "args": arguments(call), **ident}}
                for call, ident in zip(one.calls, ids, strict=True)
            ]
            if script.signs:
                calls[0]["thoughtSignature"] = "c2ln"
            add({f"{at}.{n}!"}, "model", *calls)
            given = [
                {"functionResponse": {"name": call.tool, "response": {"output": result(call)}, **ident}}
                for call, ident in zip(answered(one), ids, strict=False)
            ]
            steps = {f"{at}.{n}.{k}=" for k in range(len(given))}
            add(steps, "user", *(given or [{"text": "Nothing came back."}]))
        if turn.answers:
            add({f"{at}."}, "model", {"text": turn.answers})
    return items


WRITERS: dict[str, Callable[[Script], Written]] = {
    "openai-chat": chat, "anthropic-messages": anthropic, "openai-responses": responses, "gemini": gemini,
}  # fmt: skip
FIELDS: dict[str, Item] = {
    "openai-chat": {"model": "m"},
    "anthropic-messages": {
        "model": "claude-opus-5", "max_tokens": 2_048, "thinking": {"type": "adaptive"},
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    },
    "openai-responses": {"model": "m", "instructions": "You are a harbour master.", "store": False},
    "gemini": {"systemInstruction": {"parts": [{"text": "You are a harbour master."}]}},
}  # fmt: skip
QUIRKS: dict[str, frozenset[str]] = {
    "openai-chat": frozenset({"deepseek_reasoning"}),
    "gemini": frozenset({"thought_signatures"}),
}
"""Rules of stricter servers that the strict provider adds."""
