"""What is done when a provider refuses: at most once per request, and before any byte of an answer went to the client.

Refused as malformed, though the client's own request might not have been: the client's own is sent instead. Where that is refused as well,
something else is wrong (no credit left, a parameter, a content filter): what was made of the request stays good, and the same request,
should it come again, goes out as it is at once. Refused as too long: it is compacted (more), with the window that the provider names.
Reasoning that was made behind a compacted prefix fits no other (AB1): where the client's own request is refused for it, the provider is
asked to drop it. Everything else (rate limits, refusals, faults) is the client's to see, exactly as it came: agents read the wording.

So a request goes out three times at the very most: compacted, as the client wrote it, and without such reasoning. The last two can't be
one, since a provider may take the client's own and not know that wish.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable
from dataclasses import replace
from hashlib import blake2b

import httpx

from app.compactor import Compactor
from app.core import jsonspan
from app.core.recent import Recent
from app.edge.exchange import Exchange
from app.edge.forwarding import ask_upstream
from app.edge.metrics import EITHER_WAY
from app.edge.record import RequestRecorder
from app.edge.refusals import SOMETIMES, STATUSES, Refusal, refusal
from app.edge.upstream import Upstream
from app.errors import UpstreamFailed
from app.formats import FORMATS, wording
from app.request import Ask, Outcome
from app.steps.thinking import QUIRK

HOPELESS_SECONDS, HOPELESS = 600, 4_096
"""How long, and how many, requests are remembered that were refused either way: clients try the same one again a few times."""


class SecondChance:
    def __init__(self, client: Upstream, compactor: Compactor, recorder: RequestRecorder) -> None:
        self._client = client
        self._compactor = compactor
        self._recorder = recorder
        self._refused_either_way: Recent[bytes, float] = Recent(HOPELESS)
        self._with_bound_reasoning: Recent[tuple[str, str], bool] = Recent(HOPELESS)
        """sessions (tenant, name) whose history holds reasoning that fits no other prefix than a compacted one"""

    def skip_known_refusals(self, exchange: Exchange) -> None:
        """One refusal is enough: a request that was refused either way a moment ago goes out as the client wrote it, and one whose history
        was refused for its reasoning asks at once to have that dropped."""
        ask, outcome = exchange.ask, exchange.outcome
        if ask is None or outcome is None:
            return
        known = self._refused_either_way
        # Without any, no body is hashed.
        if exchange.changed and known and (known.get(_digest(exchange)) or 0.0) > time.monotonic():
            exchange.outcome = outcome.undone("rejected")
            exchange.restore()
        if not exchange.changed and self._with_bound_reasoning.get((ask.tenant, outcome.session)):
            self._ask_to_drop_reasoning(exchange, ask, outcome)

    async def answer(self, exchange: Exchange, response: httpx.Response) -> httpx.Response:
        """The answer to give to the client: this one, or that to a better request."""
        ask = exchange.ask
        if ask is None or ask.policy.mode == "off":
            return response
        response, refused = await refusal(response, streams=exchange.changed)
        if refused is None:
            return response
        window = FORMATS[ask.format].overflow(refused.status, refused.said)
        if window and _is_quoted(exchange, ask, window, refused.said):
            window = None
        if window is not None:
            return await _better(response, self._retry_compacted(exchange, ask, window))
        if exchange.changed and refused.status != 413:
            await response.aclose()
            response, refused = await self._retry_original(exchange, refused)
        return await _better(response, self._retry_without_bound_reasoning(exchange, ask, refused))

    async def _retry_compacted(self, exchange: Exchange, ask: Ask, window: int) -> httpx.Response | None:
        """Learn the window, compact with it, try again. None: nothing more could be done, so the client is to see the first refusal."""
        self._recorder.overflowed(ask.format)
        if window:
            exchange.wiring.registry.learn(ask.client_model, ask.upstream, window, ask.tenant)
        if ask.policy.mode == "observe":
            return None
        learnt = replace(ask, model=replace(ask.model, context_window=window)) if window else ask
        outcome = await self._compactor.decide(learnt, overflowed=True)
        if not outcome.changed or outcome.body == exchange.body:
            return None
        first = exchange.outcome
        exchange.forward(outcome)
        with contextlib.suppress(UpstreamFailed):
            response, refused = await refusal(await ask_upstream(self._client, exchange), streams=exchange.changed)
            if refused is None and response.status_code not in STATUSES:
                return response
            await response.aclose()
            if refused is not None and FORMATS[ask.format].overflow(refused.status, refused.said) is None:
                await self._learn(exchange, ask, outcome, refused)
        exchange.outcome = first
        return None

    async def _retry_original(self, exchange: Exchange, refused: Refusal) -> tuple[httpx.Response, Refusal | None]:
        """The client's own request instead, and what is said to that if it is refused, too. What was made of it is never used again,
        unless both are refused."""
        outcome, ask = exchange.outcome, exchange.ask
        assert outcome is not None
        assert ask is not None
        self._with_bound_reasoning.pop((ask.tenant, outcome.session))
        exchange.outcome = outcome.undone("rejected")
        exchange.restore()
        response, again = await refusal(await ask_upstream(self._client, exchange), streams=True)
        form = FORMATS[ask.format]
        alike = (
            again is not None
            and form.overflow(again.status, again.said) is None
            and not form.lesson(again.status, again.said)
        )
        if alike:
            self._recorder.rejected(ask.format, EITHER_WAY)
            self._refused_either_way.put(_digest(exchange), time.monotonic() + HOPELESS_SECONDS)
        else:
            await self._learn(exchange, ask, outcome, refused)
        return response, again

    async def _retry_without_bound_reasoning(
        self, exchange: Exchange, ask: Ask, refused: Refusal | None
    ) -> httpx.Response | None:
        """The answer without the reasoning that fits nowhere else. None: that is not what is wrong, or can't be helped."""
        outcome = exchange.outcome
        if exchange.changed or outcome is None or refused is None or ask.policy.mode == "observe":
            return None
        if FORMATS[ask.format].lesson(refused.status, refused.said) != QUIRK or not self._ask_to_drop_reasoning(
            exchange, ask, outcome
        ):
            return None
        exchange.wiring.registry.learn_quirk(ask.client_model, QUIRK, ask.tenant)
        again = await ask_upstream(self._client, exchange)
        if again.status_code not in STATUSES:
            if outcome.session:
                self._with_bound_reasoning.put((ask.tenant, outcome.session), True)
            return again
        await again.aclose()
        exchange.outcome = outcome
        return None

    @staticmethod
    def _ask_to_drop_reasoning(exchange: Exchange, ask: Ask, outcome: Outcome) -> bool:
        """The client's own request that asks to have reasoning dropped which does not fit; False where it can't or may not ask."""
        binding = FORMATS[ask.format].binding(ask.opened.fields)
        if binding.way != "ask" or ask.policy.thinking_binding != "drop_block":
            return False
        exchange.body = jsonspan.edit(ask.opened.body, binding.edits)
        exchange.length = len(exchange.body)
        exchange.outcome = replace(outcome, reason="bound_reasoning_dropped", beta=binding.beta)
        return True

    async def learn_from_stream(self, exchange: Exchange, said: bytes) -> None:
        """An overflow that a stream has begun with, or a refusal that came late: nothing can be done for this request any more, but it must
        not be the same with the next one."""
        ask, outcome = exchange.ask, exchange.outcome
        if ask is None or outcome is None or ask.policy.mode == "off":
            return
        window = FORMATS[ask.format].overflow(SOMETIMES, said)
        if window and _is_quoted(exchange, ask, window, said):
            window = None
        if window:
            exchange.wiring.registry.learn(ask.client_model, ask.upstream, window, ask.tenant)
        elif window is None and exchange.changed and wording.is_refusal(SOMETIMES, said):
            await self._learn(exchange, ask, outcome, Refusal(SOMETIMES, said))

    async def _learn(self, exchange: Exchange, ask: Ask, outcome: Outcome, refused: Refusal) -> None:
        """What the provider refused must not be sent again."""
        lesson = FORMATS[ask.format].lesson(refused.status, refused.said)
        if lesson:
            exchange.wiring.registry.learn_quirk(ask.client_model, lesson, ask.tenant)
        self._recorder.rejected(ask.format, lesson or "invalid_request")
        await self._compactor.reject(outcome)


async def _better(answer: httpx.Response, trying: Awaitable[httpx.Response | None]) -> httpx.Response:
    """What was found by trying, else the answer that there is. One that nobody gets is closed: a stream may go on behind its refusal."""
    try:
        found = await trying
    except BaseException:
        await answer.aclose()
        raise
    if found is None:
        return answer
    await answer.aclose()
    return found


def _is_quoted(exchange: Exchange, ask: Ask, window: int, said: bytes) -> bool:
    """Does a refusal only quote what the request says about windows? So where these words are in it, though the request was far below every
    threshold, or the session's provider has taken more than that. Where they are not, another server stands behind the name by now."""
    context = exchange.outcome.context if exchange.outcome else None
    if context is not None:
        marks = context.found.session.usages if context.found.session else ()
        taken = [mark.reported for mark in marks if mark.model == ask.model.name and mark.source == "usage"]
        if max(taken, default=0) <= window:
            return False
    return wording.in_request(said, window, ask.opened.body)


def _digest(exchange: Exchange) -> bytes:
    """Stands for this very request of this tenant."""
    assert exchange.ask is not None
    return blake2b(exchange.raw, key=exchange.ask.tenant.encode()[:64], digest_size=16).digest()
