"""A strategy of the operator's own, asked like any other: it sees the conversation, says what it wants, and that becomes a plan.

Its code may do anything, so nothing here trusts it: it works on copies, within `summary_timeout`, and its answer is checked against the
same rules that compactd's own strategies cut by. Whatever is wrong, the request goes on without it, and one log line says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from app.core import jsonspan, rules, tokens
from app.core.plan import Plan, leads
from app.core.transcript import Part, Seen, transcript
from app.core.view import Facts, View, origin
from app.errors import NotCompactable, SummaryFailed, place_of
from app.own.calling import call
from app.own.contract import CompactionContext, CompactionPlan, CompactionUsage, Message, Rendered
from app.own.listed import Wrong, plan_from_list
from app.own.loading import NotLoadable, load
from app.ports import Recorder, Summary
from app.request import Context
from app.settings import EXTRACTIVE
from app.steps.filling import LEAST_RECAP, SETTLED, Filler, seen
from app.steps.keeping import Keeper
from app.strategies.base import Goal
from app.threads import Busy, Escaped

REASON = "own_strategy_failed"


class OwnStrategy:
    def __init__(self, filler: Filler, keeper: Keeper, recorder: Recorder) -> None:
        self._filler = filler
        self._keeper = keeper
        self._recorder = recorder

    async def plan(self, context: Context, view: View, goal: Goal) -> tuple[Plan, Summary | None] | None:
        """What the policy's own strategy wants, with its summary and what that cost; None: nothing.

        Raises NotCompactable(REASON) for everything that is wrong, SummaryFailed(SETTLED) where another replica was first.
        """
        talk = Talk(self._filler, context, view, goal)
        made: tuple[Plan, Summary | None] | None = None
        try:
            made = talk.made(await self._answer(talk))
        except Wrong as wrong:
            self._recorder.warn(REASON, strategy=context.ask.policy.strategy, because=str(wrong))
            raise NotCompactable(REASON) from None
        finally:
            if made is None and talk.spent:
                await self._keeper.spent(context, [talk.spent])
        return made

    async def _answer(self, talk: Talk) -> Any:
        """What it returned. Raises Wrong, SummaryFailed(SETTLED)."""
        policy = talk.asked.ask.policy
        try:
            async with asyncio.timeout(policy.summary_timeout):
                return await call(load(policy.strategy), talk.context)
        except SummaryFailed as failure:
            if failure.reason == SETTLED:
                raise
            raise Wrong(f"the summary failed ({failure.reason})") from None
        except TimeoutError:
            raise Wrong(f"it took longer than summary_timeout ({policy.summary_timeout:g} s)") from None
        except Busy:
            raise Wrong("too many earlier calls of it have not returned") from None
        except NotLoadable as wrong:
            raise Wrong(str(wrong)) from None
        except Escaped as fault:
            raise Wrong(f"it raised {fault}") from None
        except Exception as fault:
            raise Wrong(f"it raised {type(fault).__name__} at {place_of(fault)}") from None


@dataclass(slots=True)
class Talk:
    """One call: what the strategy is handed, and what it makes of that."""

    filler: Filler
    asked: Context
    view: View
    goal: Goal
    context: CompactionContext = field(init=False)
    places: list[int] = field(init=False)
    """positions of the messages in the view"""
    _places_of: dict[int, int] = field(init=False)
    _ground: Ground = field(init=False)
    _summaries: list[Summary] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked, view, facts = self.asked, self.view, self.view.facts
        self._ground = Ground(asked, view)
        self.places = [at for at in range(rules.cut_start(facts), len(facts)) if facts[at].role != "system"]
        messages = [jsonspan.value(view.raws[at]) for at in self.places]
        self._places_of = {id(message): at for message, at in zip(messages, self.places, strict=True)}
        request = rules.current_turn(facts)
        rounds = sum(bool(facts[at].results) and not facts[at - 1].results for at in range(request + 1, len(facts)))
        first = origin(view.pieces[request]) if request < len(facts) else 0
        marks = asked.found.session.usages if asked.found.session else ()
        depth = {link: at for at, link in enumerate(asked.chain)}
        known = [mark for mark in marks if mark.chain in depth]
        last = max(known, key=lambda mark: depth[mark.chain], default=None)
        self.context = CompactionContext(
            messages, rounds, asked.chain[max(0, first)].hex(), asked.ask.client_model or asked.ask.model.name,
            CompactionUsage(last.reported) if last else None, asked.counted.now, asked.ask.model.context_window,
            self.goal.level, asked.ask.format, self._openings(facts, request), self._render, self._summarize,
        )  # fmt: skip

    @property
    def spent(self) -> Summary | None:
        """All model calls of the strategy's: through our summariser, and those that it told of."""
        told, ours = self.context._recorded, self._summaries
        if not told and not ours:
            return None
        return Summary(
            "",
            sum(one.input_tokens for one in ours) + sum(one.input_tokens for one in told),
            sum(one.output_tokens for one in ours) + sum(one.output_tokens for one in told),
            sum(one.cost for one in ours),
        )

    # What the strategy is handed

    def _openings(self, facts: Sequence[Facts], request: int) -> list[int]:
        """Indices of the messages that open a turn; of one before which no cut is allowed, the index of an earlier one, 0 for none."""
        index = {at: number for number, at in enumerate(self.places)}
        openings, last = [], 0
        for at in self.places:
            before = facts[at - 1] if at else None
            follows = before is not None and before.opens_turn and not before.note
            if not facts[at].opens_turn or facts[at].note or follows or at > request:
                continue
            last = last if self._ground.why_not(at) else index[at]
            openings.append(last)
        return openings

    def _render(self, messages: Sequence[Message]) -> str:
        places = tuple(self._places_of.get(id(message), -1) for message in messages)
        if -1 not in places:
            rendered = Rendered(transcript(seen(self.asked, self.view, places)))
            rendered.places = places
            return rendered
        form = self.asked.reader.format
        return transcript(Seen(form.facts(message), tuple(form.parts(message)), -1) for message in messages)

    async def _summarize(self, text: str) -> str:
        asked, view = self.asked, self.view
        places = text.places if isinstance(text, Rendered) else ()
        if places:
            items = seen(asked, view, places)
            leaving = sum(max(0, view.entries[at].tokens) for at in places)
            covered = max(view.covered, *(origin(view.pieces[at]) + 1 for at in places))
        else:
            items = [Seen(Facts("user"), (Part("text", str(text)),), -1)]
            leaving, covered = tokens.count(str(text), asked.ask.model.encoding), len(asked.client)
        room = max(1, min(max(self.goal.target - view.tokens + leaving, LEAST_RECAP), leaving * 4 // 5))
        if asked.ask.policy.summary_model == EXTRACTIVE:
            summary = await self.filler.extracted(asked, items, room)
        else:
            about = blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
            summary = await self.filler.asked(asked, items, leaving, covered, room, f" {about}")
        self._summaries.append(summary)
        return summary.text

    # What it answered

    def made(self, answer: Any) -> tuple[Plan, Summary | None] | None:
        """Raises Wrong, NotCompactable."""
        name = self.asked.ask.policy.strategy
        if answer is None:
            return None
        if isinstance(answer, list | tuple):
            plan = plan_from_list(name, self.asked, self.places, self.context.messages, answer)
            return (plan, self.spent) if plan else None
        if not isinstance(answer, CompactionPlan):
            raise Wrong(
                f"it returned a {type(answer).__name__}; a CompactionPlan, a list of messages or None was expected"
            )
        return self._planned(name, answer)

    def _planned(self, name: str, answer: CompactionPlan) -> tuple[Plan, Summary | None]:
        index, size = answer.keep_from, len(self.places)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 < index < size:
            told = index if isinstance(index, int) else f"a {type(index).__name__}"
            raise Wrong(f"keep_from is {told}; it must be above 0 and below {size}, the number of messages")
        at = self.places[index]
        why = self._ground.why_not(at)
        if why:
            raise Wrong(f"keep_from is {index}, and {why}")
        text = answer.summary
        if text is not None and (not isinstance(text, str) or not text.strip()):
            raise Wrong("its summary is empty" if isinstance(text, str) else f"its summary is a {type(text).__name__}")
        if answer.usage is not None:
            try:
                self.context.record_usage(answer.usage)
            except (TypeError, ValueError, OverflowError):
                raise Wrong(f"its usage, a {type(answer.usage).__name__}, tells no numbers of tokens") from None
        spent = self.spent or Summary("")
        plan = Plan(name, self._ground.first, at, "summary" if text else "")
        summary = Summary((text or "").strip(), spent.input_tokens, spent.output_tokens, spent.cost)
        return plan, summary if text or self.spent else None


class Ground:
    """Where a plan may keep a view from. What all its turns have in common is looked for once: a strategy is told of each of them."""

    def __init__(self, asked: Context, view: View) -> None:
        facts = view.facts
        places = range(rules.cut_start(facts), len(facts))
        self._asked = asked
        self._view = view
        self._request = rules.current_turn(facts)
        self._allowed = rules.cuts(facts)
        self.first = next((at for at in places if self._allowed[at]), len(facts))
        self._pinned = next((at for at in places if facts[at].pinned), len(facts))
        self._said = next((at for at in places if not facts[at].note and not facts[at].stays), len(facts))

    def why_not(self, at: int) -> str:
        """Why a plan may not keep the view from here on, "" if it may."""
        fact = self._view.entries[at].facts
        if fact.note:
            return "that is a note of compactd's own"
        if not fact.opens_turn:
            return "that is no user's message" + (" but one with tool results" if fact.results else "")
        if at > self._request:
            return "that would take away a part of the question that is to be answered"
        if at > self._pinned:
            return "something before it has to stay"
        if at <= self.first or not self._allowed[at]:
            return "the conversation can't be cut there"
        if at <= self._said:
            return "nothing stands before it but an earlier recap"
        if self._asked.quirk("alternating_roles") and not leads(self._view, Plan("", self.first, at)):
            return "that message can't take a recap ahead of its text, as this model needs it"
        return ""
