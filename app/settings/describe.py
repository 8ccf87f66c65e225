"""The settings as a plain dictionary that may be shown: every secret is `***`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from app.settings import schema
from app.settings.settings import Settings


def describe(settings: Settings) -> dict[str, Any]:
    """What is in force, JSON-ready, for `GET /compactd/api/config`."""
    return _section(settings)


def _section(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    return {name: _plain(schema.of(field).shown(getattr(model, name))) for name, field in fields.items()}


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, BaseModel):
        return _section(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
