"""What the models say about themselves: which option lies at a path, what kind of value it takes, what its neighbours are.

The reference table, the faults and the environment's names all come from here, so they can't disagree with the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.settings.broken import Loc
from app.settings.settings import Settings
from app.settings.values import Kind, Masked


@dataclass(frozen=True, slots=True)
class Shape:
    """A type without its wrapping: `core` is a model, `dict[…]`, `tuple[…]`, `Literal[…]` or a plain type."""

    core: Any
    marks: tuple[Any, ...] = ()
    optional: bool = False

    @property
    def model(self) -> type[BaseModel] | None:
        return self.core if isinstance(self.core, type) and issubclass(self.core, BaseModel) else None

    @property
    def entries(self) -> Any:
        """The type of the entries of a list or a mapping, else None."""
        if get_origin(self.core) is tuple:
            return get_args(self.core)[0]
        return get_args(self.core)[1] if get_origin(self.core) is dict else None

    @property
    def choices(self) -> tuple[str, ...]:
        """The words to choose from, if it is such an option."""
        return get_args(self.core) if get_origin(self.core) is Literal else ()

    def kind(self) -> str:
        """What a value must be, in words."""
        return self._kind() + (" or null" if self.optional else "")

    def shown(self, value: object) -> object:
        """A value as it may be shown."""
        return next((mark.mask(value) for mark in self.marks if isinstance(mark, Masked)), value)

    def _kind(self) -> str:
        if words := [mark.words for mark in self.marks if isinstance(mark, Kind)]:
            return words[-1]
        if self.choices:
            *others, last = self.choices
            return f"{', '.join(others)} or {last}"
        if get_origin(self.core) is tuple:
            return f"a list, each entry {shape(self.entries).kind()}"
        if get_origin(self.core) is dict or self.model:
            return "a mapping of keys to values"
        return _PLAIN[self.core]


_PLAIN = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    SecretStr: "secret text",
}


_WORD = re.compile(r"[\w-]+\Z|<name>\Z")


def shape(annotation: Any, marks: tuple[Any, ...] = ()) -> Shape:
    """Take the wrapping (`Annotated`, `… | None`) off a type, keeping what it was marked with, innermost first."""
    if get_origin(annotation) is Annotated:
        core, *inner = get_args(annotation)
        return shape(core, (*inner, *marks))
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        optional = len(members) < len(get_args(annotation))
        found = shape(members[0], marks) if len(members) == 1 else Shape(annotation, marks)
        return Shape(found.core, found.marks, optional)
    return Shape(annotation, marks)


def at(loc: Loc) -> Shape | None:
    """The shape of the option at this path, or None if there is no such option."""
    found = shape(Settings)
    for part in loc:
        if found.model:
            field = found.model.model_fields.get(str(part))
            if field is None:
                return None
            found = of(field)
        elif found.entries is not None:
            found = shape(found.entries)
        else:
            return None
    return found


def option(loc: Loc) -> tuple[str, ...]:
    """The option at this path by its keys alone, whichever entry of a list or mapping it is in: `("policies", 1, "name")` as
    `("policies", "name")`."""
    found, keys = shape(Settings), []
    for part in loc:
        if found.model:
            keys.append(str(part))
            field = found.model.model_fields.get(str(part))
            if field is None:
                break
            found = of(field)
        elif found.entries is not None:
            found = shape(found.entries)
    return tuple(keys)


def of(field: FieldInfo) -> Shape:
    """The shape of one field's values."""
    return shape(field.annotation, tuple(field.metadata))


def keys(loc: Loc) -> tuple[str, ...]:
    """The keys that may stand in the mapping at this path; none where the operator chooses them."""
    found = at(loc)
    return tuple(found.model.model_fields) if found and found.model else ()


def options(
    model: type[BaseModel] = Settings, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every option that holds a value, with its path: `[]` stands for any index of a list, `<name>` for any key."""
    for name, field in model.model_fields.items():
        found, path = of(field), (*prefix, name)
        if found.entries is not None and (entry := shape(found.entries).model):
            yield from options(entry, (*path, "[]" if get_origin(found.core) is tuple else "<name>"))
        elif found.model:
            yield from options(found.model, path)
        else:
            yield path, field


def path(loc: Loc) -> str:
    """`("policies", 0, "match", "models", 1)` as `policies[0].match.models[1]`."""
    text = ""
    for part in loc:
        if isinstance(part, int) or part == "[]":
            text += part if isinstance(part, str) else f"[{part}]"
        elif _WORD.match(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text
