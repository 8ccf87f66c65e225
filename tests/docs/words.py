"""The words that compactd answers with, read from its source: reasons, outcomes, codes of its own errors.

They are constants at a few kinds of places, which are listed here; what is made in another way would be missed, so these are all the ways
there should be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import get_args

from app.request import Outcome, Result
from tests.docs.pages import ROOT

SAYING = {"NotCompactable": 0, "Outcome": 2, "outcome_of": 1, "_pass_untouched": 1, "undone": 0}
"""Call -> which of its arguments is a reason."""
TELLING = frozenset({"refusal", "ineligible", "_gate", "_too_little", "attempt"})
"""Functions that return a reason, or nothing."""
OURS = {"Refused": 1, "UpstreamFailed": 0, "_fail": 2}
"""Call -> which of its arguments is the code of an error of our own."""

NO_FAILURE = frozenset({"settled_elsewhere", "pass"})
"""What ends a summary without being told of: another replica has made it; the policy wants to pass."""


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def modules() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "app").rglob("*.py")))


@cache
def constants() -> dict[str, str]:
    """Names in capitals that stand for a string."""
    found = {}
    for node in (node for module in modules() for node in module.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= {name_of(target): node.value.value for target in node.targets if name_of(target).isupper()}
    return found


def values(node: ast.expr | None) -> Iterator[str]:
    """The strings that an expression may come to, as far as they stand there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.Name) and node.id in constants():
        yield constants()[node.id]
    elif isinstance(node, ast.IfExp):
        yield from (*values(node.body), *values(node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from (word for part in node.values for word in values(part))


def said(node: ast.Call, where: dict[str, int]) -> Iterator[str]:
    at = where.get(name_of(node.func))
    if at is not None and len(node.args) > at:
        yield from values(node.args[at])


def reasons() -> set[str]:
    """Every `x-compactd-reason` that is no error code."""
    found: set[str] = set()
    for node in (node for module in modules() for node in ast.walk(module)):
        if isinstance(node, ast.Call):
            found |= set(said(node, SAYING))
            if name_of(node.func) == "replace":
                found |= {word for given in node.keywords if given.arg == "reason" for word in values(given.value)}
        elif isinstance(node, ast.Assign) and any(name_of(target) == "reason" for target in node.targets):
            found |= set(values(node.value))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in TELLING:
            returned = (one for one in ast.walk(node) if isinstance(one, ast.Return))
            found |= {word for one in returned for word in values(one.value)}
    return found


def summaries() -> set[str]:
    """Why a model gave no summary; `status_…` for all statuses."""
    found: set[str] = set()
    for node in (node for module in modules() for node in ast.walk(module)):
        if isinstance(node, ast.Call) and name_of(node.func) == "SummaryFailed":
            found |= {word for given in node.args for word in values(given)}
            if any(isinstance(given, ast.JoinedStr) for given in node.args):
                found.add("status_…")
        elif isinstance(node, ast.ClassDef) and any(name_of(base) == "SummaryFailed" for base in node.bases):
            calls = (one for one in ast.walk(node) if isinstance(one, ast.Call) and name_of(one.func) == "__init__")
            found |= {word for call in calls for given in call.args for word in values(given)}
        elif isinstance(node, ast.Assign) and any(name_of(target) == "problem" for target in node.targets):
            found |= set(problems(node.value))
    return found - NO_FAILURE


def problems(node: ast.expr) -> Iterator[str]:
    """What is wrong with a summariser's answer: said outright, or looked up in a table of the format's."""
    if isinstance(node, ast.IfExp):
        yield from (*problems(node.body), *problems(node.orelse))
    elif isinstance(node, ast.Call) and name_of(node.func) == "get":
        yield from values(node.args[1])
        assert isinstance(node.func, ast.Attribute)
        yield from (word for table in tables(name_of(node.func.value)) for one in table.values for word in values(one))
    else:
        yield from values(node)


def tables(name: str) -> Iterator[ast.Dict]:
    """The dictionaries of this name, in whatever module."""
    for node in (node for module in modules() for node in module.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from (node.value for target in node.targets if name_of(target) == name)


def outcomes() -> set[str]:
    assert Outcome.__annotations__["result"] == "Result"
    return set(get_args(Result))


def codes() -> dict[str, set[int]]:
    """The code of each error of our own -> the statuses that it comes with."""
    found: dict[str, set[int]] = {}
    for node in (node for module in modules() for node in ast.walk(module) if isinstance(node, ast.Call)):
        at = OURS.get(name_of(node.func))
        if at is None or len(node.args) <= at:
            continue
        status = node.args[at - 1] if at else (node.args[2] if len(node.args) > 2 else ast.Constant(502))
        for code in values(node.args[at]):
            if isinstance(status, ast.Constant) and isinstance(status.value, int):
                found.setdefault(code, set()).add(status.value)
    return found
