"""A session as stores see it: named fields, each a number or a text, so that a store can count without reading first.

The table of fields is read off `Session` itself. `usages`, the one field that is neither number nor text, is stored whole
as JSON (chain hashes in base64). Where there is an encryption key, the fields in `PRIVATE` are sealed; a figure is a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import msgspec

from app.edge.stores.packing import SEALED, Packing
from app.records import Session, SessionChange, UsageMark

Stored = str | int | float | bytes

KINDS: dict[str, type] = {f.name: str if f.default is MISSING else type(f.default) for f in fields(Session)}
"""Field name -> int, float, str or tuple."""

IDENTITY = ("tenant", "id")

PRIVATE = ("last_archive", "usages")
"""An archive's address is the key to it, and usage marks tell histories apart."""

_usages = msgspec.json.Decoder(tuple[UsageMark, ...])


def checked(change: SessionChange) -> SessionChange:
    """The change itself, or a ValueError for one that no store could make: that is a bug of ours, no failure of a store."""
    for name in change.add:
        if KINDS.get(name) not in (int, float):
            raise ValueError(f"a session has no counter {name!r}")
    for name in change.put:
        if name not in KINDS or name in IDENTITY:
            raise ValueError(f"a session has no field {name!r} to put")
    if both := change.add.keys() & change.put.keys():
        raise ValueError(f"a change both adds to and puts {sorted(both)}")
    return change


def increments(change: SessionChange) -> dict[str, int | float]:
    return {name: KINDS[name](amount) for name, amount in change.add.items()}


def replacements(change: SessionChange, now: float) -> dict[str, Stored]:
    """The fields that the change replaces, as stored; `updated` is now unless the change says otherwise."""
    return {"updated": now} | {name: stored(name, value) for name, value in change.put.items()}


def closed(values: Mapping[str, Stored], packing: Packing, tenant: str, session: str) -> dict[str, Stored]:
    """The values as they are written."""
    if not packing.seals:
        return dict(values)
    return {
        name: packing.pack(str(value).encode(), _about(name, tenant, session)) if name in PRIVATE and value else value
        for name, value in values.items()
    }


def opened(values: Mapping[str, Any], packing: Packing, tenant: str, session: str) -> dict[str, Any]:
    """The values that `closed` was given; what can't be opened here is left out."""
    found = dict(values)
    for name in PRIVATE:
        value = found.get(name)
        if isinstance(value, bytes) and value[:1] == SEALED:
            told = packing.read(value, _about(name, tenant, session))
            if told is None:
                del found[name]
            else:
                found[name] = told
    return found


def _about(name: str, tenant: str, session: str) -> str:
    return f"session {name} {tenant} {session}"


def stored(name: str, value: Any) -> Stored:
    kind = KINDS[name]
    result: Stored = msgspec.json.encode(value).decode() if kind is tuple else kind(value)
    return result


def loaded(name: str, value: Any) -> Any:
    """A field's value from its stored form (bytes where the store knows only bytes). ValueError when it is nonsense."""
    kind = KINDS[name]
    if kind is tuple:
        try:
            return _usages.decode(value) if value else ()
        except msgspec.DecodeError:
            raise ValueError(f"the stored {name} of a session can't be read") from None
    if isinstance(value, bytes):
        value = value.decode()
    return kind(value)


def session_of(values: Mapping[str, Any]) -> Session:
    """A session from stored fields; unknown names (a newer version's) are left out, missing ones have their default."""
    return Session(**{name: loaded(name, value) for name, value in values.items() if name in KINDS})


def changed(session: Session, change: SessionChange, now: float) -> Session:
    """The session after the change, for stores that keep `Session` values."""
    new: dict[str, Any] = {name: loaded(name, value) for name, value in replacements(change, now).items()}
    new |= {name: getattr(session, name) + amount for name, amount in increments(change).items()}
    return replace(session, **new)
