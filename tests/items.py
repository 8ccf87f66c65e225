"""Items by their facts alone, for tests of what sees nothing else: rules, plans and strategies.

A word an item: `ask()`, `says("a")`, `answers("a")`, `note()`, `rule()`. `view(…)` makes a view of them, in which every item has the same
weight unless a test says otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from app.core.view import Call, Entry, Facts, Result, View

TOKENS = 100


def ask(**more: Any) -> Facts:
    """A user request."""
    return Facts("user", opens_turn=True, **more)


def note() -> Facts:
    """What compactd left of earlier items."""
    return ask(note=True)


def says(*calls: str, tool: str = "read", size: int = 500, clearable: bool = True, **more: Any) -> Facts:
    """The model's turn, with a call for each id (`""`: a call without one)."""
    return Facts(
        "assistant", tuple(Call(call, tool, ("calls", n), size, clearable) for n, call in enumerate(calls)), **more
    )


def thinks(*calls: str, **more: Any) -> Facts:
    return says(*calls, reasoning=True, **more)


def reasoning() -> Facts:
    """An item of nothing but reasoning."""
    return Facts("assistant", reasoning=True, alone=True)


def answers(*calls: str, tool: str = "", size: int = 4_000, clearable: bool = True, **more: Any) -> Facts:
    """Results of calls, `size` bytes each."""
    return Facts(
        "tool",
        results=tuple(Result(call, tool, ("results", n), size, clearable) for n, call in enumerate(calls)),
        **more,
    )


def rule(**more: Any) -> Facts:
    """Standing instructions: they go with what follows unless they `stays`."""
    return Facts("system", **more)


def view(*facts: Facts, tokens: int | list[int] = TOKENS, size: int = 5_000) -> View:
    """A view of a client's own items; `tokens` of each, `size` bytes of each."""
    counts = tokens if isinstance(tokens, list) else [tokens] * len(facts)
    raws = [b"%d " % at + b"x" * size for at in range(len(facts))]
    entries = [Entry(fact, b"%016d" % at, count) for at, (fact, count) in enumerate(zip(facts, counts, strict=True))]
    return View(list(raws), list(entries))


def rounds(number: int, first: str = "r", **more: Any) -> list[Facts]:
    """So many rounds of one call and its result, ids counted up."""
    return [fact for n in range(number) for fact in (says(f"{first}{n}"), answers(f"{first}{n}", **more))]


def talk(seed: int, length: int = 12) -> list[Facts]:
    """Items that hardly make sense: calls that nobody answers, results of nothing, ids that come again, instructions anywhere."""
    random = Random(seed)
    ids = ["a", "b", ""]
    facts: list[Facts] = []
    for _ in range(random.randrange(1, length)):
        kind = random.choice("aaasssttrroonnpppkc")
        some = [random.choice(ids) for _ in range(random.randint(1, 2))]
        match kind:
            case "a":
                fact = ask()
            case "n":
                fact = note()
            case "s":
                fact = says(*some[1:], reasoning=random.random() < 0.3)
            case "t":
                fact = thinks(*some)
            case "o":
                fact = random.choice([rule(stays=True), rule(carried=True)])
            case "k":
                fact = reasoning()
            case "c":
                fact = random.choice([ask(sources=("document",)), says(cites=(("document", random.randrange(2)),))])
            case "p":
                fact = replace(random.choice([ask(), says()]), pinned=random.random() < 0.5)
            case _:
                fact = answers(*some, tool=random.choice(["read", ""]))
        facts.append(fact)
    return facts
