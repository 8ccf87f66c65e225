"""From file, environment and command line to `Settings`, or to everything that is wrong with them, at once.

Three layers, the later wins: the file, `COMPACTD_*` variables, command line options. They are merged as plain data, with a
note of who set what, and then validated: each section by itself, and after that how the sound ones fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from app.errors import ConfigInvalid
from app.settings.broken import Broken, Loc
from app.settings.document import Document, read
from app.settings.environment import variables
from app.settings.faults import Fault, Origin, explain, origin_of, unknown_key
from app.settings.layers import Layers
from app.settings.rules import broken
from app.settings.salvage import salvaged
from app.settings.sections import Sections
from app.settings.settings import Settings

_NONE: Mapping[str, object] = MappingProxyType({})
Need = Callable[[Sections], Iterable[Broken | Fault]]
"""Tells what is not there that sections name, or the environment: code, packages, files."""


def load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] = _NONE,
    needs: Iterable[Need] = (),
) -> Settings:
    """The settings that a file, an environment and command line options make together.

    `path` None: no file, the defaults. `overrides` are command line options by dotted path (`{"listen.port": 9000}`); None as
    a value means "not given". Raises `ConfigInvalid` with every fault, those of `needs` among them; a file that can't be parsed is a fault
    by itself.
    """
    file = read(path, environ) if path else Document(origins={(): Origin("settings")})
    if file.faults and not file.data:
        raise ConfigInvalid([str(fault) for fault in file.faults])
    layers = Layers(file)
    faults = list(file.faults)
    for found in variables(environ, elsewhere=file.variables):
        if isinstance(found, Fault):
            faults.append(found)
        else:
            layers.put(found.layer, found.origin)
    for option, value in overrides.items():
        if value is not None:
            layers.put(_nested(option, value), Origin("command line"))
    faults += layers.faults
    faults += _invalid(layers, {fault.loc for fault in faults}, needs)
    if faults:
        raise ConfigInvalid([str(fault) for fault in sorted(faults, key=_by_line)])
    return Settings.model_validate(layers.data)


def _invalid(layers: Layers, reported: set[Loc], needs: Iterable[Need]) -> list[Fault]:
    """What pydantic, the rules and the needs find. None is asked that would tell the consequences of another fault."""
    # pydantic-settings would take some unknown names for arguments of its own (`_env_file`), so these don't get that far
    known = {name: value for name, value in layers.data.items() if name in Settings.model_fields}
    found: list[tuple[Loc, str]] = [((name,), unknown_key((name,))) for name in layers.data if name not in known]
    try:
        Sections.model_validate(known)
    except ValidationError as error:
        found += [explain(each) for each in error.errors(include_url=False)]
    sections, unsound = salvaged(known, {*reported, *(loc for loc, _ in found)})
    found += broken(sections, unsound)
    needed = [fault for need in needs for fault in need(sections)]
    found += [fault for fault in needed if isinstance(fault, Broken)]
    told = [Fault(origin_of(loc, layers.origins), loc, text) for loc, text in found if loc not in reported]
    return [*told, *(fault for fault in needed if isinstance(fault, Fault))]


def _nested(option: str, value: object) -> dict[str, Any]:
    section, *keys = option.split(".")
    for key in reversed(keys):
        value = {key: value}
    return {section: value}


def _by_line(fault: Fault) -> tuple[bool, int]:
    """A file's faults first, from top to bottom; then the others as they were found."""
    return not fault.origin.line, fault.origin.line
