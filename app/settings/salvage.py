"""What is sound of settings that have faults, so that the rules between sections are asked in the same round.

A value with a fault gives way to its default, or, where it has none, to a stand-in that no rule has anything against. Which options are
not as they were written is told as well: a rule that could find fault with what stands there now is not asked, for that would only follow
from another fault.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from app.settings import schema
from app.settings.broken import Loc
from app.settings.faults import explain
from app.settings.rules import Option
from app.settings.sections import Sections
from app.settings.values import Format

_STAND_INS: Mapping[Option, Callable[[], object]] = {
    ("upstreams", "base_url"): lambda: "https://stand.in",
    ("upstreams", "formats"): lambda: get_args(Format),
    ("auth", "clients", "key"): secrets.token_hex,
    ("policies", "target_threshold"): lambda: 1,
}
"""For options without a default, or with one that does not go with every trigger."""
_ROUNDS = 3
"""What stays may not do with a default, or without what left."""


def salvaged(data: Mapping[str, Any], faults: Iterable[Loc]) -> tuple[Sections, set[Option]]:
    """Sound sections, and the options of them that are not as they were written. `faults`: where something is wrong."""
    left, unsound = deepcopy(dict(data)), set[Option]()
    for _ in range(_ROUNDS):
        for loc in sorted(filter(None, faults), key=_from_the_end):
            unsound |= _meant(loc)
            _give_way(left, loc)
        try:
            return Sections.model_validate(left), unsound
        except ValidationError as error:
            faults = {explain(each)[0] for each in error.errors(include_url=False)}
    for name, *_ in faults:
        left.pop(str(name), None)
        unsound.add((str(name),))
    return Sections.model_validate(left), unsound


def _from_the_end(loc: Loc) -> int:
    """Of a list's entries the last one leaves first, so that the others keep their places."""
    return -loc[-1] if isinstance(loc[-1], int) else 1


def _meant(loc: Loc) -> set[Option]:
    """The option at this path; that of an unknown key is the one that was probably meant."""
    if schema.at(loc) is not None:
        return {schema.option(loc)}
    return {(*schema.option(loc[:-1]), key) for key in get_close_matches(str(loc[-1]), schema.keys(loc[:-1]), n=1)}


def _give_way(data: dict[str, Any], loc: Loc) -> None:
    around: Any = data
    *path, last = loc
    for part in path:
        try:
            around = around[part]
        except (KeyError, IndexError, TypeError):
            return  # what is around it has given way
    stand_in = _STAND_INS.get(schema.option(loc))
    if isinstance(around, list) and isinstance(last, int):
        around[last : last + 1] = [{}] if schema.keys(loc) else []  # a policy leaves its place to another
    elif isinstance(around, dict) and stand_in:
        around[last] = stand_in()
    elif isinstance(around, dict):
        around.pop(last, None)
