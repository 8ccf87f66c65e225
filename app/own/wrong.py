"""Why an answer of the operator's own code can't be used, in words for the log: places and kinds, never content."""

from __future__ import annotations


class Wrong(Exception):
    """The text goes on after "your strategy was left out because …"."""
