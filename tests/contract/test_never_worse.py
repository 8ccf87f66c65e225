"""Promise 1 under chaos: no client ever gets an error that the direct call would not have got.

Conversations grow past their trigger, in every format and with every strategy. The provider takes offence at compacted requests at random,
has another window than compactd believes, and is busy now and then. Beside it stands a second one of the same kind that gets every request
straight from the client: what that one accepts has to be answered through compactd, too.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import httpx
import pytest

from app.edge.upstream import transport, trust
from tests.edge.talks import MODELS, Talk, compacted
from tests.edge.wire import Answer, Running, compactd, configured
from tests.strict.answers import Call, Reply
from tests.strict.server import Rejection, Seen, StrictProvider

BELIEVED = 12_000  # tokens: the window that compactd is told of
FORMS = list(MODELS)
STEPS, MOST_STEPS = 40, 200
STRATEGIES: dict[str, dict[str, Any]] = {
    "tool_result_clearing": {"keep_recent_tool_results": 1},
    "sliding_window": {"keep_recent_messages": 3},
    "summarize": {"keep_recent_messages": 1, "summary_fallback": "pass", "summary_max_tokens": 300},
    "combined": {"summary_model": "extractive", "keep_recent_tool_results": 1, "keep_recent_messages": 3},
}
END = {
    "openai-chat": b"[DONE]", "openai-responses": b"response.completed", "anthropic-messages": b"message_stop",
    "gemini": b'"finishReason"',
}  # fmt: skip
OFFENCES = [
    Rejection(400, "messages.3: tool_use ids were found without tool_result blocks"),
    Rejection(400, "Invalid request", code="invalid_value"),
    Rejection(422, "unprocessable", body={"detail": [{"loc": ["body"], "msg": "field required"}]}),
    Rejection(400, "", body="Bad Request"),
]
BUSY = [
    Rejection(429, "slow down", headers=(("retry-after", "1"),)),
    Rejection(503, "overloaded"),
    Rejection(500, "oops"),
]
THINKING = {"thinking": {"type": "adaptive"}, "max_tokens": 2_048}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    context = trust.trusted()
    monkeypatch.setattr(transport, "trusted", lambda: context)


def answers_of(chance: Random) -> Any:
    """A model that calls a tool more often than not, and thinks where it is asked to."""

    def answer(form: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
        thought = "Let me see." if "thinking" in body else ""
        if "tools" in body and chance.random() < 0.6:
            calls = tuple(Call("read", {"n": number}) for number in range(chance.choice([1, 1, 1, 2])))
            return Reply(chance.choice(["", "I look."]), calls, thought)
        return Reply("So it is. " * chance.randint(10, 120), (), thought)

    return answer


class Chaos:
    """One client, one compactd, the provider behind it and the one beside it."""

    def __init__(self, form: str, seed: int, window: int, *, offended: float, busy: float, **more: Any) -> None:
        self.chance = Random(seed)
        self.talk, self.more = Talk(form), more
        self.offended, self.busy = offended, busy
        self._now: Rejection | None = None
        bound = "thinking" in more
        if bound:
            self.talk.model = "claude-opus-5-1"
        self.provider = StrictProvider(
            answer=answers_of(self.chance), window=window, reject=self._reject, binds_thinking=bound
        )
        # Thinking that was made behind a compacted prefix fits no other one, so the straight provider must not look at that.
        self.straight = StrictProvider(window=window, reject=lambda _: self._now)
        self.outcomes: list[str] = []

    def _reject(self, seen: Seen) -> Rejection | None:
        if self._now is not None:
            return self._now
        return self.chance.choice(OFFENCES) if compacted(seen.body) and self.chance.random() < self.offended else None

    async def step(self, proxy: Running, straight: httpx.AsyncClient) -> None:
        """The client sends its whole history, streamed or not, and goes on with the answer."""
        self._now = self.chance.choice(BUSY) if self.chance.random() < self.busy else None
        stream = self.chance.random() < 0.3
        data = self.talk.request(stream=stream, **self.more)
        direct, answer = await _directly(straight, data), await proxy.ask(data)
        self.outcomes.append(answer["x-compactd-outcome"])
        if direct.status_code == 200:
            assert answer.status == 200, (answer.told, answer.body)
            _ended(self.talk.form, stream, answer)
        elif self._now is not None:
            assert (answer.status, answer.body) == (direct.status_code, direct.content)
        elif answer.status != 200:
            assert answer.status == 400
            assert b"rejected by" not in answer.body
        if answer.status == 200 and not stream:
            self._go_on(json.loads(answer.body))
        elif self._now is None and direct.status_code != 200 and answer.status != 200:
            self.talk.items = []
            self.talk.ask("From the start, then. " * self.chance.randint(1, 30))

    def _go_on(self, answer: dict[str, Any]) -> None:
        calls = self.talk.heard(answer)
        if not calls:
            self.talk.ask("And then? " * self.chance.randint(20, 160))
        elif self.talk.form in ("openai-chat", "openai-responses"):
            for ident, _ in calls:
                self.talk.result(ident, self._found())
        else:
            results = [Talk(self.talk.form).result(ident, self._found()).items[0] for ident, _ in calls]
            key = "parts" if self.talk.form == "gemini" else "content"
            self.talk.items.append({"role": "user", key: [part for result in results for part in result[key]]})

    def _found(self) -> str:
        return "line of a file\n" * self.chance.randint(20, 240)


async def _directly(straight: httpx.AsyncClient, data: bytes) -> httpx.Response:
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = dict(one.split(": ", 1) for one in lines)
    return await straight.request("POST", line.split(" ")[1], content=body, headers=headers)


def _ended(form: str, stream: bool, answer: Answer) -> None:
    """A whole answer, or a stream with its end."""
    if not stream:
        assert isinstance(json.loads(answer.body), dict)
        return
    assert END[form] in answer.body[-3_000:]


async def run(chaos: Chaos, policy: dict[str, Any]) -> None:
    """Until there was enough of everything."""
    chaos.talk.ask("Read all of it.")
    straight = httpx.AsyncClient(transport=httpx.ASGITransport(chaos.straight), base_url="http://straight")
    models = {"*": {"context_window": BELIEVED}}
    async with (
        chaos.provider.serve() as url,
        compactd(configured(url, policies=[policy], models=models), patience=120) as proxy,
        straight,
    ):
        for number in range(MOST_STEPS):
            await chaos.step(proxy, straight)
            if number >= STEPS and chaos.outcomes.count("compacted") >= 3:
                break
        assert "compacted" in chaos.outcomes
        assert proxy.faults == {}
    broken = {violation.rule for seen in chaos.provider.requests for violation in seen.violations}
    assert broken <= (
        {"AB1"} if "thinking" in chaos.more else set()
    )  # these it lets the provider drop, once it is told


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_no_client_gets_an_error_that_the_direct_call_would_not_have_got(form: str, strategy: str) -> None:
    windows = [BELIEVED * 3 // 2, BELIEVED, BELIEVED * 2 // 3]
    seed = list(FORMS).index(form) + list(STRATEGIES).index(strategy)
    chaos = Chaos(form, seed, windows[(seed + 1) % 3], offended=0.3, busy=0.1)
    await run(chaos, {"strategy": strategy, "clear_at_least": 0, **STRATEGIES[strategy]})


@pytest.mark.parametrize("form", FORMS)
async def test_without_offence_nothing_is_refused(form: str) -> None:
    """The same, and the provider only keeps to its rules: not one request that it refuses for its shape."""
    for strategy, options in STRATEGIES.items():
        chaos = Chaos(form, 7, BELIEVED * 2, offended=0.0, busy=0.0)
        await run(chaos, {"strategy": strategy, "clear_at_least": 0, **options})
        assert "failed" not in chaos.outcomes
        assert {seen.status for seen in chaos.provider.requests} == {200}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("offended", [0.0, 0.3])
async def test_thinking_that_is_bound_to_its_prefix(strategy: str, offended: float) -> None:
    chaos = Chaos("anthropic-messages", 3, BELIEVED * 2, offended=offended, busy=0.0, **THINKING)
    await run(chaos, {"strategy": strategy, "clear_at_least": 0, **STRATEGIES[strategy]})
