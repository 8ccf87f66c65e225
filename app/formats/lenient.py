"""Reading parsed values that may be of any type: what is not of the type that is wanted counts as nothing."""

from __future__ import annotations

from typing import Any

from app.core.jsonspan import dump


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def figure(value: Any) -> int:
    """A number of tokens, as providers report them."""
    return value if isinstance(value, int) and value > 0 else 0


def json_text(value: Any) -> str:
    """A string as it is, nothing for None, the JSON of anything else."""
    return value if isinstance(value, str) else "" if value is None else dump(value).decode()


def json_size(value: Any) -> int:
    """Bytes of `json_text`."""
    return len(json_text(value).encode("utf-8", "replace"))
