"""The configuration reference, made from the models: `python -m app.settings.reference` writes docs/configuration.md."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.settings import schema
from app.settings.settings import Settings

FILE = Path(__file__).parents[2] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

Made from `app/settings` by `python -m app.settings.reference`; change it there.

compactd reads one YAML file (`config/compactd.yaml` is a documented one), then the environment, then the command line; the later
wins. Everything has a default, so the file may be `{}`. A key that is not listed here is a fault, and so is one that stands twice.
`compactd check` tells all faults at once, with file and line.

- `${NAME}` in a value is the environment variable of that name, `${NAME:-default}` has a default for when it is unset or empty,
  `$${` is a literal `${`. A value that is nothing but one reference and comes out empty is null. Inside `{ }` and `[ ]` put it
  in quotes.
- `COMPACTD_STORE__URL` sets `store.url`: upper case, two underscores between levels. List entries go by number
  (`COMPACTD_POLICIES__0__STRATEGY`), one more than there are adds one. A list or a mapping may be given whole, as YAML or JSON
  (`COMPACTD_AUTH__KEYS='[first, second]'`); a list replaces the one before it, a mapping is merged into it. `null` is null, and an
  empty variable counts as not set. In names of upstreams `_` also stands for `-`, and upper case for lower.
- `COMPACTD_CONFIG` names the file where `--config` doesn't; without either it is `config/compactd.yaml`, if there is one.
- Plain values follow YAML 1.2: only `true` and `false` are booleans.
- Thresholds are tokens or a share of the context window: `2000` is two thousand tokens, `0.8` is 80 % of the window, `1` is one
  token and `1.0` the whole window.
"""


def markdown() -> str:
    """The whole document."""
    parts = [_INTRODUCTION]
    for section, rows in groupby(schema.options(), key=lambda row: row[0][0]):
        parts.append(f"\n## `{section}`\n\n{_line(Settings.model_fields[section].description)}\n")
        parts.append("\n| key | type | default | explanation |\n|---|---|---|---|\n")
        parts += [
            f"| `{schema.path(path)}` | {_kind(field)} | {_default(field)} | {_cell(field.description)} |\n"
            for path, field in rows
        ]
    return "".join(parts)


def _kind(field: FieldInfo) -> str:
    return _cell(schema.of(field).kind())


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else f"`{_written(field.get_default(call_default_factory=True))}`"


def _written(value: object) -> str:
    """A default as one would write it in the file."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(_written(entry) for entry in value)}]"
    if isinstance(value, BaseModel | dict):
        return "{}"
    return f'"{value}"' if value == "*" else str(value)


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str | None) -> str:
    return _line(text).replace("|", "\\|")


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(markdown(), encoding="utf-8")
