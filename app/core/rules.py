"""Where a conversation may be cut, and what is wrong with one.

Prevention and detection, both over facts alone and both linear: `cuts` tells a strategy which boundaries exist for it,
`violations` names what a provider would refuse, so that the gate can ask whether a plan added anything to what the client itself
sent. Pairing goes by position: a result belongs to the latest open call with its id, because clients reuse ids, and a call that
nobody ever answered glues nothing together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.view import Facts


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which result answers which call. Places are (item, ordinal inside the item)."""

    call_of: dict[tuple[int, int], tuple[int, int]]
    """result place -> call place"""
    orphans: tuple[tuple[int, int], ...]
    """results without a call"""
    unanswered: tuple[tuple[int, int], ...]
    """calls without a result"""

    def tool(self, facts: Sequence[Facts], place: tuple[int, int]) -> str:
        """Name of the tool behind a result, "" if unknown."""
        item, ordinal = place
        named = facts[item].results[ordinal].tool
        call = self.call_of.get(place)
        return named or (facts[call[0]].calls[call[1]].tool if call else "")


def pair(facts: Sequence[Facts]) -> Pairing:
    """Pair calls and results by position. Calls without an id (Gemini) pair by name, in the order in which one item makes them.

    A second result for an answered call (clients resend them) counts as belonging to the same call.
    """
    waiting: dict[str, list[deque[tuple[int, int]]]] = {}  # calls by their id, those of one item together
    nameless: dict[str, list[deque[tuple[int, int]]]] = {}  # and by their tool, where they have none
    answered: dict[str, tuple[int, int]] = {}
    call_of: dict[tuple[int, int], tuple[int, int]] = {}
    orphans = []
    given_up: list[tuple[int, int]] = []
    for item, fact in enumerate(facts):
        if fact.opens_turn and nameless:
            # A call without an id that is open when the user speaks again was never answered; left waiting, it would take the answer of
            # every later call of that tool.
            given_up += _left(nameless)
            nameless.clear()
        for ordinal, result in enumerate(fact.results):
            key = result.id or f"\0{result.tool}"
            line = (waiting if result.id else nameless).get(key)
            if line:
                # Without an id it is the first of the latest item that made any: one that an earlier item made was never answered.
                call = answered[key] = line[-1].pop() if result.id else line[-1].popleft()
                if not line[-1]:
                    line.pop()
            elif key in answered:
                call = answered[key]
            else:
                orphans.append((item, ordinal))
                continue
            call_of[item, ordinal] = call
        for ordinal, called in enumerate(fact.calls):
            key = called.id or f"\0{called.tool}"
            line = (waiting if called.id else nameless).setdefault(key, [])
            if not line or line[-1][0][0] != item:
                line.append(deque())
            line[-1].append((item, ordinal))
            answered.pop(key, None)
    unanswered = sorted([*given_up, *_left(waiting), *_left(nameless)])
    return Pairing(call_of, tuple(orphans), tuple(unanswered))


def _left(waiting: dict[str, list[deque[tuple[int, int]]]]) -> list[tuple[int, int]]:
    return [place for line in waiting.values() for group in line for place in group]


def cuts(facts: Sequence[Facts]) -> list[bool]:
    """allowed[i]: may a cut begin or end between item i-1 and item i? Length n+1.

    - never between a call and its results; calls opened together leave together
      (Anthropic A1, A2, A4; chat C1, C2; Responses R1, R2; Gemini G3, G4)
    - nor between a call that was never answered and the result of a later one of its id (R1)
    - never so that what follows begins with a tool result (A5, C2, G4)
    - inside a turn that carries reasoning only right before an item that begins a run of reasoning
      and with it (A28, A30, A31; R9 to R11; DeepSeek Q6, Q8)
    - never between standing instructions in mid-history and the answer that has to follow them (A19)
    - never between a source and a later citation: citations count the sources of the whole request (A68)
    """
    size = len(facts)
    allowed = [True] * (size + 1)
    depth = [0] * (size + 2)
    pairing = pair(facts)
    for (item, _), (call, _) in pairing.call_of.items():
        depth[call + 1] += 1
        depth[item + 1] -= 1
    for call, item in _borrowed(facts, pairing):
        depth[call + 1] += 1
        depth[item + 1] -= 1
    for first, last in _cited(facts):
        depth[first + 1] += 1
        depth[last + 1] -= 1
    opened = 0
    for at in range(1, size):
        opened += depth[at]
        if opened or facts[at].results or _bound(facts[at - 1]):
            allowed[at] = False
    if size and facts[0].results:
        allowed[0] = False
    for start, stop in _turns(facts):
        if not any(facts[at].reasoning for at in range(start, stop)):
            continue
        begins = stop
        for at in range(stop - 1, start, -1):
            if begins == stop or not _bound(facts[at]):
                begins = at
            if not facts[begins].reasoning or facts[begins].late or facts[at - 1].alone:
                allowed[at] = False
    return allowed


def _borrowed(facts: Sequence[Facts], pairing: Pairing) -> list[tuple[int, int]]:
    """(call, result) where a call was never answered but a later one of its id was, the nearest. A provider that goes by ids alone takes
    that result for both, and misses it once it has left (R1)."""
    if not pairing.unanswered:
        return []
    results: dict[str, list[int]] = {}
    for at, fact in enumerate(facts):
        for result in fact.results:
            results.setdefault(result.id, []).append(at)
    spans = []
    for item, ordinal in pairing.unanswered:
        ident = facts[item].calls[ordinal].id
        places = results.get(ident, [])
        nearest = bisect_right(places, item)
        if ident and nearest < len(places):
            spans.append((item, places[nearest]))
    return spans


