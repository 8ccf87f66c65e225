"""`COMPACTD_*` variables: which option each one sets, and to what.

pydantic-settings does the reading (`COMPACTD_STORE__URL` is `store.url`, a list or mapping may be given whole); added are
entries of lists (`COMPACTD_POLICIES__0__STRATEGY`) and YAML where it has JSON only. Variables are read one by one, the
broader before the finer, so that each keeps its name in a fault and finer ones may correct a broader one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from app.settings import document, scalars, schema
from app.settings.faults import Fault, Origin
from app.settings.settings import Settings
from app.settings.values import nearest

PREFIX, DELIMITER = "COMPACTD_", "__"

RESERVED = frozenset({"COMPACTD_CONFIG"})
"""Variables that are no options: the command line reads the file's path from this one."""

# what Kubernetes sets in every pod for a service named compactd or compactd-…
_SERVICE_LINK = re.compile(r"_SERVICE_(?:HOST|PORT(?:_\w+)?)\Z|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?\Z")
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://")


class Environment(EnvSettingsSource):
    """pydantic-settings' reader over a given environment, with lists by index and values in YAML."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings)
        self.env_vars = {name.lower(): text for name, text in environ.items()}

    def next_field(self, field: Any, key: str, case_sensitive: bool | None = None) -> Any:
        annotation = field.annotation if isinstance(field, FieldInfo) else field
        if get_origin(annotation) is tuple and key.isdigit():
            return get_args(annotation)[0]
        return super().next_field(field, key, case_sensitive)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        return document.value(value)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as a layer of settings."""

    origin: Origin
    layer: dict[str, Any]


def variables(environ: Mapping[str, str], elsewhere: Container[str] = ()) -> Iterator[Variable | Fault]:
    """What each variable sets, or that it sets nothing; an empty one counts as not set. `elsewhere`: names that are meant for
    something else, because the file refers to them."""
    for name in sorted(environ, key=_broad_first):
        text, origin = environ[name], Origin(name)
        if (
            not name.startswith(PREFIX)
            or not text
            or name in RESERVED
            or name in elsewhere
            or _is_service_link(name, text)
        ):
            continue
        layer = Environment({name: text})()
        if not layer:
            hint = nearest(name.removeprefix(PREFIX), _names(), PREFIX) or "; options are named COMPACTD_SECTION__KEY"
            yield Fault(origin, (), f"sets no option{hint}")
        else:
            yield Variable(origin, _with_null(layer) if scalars.NULL.match(text) else layer)


def _broad_first(name: str) -> tuple[int, list[str]]:
    parts = name.split(DELIMITER)
    return len(parts), [part.zfill(4) if part.isdigit() else part for part in parts]


def _names() -> list[str]:
    """Every option's variable, without the prefix."""
    return [DELIMITER.join("0" if part == "[]" else part for part in path).upper() for path, _ in schema.options()]


def _is_service_link(name: str, text: str) -> bool:
    if DELIMITER in name:
        return False
    return bool(_SERVICE_LINK.search(name) or (name.endswith("_PORT") and _SERVICE_URL.match(text)))


def _with_null(layer: dict[str, Any]) -> dict[str, Any]:
    """The same single path, ending in None."""
    return {key: _with_null(value) if isinstance(value, dict) else None for key, value in layer.items()}
