"""From a request that is too long to one that is not: plan, fill the plan's hole, apply, gate.

An attempt is a row of steps, each a plan on what the step before it left (the strategy's own, then the last resorts for a long turn). The
plans come from strategies and are pure; the only thing that waits is the summary. What an attempt would break, it is dropped for.
"""

from __future__ import annotations

from dataclasses import replace

from app.archive import Draft
from app.core import rules
from app.core.notes import CLEARED_INPUT, CONTINUATION, cleared_result, omitted_note
from app.core.plan import Clear, Plan, apply, leads
from app.core.view import View, origin
from app.errors import NotCompactable, SummaryFailed
from app.own.strategy import OwnStrategy
from app.ports import Recorder
from app.request import Context
from app.settings import EXTRACTIVE
from app.steps import counting
from app.steps.attempt import Attempt, Step
from app.steps.coverage import coverage, covered_by, removed, settled_depth
from app.steps.filling import LEAST_RECAP, SETTLED, Filler, seen
from app.steps.keeping import Keeper
from app.steps.thinking import fit_reasoning
from app.strategies import STRATEGIES
from app.strategies.base import Goal
from app.strategies.combined import tokens_after
from app.strategies.fold_rounds import FoldRounds
from app.summaries.recap import recap

LEAST_SHARE_OF_EXCESS = 0.4
"""A step frees at least this share of what lies above the target: where that is out of reach, every request is above the trigger,
and steps still have to be large and rare."""
REMAINS_SHARE = 5
"""One token in so many stays of cleared results, where no model is asked: more would bring the next compaction near."""
MODELLESS = frozenset({"sliding_window", "tool_result_clearing"})


