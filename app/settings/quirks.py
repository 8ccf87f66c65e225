"""The quirks that a model or an upstream can have: words, and facts with a number (`token_ratio=1.5`).

The names of `models.json`'s head, written out here because a configuration is checked before anything else is read; a test holds the two
together. An unknown word would be no quirk at all and a fact without its number would fail every request of its model, so both are
refused at start.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from app.settings.values import Kind, Text, nearest

WORDS = (
    "adaptive_thinking", "alternating_roles", "binds_thinking", "keeps_reasoning", "max_completion_tokens", "no_manual_thinking",
    "no_sampling", "stream_only", "supports_server_compaction", "thinking_always_on", "thinks",
)  # fmt: skip
FACTS = (
    "cache_min", "image_base", "image_crop", "image_max_edge", "image_max_patches", "image_max_tokens", "image_patch", "image_tile",
    "image_tokens", "token_ratio",
)  # fmt: skip
ABOVE_ZERO = frozenset({"token_ratio"})
"""Facts that something is divided by."""
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?\Z", re.ASCII)


def _quirk(value: str) -> str:
    name, equals, number = value.partition("=")
    taken_away = name.startswith("-")
    name = name.removeprefix("-")
    if name not in WORDS and name not in FACTS:
        known = ", ".join(sorted(WORDS + FACTS))
        raise ValueError("is no quirk" + (nearest(name, WORDS + FACTS) or f"; there are {known}"))
    if (taken_away or name in WORDS) and equals:
        raise ValueError(f"takes no value; write {'-' if taken_away else ''}{name}")
    if taken_away or name in WORDS:
        return value
    if not _NUMBER.match(number) or (name in ABOVE_ZERO and float(number) == 0):
        least = "above 0" if name in ABOVE_ZERO else "of 0 or more"
        raise ValueError(f"must be {name}= and a number {least}, for example {name}=1.5")
    return value


Quirk = Annotated[Text, AfterValidator(_quirk), Kind("a quirk: a word, name=number, or -name to take one away")]
