"""What tokens cost, by the list prices that ship with the `genai-prices` package: estimates, never invoices.

The package takes the better part of a second to import and a millisecond or more for each model, so nothing of it happens on the event
loop: summaries ask from a thread, and savings, of which every request has some, are reckoned with rates that a thread has looked up before.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.formats.base import Usage

PROVIDERS = {
    "anthropic-messages": "anthropic",
    "gemini": "google",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Whose prices hold where a model's name alone does not say it."""
RATES_KEPT = 1_024
"""Models; their names are the registry's, but a configuration may add some."""


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars for one input token, and for one that the provider had in its cache. 0.0: not known."""

    input: float
    cached: float


def cost(model: str, upstream_format: str, usage: Usage) -> float:
    """US dollars for what a provider reported, cached tokens at their own rates; 0.0 for a model without a known price.

    Blocks, the first time for long: call it in a thread.
    """
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    read = min(usage.cache_read, usage.input)
    told = Priced(
        input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=read,
        cache_write_tokens=min(usage.cache_write, usage.input - read),
    )  # fmt: skip
    for name in dict.fromkeys((model, model.rsplit("/", 1)[-1])):
        for provider in (None, PROVIDERS.get(upstream_format)):
            try:
                return float(calc_price(told, name, provider_id=provider).total_price)
            except (LookupError, ValueError, ArithmeticError):
                continue
    return 0.0


def rates(model: str, upstream_format: str) -> Rates:
    """A model's rates for a prompt of ordinary length. Blocks like `cost`."""
    prompt = 100_000
    new, cached = Usage(prompt), Usage(prompt, cache_read=prompt)
    return Rates(cost(model, upstream_format, new) / prompt, cost(model, upstream_format, cached) / prompt)


class Savings:
    """What requests did not cost, added up in the background: `add` gets US dollars, from any thread."""

    def __init__(self, add: Callable[[float], object]) -> None:
        self._add = add
        self._known: dict[tuple[str, str], Rates] = {}
        self._looking = ThreadPoolExecutor(1, "prices")  # its thread starts with the first look

    def count(self, model: str, upstream_format: str, cleared: int, usage: Usage | None) -> None:
        """Tokens that a request did not carry. They would have been cached to the same share as those that it did carry. Never blocks."""
        share = min(1.0, usage.cache_read / usage.input) if usage and usage.input else 0.0
        known = self._known.get((model, upstream_format))
        if known is not None:
            self._add(worth(known, cleared, share))
        else:
            self._looking.submit(self._look_up, model, upstream_format, cleared, share)

    def _look_up(self, model: str, upstream_format: str, cleared: int, share: float) -> None:
        found = self._known.get((model, upstream_format)) or rates(model, upstream_format)
        if len(self._known) < RATES_KEPT:
            self._known[model, upstream_format] = found
        self._add(worth(found, cleared, share))


def worth(rates: Rates, tokens: int, cached_share: float) -> float:
    """US dollars for input tokens of which a share would have come from the provider's cache."""
    return tokens * (rates.input * (1 - cached_share) + rates.cached * cached_share)
