"""When and how to compact: every parameter of a policy, explained under its field.

These explanations are the reference manual (`python -m app.settings.reference`), so they speak to an operator. Thresholds
stay as they were written, tokens or a share of the window; the methods at the end turn them into tokens for a given window.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from app.settings.match import OPTIONS, Match
from app.settings.values import (
    Count,
    Gain,
    Name,
    Positive,
    Seconds,
    Stages,
    Strategy,
    Text,
    TextFile,
    Threshold,
    tokens,
)

EXTRACTIVE = "extractive"


class Policy(BaseModel):
    """One way to compact, and the requests that it is for."""

    model_config = OPTIONS

    name: Name = "default"
    """What the policy is called in logs and in the request header `x-compactd-policy`. Every policy has its own."""

    match: Match = Match()
    """The requests that the policy is for; left out, all. The first policy in the list that matches is taken."""

    mode: Literal["on", "observe", "off"] = "on"
    """`on` compacts. `observe` works out and reports what would be done, and forwards the original. `off` only forwards."""

    strategy: Strategy = "summarize"
    """What leaves: `summarize` puts a recap in place of earlier turns, `sliding_window` keeps the latest messages,
    `tool_result_clearing` blanks old tool results, `combined` takes these in turn until the target is reached,
    `package.module:callable` is code of yours."""

    trigger_threshold: Threshold = 0.8
    """A conversation that has grown past this is compacted. A decimal is a share of the model's context window, a whole
    number is tokens: `1.0` is the whole window, `1` is one token."""

    target_threshold: Threshold = Field(default=0.5, validate_default=True)
    """Where a compaction wants to end, in the same units. The distance to the trigger decides how often the provider's
    prompt cache is lost. A share that would not lie below a trigger given in tokens is taken of that trigger."""

    clear_at_least: Gain = 0.05
    """A compaction that frees less than this (same units) is not worth a lost prompt cache and is left undone. `0`: any gain
    will do. A share next to a trigger given in tokens never asks for more than the way from trigger to target."""

    min_messages_before_compaction: Count = 4
    """A conversation of fewer messages is never compacted."""

    max_compactions_per_session: Count | None = None
    """At most so many compactions in one session; `null` is no limit."""

    compact_first_request: bool = True
    """`false`: a conversation that was never seen before passes as it is, whatever its size."""

    keep_recent_messages: Positive = 5
    """How many of the latest messages `sliding_window` keeps. `summarize` keeps at least the current turn."""

    keep_recent_turns: Positive | None = None
    """Instead of counting messages: the latest so many turns stay word for word. `null`: not used."""

    keep_recent_tool_results: Count = 3
    """How many of the latest tool results `tool_result_clearing` leaves alone."""

    clear_tool_inputs: bool = False
    """Also clear the arguments of tool calls whose results are cleared."""

    exclude_tools: tuple[Text, ...] = ()
    """Names of tools whose results are never cleared."""

    sliding_window_include_truncation_notice: bool = True
    """Leave a notice where messages were removed, saying how many."""

    combined_order: Stages = ("tool_result_clearing", "sliding_window", "summarize")
    """The stages of `combined`, in the order in which they are tried. Each works on what the last one left."""

    summary_model: Text | None = None
    """Who writes summaries. `null`: the request's own model, at its own upstream. `model`: another model there.
    `upstream:model`: a model elsewhere; that upstream needs an `api_key` unless the request goes to it anyway.
    `extractive`: no model at all, the recap is put together from the conversation's own words."""

    summary_prompt: Text | None = None
    """Instructions for the summariser instead of the built-in ones. Wins over `summary_prompt_file`."""

    summary_prompt_file: TextFile | None = None
    """A UTF-8 file with such instructions, read at start and on reload. A relative path starts at the working directory."""

    summary_max_tokens: Positive = 4096
    """The longest summary, in tokens."""

    summary_timeout: Seconds = 60
    """Seconds to wait for a summary. Then `summary_fallback` decides."""

    summary_fallback: Literal["sliding_window", "extractive", "tool_result_clearing", "pass"] = "sliding_window"
    """What to do when no summary came: another strategy, a summary without a model (`extractive`), or forward the
    original (`pass`)."""

    protect_current_turn: bool = True
    """`false`: the turn that is under way may be summarised too, tool results included."""

    fold_rounds_above: Threshold | None = 0.95
    """Last resort for one very long turn: above this (a share of the window or tokens) its oldest tool rounds become one
    note. `null`: never."""

    prepare_threshold: Threshold | None = None
    """From here on (a share of the window or tokens) the summary is written in the background, so that it is there once the
    trigger is reached. `null`: summaries are written when they are needed."""

    idle_threshold: Threshold | None = None
    """A lower trigger (a share of the window or tokens) for a conversation that rested longer than `cache_ttl`: the
    provider's prompt cache is cold by then, so compacting costs none. `null`: not used."""

    cache_ttl: Seconds = 300
    """Seconds after which a conversation without requests counts as cold in the provider's prompt cache."""

    max_tool_result_tokens: Positive | None = None
    """A tool result longer than this many tokens is cut to its head and tail from the first time it is seen. `null`: never."""

    keep_user_messages: Count = 4000
    """Tokens of earlier user requests that a recap repeats word for word, newest first. Without a model they take at most
    half of what the recap may take. `0`: none."""

    keep_values: Count = 1000
    """Tokens of exact values (ids, paths, addresses, numbers) that a recap repeats word for word, each with its line, those first
    that are most likely to be needed again and could not be looked up. `0`: none."""

    history_mode: Literal["full", "no_reasoning", "no_tool_results", "compact_tool_results", "messages_only"] = "full"
    """What earlier turns still show, on every request: everything, all but reasoning, all but tool results, tool results
    shortened, or no tool traffic at all. The current turn is never touched."""

    thinking_binding: Literal["drop_block", "strip", "error"] = "drop_block"
    """For models that tie a thinking block to what came before it: `drop_block` asks the provider to drop blocks that no
    longer fit, `strip` removes them, `error` leaves such a conversation uncompacted."""

    keepalive_seconds: Seconds | None = None
    """Streams only: while a summary is being written, send a sign of life this often, in seconds. The provider's status is
    not known by then, so its errors arrive inside the stream. `null`: nothing is sent early."""

    archive_history: bool = True
    """Keep what a compaction removes, readable."""

    include_archive_path_in_summary: bool = True
    """Tell the model in the recap where the removed messages can be read."""

    def trigger_tokens(self, window: int) -> int:
        """The trigger in tokens, for a context window of so many tokens."""
        return tokens(self.trigger_threshold, window)

    def target_tokens(self, window: int) -> int:
        """The target in tokens, never above the trigger."""
        trigger, target = self.trigger_tokens(window), tokens(self.target_threshold, window)
        if target >= trigger and isinstance(self.target_threshold, float) and isinstance(self.trigger_threshold, int):
            return tokens(self.target_threshold, trigger)
        return min(target, trigger)

    def clear_at_least_tokens(self, window: int) -> int:
        """The least number of tokens that a compaction must free; 1 where any gain will do."""
        if self.clear_at_least == 0:
            return 1
        gain = tokens(self.clear_at_least, window)
        if isinstance(self.clear_at_least, float) and isinstance(self.trigger_threshold, int):
            return min(gain, max(1, self.trigger_tokens(window) - self.target_tokens(window)))
        return gain

    def fold_tokens(self, window: int) -> int | None:
        """Above so many tokens the rounds of the current turn may be folded; None: never."""
        return None if self.fold_rounds_above is None else tokens(self.fold_rounds_above, window)

    def prepare_tokens(self, window: int) -> int | None:
        """From so many tokens on a summary is prepared; None: never."""
        return None if self.prepare_threshold is None else tokens(self.prepare_threshold, window)

    def idle_tokens(self, window: int) -> int | None:
        """The trigger in tokens for a conversation that went cold; None: the usual one."""
        return None if self.idle_threshold is None else tokens(self.idle_threshold, window)

    def summary_target(self, upstreams: Container[str]) -> tuple[str | None, str | None]:
        """(upstream, model) that summaries are asked from; None stands for the request's own.

        A model's name may hold a colon (`llama3:8b`): what comes before the first one is an upstream only if it is the name
        of a configured one. Asks nobody when `summary_model` is `extractive`: check for that first.
        """
        if self.summary_model is None:
            return None, None
        upstream, colon, model = self.summary_model.partition(":")
        return (upstream, model) if colon and upstream in upstreams else (None, self.summary_model)

    @cached_property
    def summary_instructions(self) -> str | None:
        """The operator's own instructions for the summariser, inline ones first; None: the built-in ones."""
        if self.summary_prompt is not None or self.summary_prompt_file is None:
            return self.summary_prompt
        return self.summary_prompt_file.read_text(encoding="utf-8")

    def model_post_init(self, context: object, /) -> None:  # noqa: ARG002
        """Read the instructions now: a file that goes away later changes nothing."""
        self.summary_instructions  # noqa: B018

    @field_validator("target_threshold", "prepare_threshold", "idle_threshold")
    @classmethod
    def _not_above_the_trigger(cls, value: int | float | None, info: ValidationInfo) -> int | float | None:
        trigger = info.data.get("trigger_threshold")
        if value is not None and isinstance(trigger, type(value)) and value > trigger:
            raise ValueError(f"{value} lies above trigger_threshold ({trigger}); set it to {trigger} or less")
        return value
