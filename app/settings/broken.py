"""A rule that several options break together, told at the option to change.

pydantic lets a validator raise another `ValidationError`, and takes its lines over with their places: that is how one
validator can report any number of faults, each at its own key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Loc = tuple[int | str, ...]


class Broken(NamedTuple):
    """`loc` is the path of the option to change, `text` says what is wrong and what to do, without any value of a secret."""

    loc: Loc
    text: str


def refuse(faults: Sequence[Broken]) -> None:
    """Raise `ValidationError` with all of the faults, if there are any."""
    if faults:
        # the text goes in as context: as a template its braces would be read
        lines = [
            InitErrorDetails(type=PydanticCustomError("broken_rule", "{text}", {"text": text}), loc=loc, input=None)
            for loc, text in faults
        ]
        raise ValidationError.from_exception_data("settings", lines, hide_input=True)
