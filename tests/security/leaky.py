"""A strategy of an operator's that fails with a user's words in its exception."""

from __future__ import annotations

from typing import Any


def compact(context: Any) -> None:
    raise ValueError(str(context.messages)[:5_000])