class Rewriter:
    def __init__(self, filler: Filler, keeper: Keeper, recorder: Recorder) -> None:
        self._filler = filler
        self._own = OwnStrategy(filler, keeper, recorder)
        self._keeper = keeper
        self._recorder = recorder

    async def attempt(self, context: Context, draft: Draft | None) -> Attempt | str:
        """The rewritten view, or the reason why there is none."""
        address = draft.address if draft else ""
        level = rules.level(context.view.facts)
        if settled_depth(context) >= len(context.client):
            return "nothing_to_compact"
        try:
            steps, view = await self._steps(context, level, address)
        except SummaryFailed as failure:
            if failure.reason == SETTLED:
                return Attempt(context.view, (), level, settled_elsewhere=True)
            return "summary_failed"
        except NotCompactable as refusal:
            return refusal.reason
        if not steps:
            return "nothing_to_compact"
        attempt = Attempt(view, tuple(steps), level)
        reason = await self._gate(context, view)
        if reason and attempt.summaries:
            await self._keeper.spent(context, attempt.summaries)
        return reason or attempt

    async def _steps(self, context: Context, level: int, address: str) -> tuple[list[Step], View]:
        """The policy's strategy, then, for a turn that would still not fit, the fold."""
        steps: list[Step] = []
        view = context.view
        step = await self._step(context, view, self.goal(context, view, level))
        if step is not None:
            steps.append(step)
            view = self._applied(context, view, step, address)
            await counting.fill(context.reader, view)
        limit = context.ask.policy.fold_tokens(context.ask.model.context_window)
        # A note behind the question would be a second user item in a row.
        folds = level == 2 and not context.quirk("alternating_roles")
        if limit is not None and folds and context.counted.of(view) >= limit:
            plan = FoldRounds().plan(view, self.goal(context, view, level))
            if plan is not None:
                fold = await self._fold(context, view, fit_reasoning(context, view, plan, self._recorder), step)
                if fold is not None:
                    steps.append(fold)
                    view = self._applied(context, view, fold, address)
        return steps, view

    async def _fold(self, context: Context, view: View, plan: Plan, before: Step | None) -> Step | None:
        """A fold with its note: the model's, else one made without it; None where the policy wants to pass then.

        A policy whose strategy asks no model is not made to ask one here either.
        """
        asks = context.ask.policy.strategy not in MODELLESS
        if asks and (before is None or not before.fell_back):
            try:
                return await self._filled(context, view, plan)
            except SummaryFailed as failure:
                self._no_summary(context, failure)
        if asks and context.ask.policy.summary_fallback == "pass":
            return None
        try:
            return await self._filled(context, view, plan, extractive=True)
        except SummaryFailed:  # nothing worth telling in these rounds: what the step before did stays
            return None

    async def _step(self, context: Context, view: View, goal: Goal) -> Step | None:
        """The strategy's own plan with its hole filled, or the policy's fallback. Raises SummaryFailed where that is to pass."""
        policy = context.ask.policy
        if policy.strategy not in STRATEGIES:
            made = await self._own.plan(context, view, goal)
            return Step(fit_reasoning(context, view, made[0], self._recorder), made[1]) if made else None
        plan = STRATEGIES[policy.strategy].plan(view, goal)
        if plan is None:
            return None
        plan = fit_reasoning(context, view, plan, self._recorder)
        if plan.because:
            self._recorder.note("strategy_fell_back", strategy=plan.strategy, because=plan.because)
        try:
            return await self._filled(context, view, plan)
        except SummaryFailed as failure:
            self._no_summary(context, failure)
        fallback = policy.summary_fallback
        if fallback == "pass":
            raise SummaryFailed("pass")
        if fallback == EXTRACTIVE:
            return replace(await self._filled(context, view, plan, extractive=True), fell_back=True)
        stages = tuple(dict.fromkeys(fallback if stage == "summarize" else stage for stage in goal.combined_order))
        name = "combined" if policy.strategy == "combined" else fallback
        instead = STRATEGIES[name].plan(view, replace(goal, combined_order=stages))
        return Step(fit_reasoning(context, view, instead, self._recorder), fell_back=True) if instead else None

    def _no_summary(self, context: Context, failure: SummaryFailed) -> None:
        """Tell why there is no summary. Raises the failure where it means that there is something better."""
        if failure.reason == SETTLED:
            raise failure
        self._recorder.summary_failed(failure.reason, context.ask.policy.summary_fallback)

    async def with_address(
        self, context: Context, attempt: Attempt, draft: Draft, address: str
    ) -> tuple[Draft | None, Attempt]:
        """The same attempt with what its notes say of the archive put right: where it is now, or nothing ("")."""
        if address == draft.address:
            return draft, attempt
        view = context.view
        for step in attempt.steps:
            view = self._applied(context, view, step, address)
        await counting.fill(context.reader, view)
        return replace(draft, address=address) if address else None, replace(attempt, view=view)

    def goal(self, context: Context, view: View, level: int) -> Goal:
        """What the policy asks of a strategy, in local tokens of the view's items."""
        policy, estimate = context.ask.policy, context.counted
        target = policy.target_tokens(context.ask.model.context_window)
        return Goal(
            tokens=view.tokens,
            target=max(0, int(target / estimate.ratio) - estimate.fixed),
            level=level,
            keep_recent_messages=policy.keep_recent_messages,
            keep_recent_turns=policy.keep_recent_turns,
            keep_recent_tool_results=policy.keep_recent_tool_results,
            clear_tool_inputs=policy.clear_tool_inputs,
            exclude_tools=frozenset(policy.exclude_tools),
            notice=policy.sliding_window_include_truncation_notice,
            combined_order=policy.combined_order,
            summary_is_free=policy.summary_model == EXTRACTIVE,
            protect_current_turn=policy.protect_current_turn,
        )

    # Filling the hole

    async def _filled(self, context: Context, view: View, plan: Plan, extractive: bool = False) -> Step:
        """The plan with its summary. Raises SummaryFailed, and NotCompactable before a summary is paid for in vain."""
        policy = context.ask.policy
        free = extractive or policy.summary_model == EXTRACTIVE
        summarised = plan.cuts and plan.note == "summary"
        if not summarised and not (free and plan.clear and policy.strategy == "combined"):
            return Step(plan)
        touched = [*(place.item for place in plan.clear), *plan.bare]
        reach = max(covered_by(view, plan), *(origin(view.pieces[at]) + 1 for at in touched), 0)
        if context.found.quarantined >= reach:
            raise NotCompactable("quarantined")
        if reason := _too_little(context, tokens_after(view, plan)):
            raise NotCompactable(reason)
        leaving = sum(max(0, view.entries[at].tokens) for at in range(plan.start, plan.stop))
        room = self._room(context, view, plan, leaving)
        if free:
            summary, remains = await self._filler.condensed(context, view, plan, room)
            return Step(plan, summary if summarised else None, remains=remains)
        items = seen(context, view, range(plan.start, plan.stop))
        return Step(plan, await self._filler.asked(context, items, leaving, covered_by(view, plan), room))

    def _room(self, context: Context, view: View, plan: Plan, leaving: int) -> int:
        """Local tokens that the recap may take: what is left to the target, a floor, never more than most of what it replaces."""
        left = self.goal(context, view, 0).target - tokens_after(view, plan)
        least = LEAST_RECAP if plan.cuts else 0
        cleared = view.tokens - leaving - tokens_after(view, plan) if plan.clear else 0
        return max(1, min(max(left, least), leaving * 4 // 5 + max(0, cleared) // REMAINS_SHARE))

    # Applying

    def _applied(self, context: Context, view: View, step: Step, address: str) -> View:
        reader, plan = context.reader, step.plan
        pairing = rules.pair(view.facts)

        def placeholder(place: Clear) -> str:
            if place.inputs:
                return CLEARED_INPUT
            result = view.entries[place.item].facts.results[place.ordinal]
            told = cleared_result(pairing.tool(view.facts, (place.item, place.ordinal)), result.size, address)
            remains = step.remains.get(place)
            return f"{told}\n{remains}" if remains else told

        note: bytes | str = b""
        gone, carried = removed(context, view, plan) if plan.cuts else (0, [])
        alternating = context.quirk("alternating_roles")
        if plan.cuts and (plan.note or carried):  # what holds on is repeated, whether a notice is wanted or not
            if step.summary is not None and step.summary.text:
                number = (context.checkpoint.number if context.checkpoint else 0) + 1
                told = address if context.ask.policy.include_archive_path_in_summary else ""
                text = recap(step.summary.text, number, told, carried, plan.strategy == FoldRounds.name)
            else:
                text = omitted_note(gone, carried)
            note = text if alternating and leads(view, plan) else reader.format.note(text)
        # The recap alone is a user item to end on, where two in a row are refused.
        ending = reader.format.note(CONTINUATION) if plan.continuation and not alternating else b""
        after = apply(context.client, view, plan, note, placeholder, reader.rewrite, reader.entries, ending)
        return replace(after, covered=coverage(context, after))

    async def _gate(self, context: Context, after: View) -> str:
        """Why the attempt must be dropped, "" if it may go out: no violation that the client's own request lacks, and worth it."""
        if rules.violations(after.facts) - rules.violations(context.client.facts):
            self._recorder.fault("gate", None)
            return "would_violate"
        if context.found.quarantined >= after.covered > 0:
            return "quarantined"
        await counting.fill(context.reader, after)
        return _too_little(context, after.tokens)


def _too_little(context: Context, after: int) -> str:
    """Why it is not worth a cache miss to come down to so many local tokens, "" if it is."""
    freed = (context.view.tokens - after) * context.counted.ratio
    if freed <= 0:
        return "no_gain"
    if context.overflowed:  # the provider has refused it as it is: any gain is worth it
        return ""
    policy, window = context.ask.policy, context.ask.model.context_window
    if freed < policy.clear_at_least_tokens(window):
        return "gain_too_small"
    excess = context.counted.now - policy.target_tokens(window)
    return "gain_too_small" if policy.clear_at_least and freed < excess * LEAST_SHARE_OF_EXCESS else ""
