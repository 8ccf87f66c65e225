"""How far into the client's history a compaction reaches: which of its items the checkpoint covers, and which of them are gone."""

from __future__ import annotations

from app.core import rules
from app.core.plan import Plan, gone_until
from app.core.view import View, origin, raw_bytes
from app.request import Context


def settled_depth(context: Context) -> int:
    """How far a checkpoint reaches that is stored for this history already, fitting or not: no other is kept for that very prefix, and a
    shorter one would never be found."""
    return max(context.checkpoint.covered if context.checkpoint else 0, context.misfit)


def coverage(context: Context, after: View) -> int:
    """How many of the client's items the checkpoint that leads to this view has to cover: more than the stored one does, and, where a
    standing rule takes out tool traffic or reasoning, the results of all calls in it and what its reasoning led to: a replay comes before
    that rule, and must not part them."""
    covered = max(after.covered, settled_depth(context) + 1)
    if after.shaped:
        covered = _past_answer(context.client, covered)
        pairs = rules.pair(context.client.facts).call_of.items()
        for (result, _), (call, _) in sorted(pairs, key=lambda pair: pair[1]):
            if call < covered:
                covered = max(covered, result + 1)
    return covered


def _past_answer(client: View, covered: int) -> int:
    """The end of what the model said in one go, if reasoning with an item of its own leads to what comes next; else `covered`."""
    facts = client.facts
    start = covered - 1
    while start >= 0 and facts[start].role == "assistant" and not facts[start].alone:
        start -= 1
    if start < 0 or not facts[start].alone:
        return covered
    while covered < len(facts) and facts[covered].role == "assistant" and not facts[covered].alone:
        covered += 1
    return covered


def covered_by(view: View, plan: Plan) -> int:
    """How many of the client's items the checkpoint will cover that this cut leads to."""
    return max([view.covered, *(origin(piece) + 1 for piece in view.pieces[plan.start : gone_until(view, plan)])])


def removed(context: Context, view: View, plan: Plan) -> tuple[int, list[str]]:
    """How many of the client's items stand no more before the cut's end, earlier cuts included, and what of them has to be repeated:
    standing instructions, and a word that the request's other fields want to see."""
    client = context.client
    end = next((origin(piece) for piece in view.pieces[plan.stop :] if origin(piece) >= 0), len(client))
    given_back = plan.given_back
    kept = {
        origin(piece)
        for at, piece in enumerate(view.pieces)
        if not plan.start <= at < plan.stop or view.entries[at].facts.stays or at in given_back
    }
    gone = [index for index in range(end) if index not in kept]
    carried = [context.reader.text(client.raws[index]) for index in gone if client.entries[index].facts.carried]
    word = context.reader.format.obliges(context.ask.opened.fields)
    if word and not any(word.lower().encode() in raw_bytes(client.raws[index]).lower() for index in kept if index >= 0):
        carried.append(f"Answer in {word}.")
    return len(gone), carried
