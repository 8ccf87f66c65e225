"""A list of messages that a strategy returned, as a plan over the view.

What the list has in common with the conversation at both ends stays as it is; the stretch between is a cut with other items in its
place. Messages in it that are the client's own keep their bytes; only new ones are written. System messages in mid-history were never
handed out, so they are put back where they stood.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from app.core import jsonspan, rules
from app.core.plan import Plan
from app.core.view import Facts, Note
from app.errors import NotCompactable
from app.request import Context

_WORDS = {
    "orphan": "has a tool result without its call",
    "unanswered": "has a tool call without its result",
    "unheard": "has a tool call without its result",
    "alone": "has reasoning without what it led to",
    "cites": "has a citation of something that is gone",
    "first_role": "does not begin with a user's message",
    "last_role": "does not end on a user's message or a tool result",
    "empty": "is empty",
}


class Wrong(Exception):
    """Why an answer of the operator's own code can't be used, in words for the log: places and kinds, never content. They go on after "your
    strategy was left out because …"."""


def plan_from_list(
    name: str, context: Context, places: Sequence[int], given: Sequence[Mapping[str, Any]], answer: Sequence[Any]
) -> Plan | None:
    """The plan that makes the conversation this list, None if it is that already. `places` are the positions of the messages that were
    `given`, in the view. Raises Wrong; NotCompactable where nothing would leave."""
    if not answer:
        raise Wrong("the list is empty")
    mine = [_text(at, item) for at, item in enumerate(answer)]
    # What was handed out may have been changed meanwhile: the view's own bytes say what was given.
    theirs = [jsonspan.dump(jsonspan.value(context.view.raws[at])) for at in places]
    most = min(len(mine), len(theirs))
    tail = next((at for at in range(most) if mine[-1 - at] != theirs[-1 - at]), most)
    head = next((at for at in range(most - tail) if mine[at] != theirs[at]), most - tail)
    if head + tail == len(mine) == len(theirs):
        return None
    if head + tail == len(theirs):
        raise NotCompactable("no_gain")
    start = places[head]
    stop = places[len(theirs) - tail] if tail else len(context.view)
    own = {id(item): at for at, item in enumerate(given)}
    kept = [own.get(id(item), -1) for item in answer[head : len(mine) - tail]]
    middle = _matched(mine[head : len(mine) - tail], theirs, kept, head, len(theirs) - tail)
    instead = _with_system(context, [places[own] if isinstance(own, int) else own for own in middle], start, stop)
    _check(context, head, middle, instead, start, stop)
    return Plan(name, start, stop, instead=tuple(instead))


def _text(at: int, item: Any) -> bytes:
    if not isinstance(item, dict):
        raise Wrong(f"message {at} of the list is no dict but a {type(item).__name__}")
    try:
        return jsonspan.dump(item)
    except (TypeError, ValueError, RecursionError):
        raise Wrong(f"message {at} of the list can't be written as JSON") from None


def _matched(
    mine: Sequence[bytes], theirs: Sequence[bytes], kept: Sequence[int], start: int, stop: int
) -> list[int | Note]:
    """For each message of the list the one that it is among those given, in their order, else a new item."""
    places: dict[bytes, list[int]] = {}
    for at in range(start, stop):
        places.setdefault(theirs[at], []).append(at)
    found: list[int | Note] = []
    at = start
    for text, own in zip(mine, kept, strict=True):
        same = own if at <= own < stop and theirs[own] == text else _first(places.get(text, ()), at)
        if same is None:
            found.append(Note(text))
        else:
            found.append(same)
            at = same + 1
    return found


def _first(places: Sequence[int], start: int) -> int | None:
    """The first of these from `start` on."""
    at = bisect_left(places, start)
    return places[at] if at < len(places) else None


def _with_system(context: Context, middle: Sequence[int | Note], start: int, stop: int) -> list[int | Note]:
    """With the system messages of this stretch that survive a cut, each behind what stood before it."""
    standing = [at for at in range(start, stop) if context.view.entries[at].facts.stays]
    merged: list[int | Note] = []
    for own in middle:
        while isinstance(own, int) and standing and standing[0] < own:
            merged.append(standing.pop(0))
        merged.append(own)
    return [*merged, *standing]


def _check(
    context: Context, head: int, middle: Sequence[int | Note], instead: Sequence[int | Note], start: int, stop: int
) -> None:
    view, client = context.view, context.client
    made = iter(context.reader.entries([own.raw for own in instead if isinstance(own, Note)]))
    facts: list[Facts] = [next(made).facts if isinstance(own, Note) else view.entries[own].facts for own in instead]
    for own, fact in zip(instead, facts, strict=True):
        if isinstance(own, Note) and fact.role == "system":
            at = head + next(at for at, one in enumerate(middle) if one is own)
            raise Wrong(
                f"message {at} of the list is a system message; those stay where they are and are not handed out"
            )
    whole = [*view.facts[:start], *facts, *view.facts[stop:]]
    if facts and stop == len(view) and whole[-1].role not in ("user", "tool") and not whole[-1].results:
        raise Wrong(f"the list {_WORDS['last_role']}")
    wrong = {rule for rule, _, _ in rules.violations(whole) - rules.violations(client.facts)}
    for rule, words in _WORDS.items():
        if rule in wrong:
            raise Wrong(f"the list {words}")
