"""Settings from several places laid over each other, as plain data that remembers who set what.

A mapping is merged key by key, a list is replaced as a whole unless its entries are named by number, anything else is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.settings.broken import Loc
from app.settings.document import Document
from app.settings.faults import Fault, Origin
from app.settings.settings import Settings


class Layers:
    """`data` begins as the file's, or as the defaults where these are collections that a later layer may want to adjust."""

    def __init__(self, file: Document) -> None:
        default = Settings()
        self.data: dict[str, Any] = {
            "upstreams": {name: each.model_dump(exclude_unset=True) for name, each in default.upstreams.items()},
            "policies": [each.model_dump(exclude_unset=True) for each in default.policies],
        }
        self.data |= _without_nulls(file.data)
        self.origins = dict(file.origins)
        self.faults: list[Fault] = []

    def put(self, layer: Mapping[str, object], origin: Origin) -> None:
        """Lay one more over all that is there."""
        self.data = _without_nulls(self._merged(self.data, layer, (), origin))

    def _merged(self, base: Any, layer: Any, loc: Loc, origin: Origin) -> Any:
        if not isinstance(layer, Mapping) or not isinstance(base, dict | list | None):
            self._claim(loc, origin)
            return layer
        if base is None:
            self._claim(loc, origin)
            base = [] if layer and all(key.isdigit() for key in layer) else {}
        return (
            self._entries(base, layer, loc, origin) if isinstance(base, list) else self._keys(base, layer, loc, origin)
        )

    def _keys(self, base: dict[str, Any], layer: Mapping[str, Any], loc: Loc, origin: Origin) -> dict[str, Any]:
        made = dict(base)
        for name, value in layer.items():
            key = _same(name, made)
            made[key] = self._merged(made.get(key), value, (*loc, key), origin)
        return made

    def _entries(self, base: list[Any], layer: Mapping[str, Any], loc: Loc, origin: Origin) -> list[Any]:
        made = list(base)
        for key, value in layer.items():
            if not key.isdigit() or int(key) > len(made):
                text = f"is a list of {len(made)}: name an entry by its number, 0 to {len(made)} (the last one is new)"
                self.faults.append(Fault(origin, loc, text))
                continue
            index = int(key)
            made[index : index + 1] = [
                self._merged(made[index] if index < len(made) else None, value, (*loc, index), origin)
            ]
        return made

    def _claim(self, loc: Loc, origin: Origin) -> None:
        """All that lies at this path was set here."""
        for old in [old for old in self.origins if old[: len(loc)] == loc]:
            del self.origins[old]
        self.origins[loc] = origin


def _without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """A section whose every line is commented out reads as null, and means the defaults."""
    return {name: value for name, value in data.items() if value is not None or name not in Settings.model_fields}


def _same(name: str, existing: Mapping[str, object]) -> str:
    """The key that is meant: a variable's name knows neither upper case nor hyphens (`MY_LLM` is `my-llm`)."""
    if name in existing:
        return name
    return next((key for key in existing if _folded(key) == _folded(name)), name)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
