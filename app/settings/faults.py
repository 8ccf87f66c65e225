"""What is wrong with a configuration, said so that an operator can put it right: where, which key, what, and what to do.

No fault repeats a value: file and line, or the variable's name, lead to it, and a value may be a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from app.settings import schema
from app.settings.broken import Loc
from app.settings.values import nearest


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a file and line, an environment variable, or a command line option (line 0)."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `loc` is the option's path, empty for the file as a whole."""

    origin: Origin
    loc: Loc
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.origin), schema.path(self.loc), self.text)))


Origins = Mapping[Loc, Origin]


def origin_of(loc: Loc, origins: Origins) -> Origin:
    """Who set the option at this path: whoever set it, or the nearest thing around it."""
    return next(origins[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in origins)


def explain(error: ErrorDetails) -> tuple[Loc, str]:
    """pydantic's finding as (path, text)."""
    loc = error["loc"]
    text: object = error.get("ctx", {}).get("text" if error["type"] == "broken_rule" else "error")
    if loc[-1:] == ("[key]",):
        return loc[:-1], f"the name {text or 'must not be empty'}"
    if text and error["type"] in ("broken_rule", "value_error"):
        return loc, str(text)
    shape = schema.at(loc)
    if error["type"] == "extra_forbidden":
        return loc, unknown_key(loc)
    if shape is None:
        return loc, error["msg"]
    if error["type"] == "missing":
        return loc, f"is missing; add it, it must be {shape.kind()}"
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        return loc, f"must be {shape.kind()}; put the value in quotes"
    if error["type"] == "literal_error":
        return loc, f"must be {shape.kind()}{nearest(error['input'], shape.choices)}"
    return loc, f"must be {shape.kind()}"


def unknown_key(loc: Loc) -> str:
    """What an unknown key may have been meant to be: a neighbour spelt nearly so, or a key of that name elsewhere."""
    *around, key = loc
    known = schema.keys(tuple(around))
    elsewhere = [schema.path(path) for path, _ in schema.options() if path[-1] == key]
    meant = get_close_matches(str(key), known, n=1, cutoff=0.7) + elsewhere or get_close_matches(str(key), known, n=1)
    if meant:
        return f"unknown key; did you mean {' or '.join(meant)}?"
    return f"unknown key; remove it, or use one of {', '.join(known)}"
