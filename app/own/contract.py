"""What a strategy of the operator's own sees of a conversation, and how it says what it wants.

The contract is small on purpose: messages in the client's own wire format, a few figures, and four helpers. Whatever could go wrong with
a conversation (where it may be cut, which results belong to which calls, how a recap is framed) stays compactd's to know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompactionUsage:
    """Tokens of a model call that a provider reported."""

    input_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def of(cls, usage: Any) -> CompactionUsage:
        """From what an SDK calls usage: an object or a dict with `input_tokens` and `output_tokens`, or as chat completions name them.
        Raises TypeError, ValueError or OverflowError where that is no number of tokens."""

        def read(*names: str) -> int:
            for name in names:
                found = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
                if found is not None:
                    return max(0, int(found))
            raise TypeError(f"a {type(usage).__name__} without {names[0]}")

        return cls(read("input_tokens", "prompt_tokens"), read("output_tokens", "completion_tokens"))


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Drop all messages before `keep_from`, an index in `context.messages` of a user's message above 0.

    `summary` takes their place, in compactd's frame; None leaves nothing there. `usage` is what a model call of the strategy's cost, a
    CompactionUsage or an SDK's own (calls through `context.summarize` are counted already).
    """

    keep_from: int
    summary: str | None = None
    usage: Any = None


@dataclass(frozen=True, slots=True)
class CompactionSplit:
    """A conversation in two: what a plan would drop, and what it would keep, from a user's message on."""

    keep_from: int
    older: list[Message]
    recent: list[Message]

    def plan(self, summary: str | None = None, usage: Any = None) -> CompactionPlan:
        """The plan for this very split, so that it drops exactly what was summarised. Raises ValueError where `older` is empty."""
        if not self.older:
            raise ValueError("this split drops nothing; look at split.older first")
        return CompactionPlan(self.keep_from, summary, usage)


class Rendered(str):
    """A text that knows which messages it shows, so that a summariser gets them and not only their looks."""

    __slots__ = ("places",)
    places: tuple[int, ...]


@dataclass(slots=True)
class CompactionContext:
    """One request's conversation, handed to the strategy before the request goes to the provider.

    messages        the conversation in the client's wire format without its system messages; copies: changing one changes nothing
    iteration       tool rounds of the current turn so far; 0 before the first answer
    run_id          the same for all requests of one turn (one question and its tool rounds)
    model           as the client names it
    last_usage      what the provider reported for this conversation last (input tokens); None at its first request
    tokens          input tokens of this request, as well as compactd can tell
    context_window  input tokens that the model takes
    level           1 before an answer to a new question, 2 inside a tool loop
    format          the wire format that `messages` are in
    """

    messages: list[Message]
    iteration: int
    run_id: str
    model: str
    last_usage: CompactionUsage | None
    tokens: int
    context_window: int
    level: int
    format: str
    _openings: Sequence[int] = field(repr=False)
    _render: Callable[[Sequence[Message]], str] = field(repr=False)
    _summarize: Callable[[str], Awaitable[str]] = field(repr=False)
    _recorded: list[CompactionUsage] = field(default_factory=list, repr=False)

    def record_usage(self, usage: Any) -> None:
        """Count a model call of the strategy's own in the session's summary tokens, whatever becomes of its answer. `usage` is a
        CompactionUsage, or what an SDK's answer has as such; raises as `CompactionUsage.of` does."""
        self._recorded.append(CompactionUsage.of(usage))

    def split_at_user_turn(self, keep_turns: int = 1) -> CompactionSplit:
        """Split before the `keep_turns`-th turn from the end. `older` is empty where there is nothing to drop: too few turns, nothing but
        an earlier recap before them, or something that must not leave. Raises ValueError below 1."""
        if keep_turns < 1:
            raise ValueError("keep_turns must be 1 or more")
        openings = self._openings
        at = openings[-keep_turns] if len(openings) >= keep_turns else 0
        return CompactionSplit(at, self.messages[:at], self.messages[at:])

    def render(self, messages: Sequence[Message]) -> str:
        """Messages as compact text: who speaks, what, which tools were called with what result. Reasoning is left out."""
        return self._render(messages)

    async def summarize(self, text: str) -> str:
        """A summary by the policy's summariser and prompt. Costs are counted. Raises SummaryFailed (`reason`), for example after
        `summary_timeout`."""
        return await self._summarize(text)