def _bound(fact: Facts) -> bool:
    """Standing instructions that have no place of their own: they go with the answer after them."""
    return fact.role == "system" and not fact.stays


def _cited(facts: Sequence[Facts]) -> list[tuple[int, int]]:
    """(first source, last citation) of each kind of source that is cited: taking out any before it would turn the citation."""
    spans = []
    for kind in {kind for fact in facts for kind, _ in fact.cites}:
        first = next((at for at, fact in enumerate(facts) if kind in fact.sources), len(facts))
        last = max(at for at, fact in enumerate(facts) if any(kind == of for of, _ in fact.cites))
        if first < last:
            spans.append((first, last))
    return spans


def _turns(facts: Sequence[Facts]) -> list[tuple[int, int]]:
    """(start, stop) of each stretch from one user request up to the next; what stands before the first is one too."""
    starts = [at for at, fact in enumerate(facts) if fact.opens_turn]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    return [(a, b) for a, b in zip(starts, [*starts[1:], len(facts)], strict=True) if a < b]


def head_end(facts: Sequence[Facts]) -> int:
    """Number of leading items that are standing instructions (system, developer): cuts begin after them."""
    at = 0
    while at < len(facts) and facts[at].role == "system":
        at += 1
    return at


def cut_start(facts: Sequence[Facts]) -> int:
    """Where cuts and clearings may begin: behind the leading instructions, and behind what the provider does not read any more (A59), with
    the results of what it called in the same breath."""
    start = next((at + 1 for at in range(len(facts) - 1, -1, -1) if facts[at].restarts), 0)
    while 0 < start < len(facts) and facts[start].results:
        start += 1
    return max(start, head_end(facts))


def current_turn(facts: Sequence[Facts]) -> int:
    """Index of the request that the model is to work on now; len(facts) if there is none.

    Requests that follow each other without an answer between (context, then the question) are one pending request;
    a note does not belong to it.
    """
    at = max((i for i, fact in enumerate(facts) if fact.opens_turn and not fact.note), default=len(facts))
    while 0 < at < len(facts):
        before = facts[at - 1]
        if before.note or not before.opens_turn:
            break
        at -= 1
    return at


def first_answer(facts: Sequence[Facts]) -> int:
    """Index of the model's first item in the current turn; len(facts) if there is none."""
    return next((at for at in range(current_turn(facts), len(facts)) if facts[at].role == "assistant"), len(facts))


def open_round(facts: Sequence[Facts]) -> int:
    """Index where the round begins that the model has yet to answer; len(facts) if the conversation does not end with results.

    Never touched, not even cleared: the provider checks it (A28, A52, G11) and the model has not read it yet.
    """
    at = len(facts)
    while at and facts[at - 1].role == "system":
        at -= 1
    if not at or not facts[at - 1].results:
        return len(facts)
    while at and facts[at - 1].results:
        at -= 1
    while at and facts[at - 1].role == "assistant":
        at -= 1
    return at


def level(facts: Sequence[Facts]) -> int:
    """1: ends with a user request; 2: ends with tool results; 0: neither (a draft to go on from, an unknown item)."""
    for fact in reversed(facts):
        if fact.role == "system":
            continue
        if fact.results:
            return 2
        return 1 if fact.opens_turn else 0
    return 0


def violations(facts: Sequence[Facts]) -> set[tuple[str, str, int]]:
    """What a provider would refuse: (rule, what, which one of them). Named so that an old fault keeps its name when items before
    it leave, and the gate can compare before and after.

    orphan        a result whose call is gone (A4, C2, R2, G4)
    unanswered    a call without its result (A1, C1, R1, G3), unless it is the last thing said
    unheard       … and no other call of that id has one either: where a client used an id twice, one result may do for both (R1)
    alone         a reasoning item without what it led to (R9)
    cites         a citation of a source that does not stand before it (A68)
    first_role    the history begins with the model (A15, G2)
    last_role     … or ends on it (A27a, G6)
    empty         nothing but standing instructions is left (C22, G20)
    """
    found: set[tuple[str, str, int]] = set()
    count: dict[tuple[str, str], int] = {}

    def name(rule: str, what: str) -> None:
        # Counted from the end: what a cut removes lies at the front.
        count[rule, what] = number = count.get((rule, what), 0) + 1
        found.add((rule, what, number))

    pairing = pair(facts)
    for item, ordinal in reversed(pairing.orphans):
        name("orphan", facts[item].results[ordinal].id or facts[item].results[ordinal].tool)
    for item, ordinal in reversed(pairing.unanswered):
        name("unanswered", facts[item].calls[ordinal].id or facts[item].calls[ordinal].tool)
    last = {result.id: item for item, fact in enumerate(facts) for result in fact.results}
    for item, ordinal in reversed(pairing.unanswered):
        ident = facts[item].calls[ordinal].id
        if ident and last.get(ident, -1) <= item:
            name("unheard", ident)
    for at in range(len(facts) - 1, -1, -1):
        if facts[at].alone and (at + 1 == len(facts) or facts[at + 1].role != "assistant"):
            name("alone", "")
    sources: Counter[str] = Counter()
    for fact in facts:
        sources.update(fact.sources)
        for kind, index in fact.cites:
            if index >= sources[kind]:
                name("cites", kind)
    talk = [fact for fact in facts if fact.role != "system"]
    if not talk:
        name("empty", "")
    else:
        if talk[0].role != "user" or talk[0].results:
            name("first_role", talk[0].role)
        if talk[-1].role == "assistant":
            name("last_role", "assistant")
    return found
