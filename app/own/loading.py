"""Code of the operator's own, named as `package.module:callable`: found once, and checked before anybody depends on it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.settings.broken import Broken, Loc
from app.settings.sections import Sections


class NotLoadable(Exception):
    """There is no such callable; the text says what is wrong with the name and what to do."""


@cache
def load(name: str) -> Callable[..., Any]:
    """The callable behind `package.module:callable`. A module beside the working directory is found too, after all installed ones.

    Raises NotLoadable.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as missing:
        raise NotLoadable(f"there is no module {missing.name}; install it, or start compactd where it lies") from None
    except (Exception, SystemExit) as fault:
        raise NotLoadable(
            f"importing {module} raised {type(fault).__name__}; try `python -c 'import {module}'`"
        ) from None
    if found is None:
        raise NotLoadable(f"{module} has nothing called {attribute}; check the spelling")
    if inspect.isclass(found):
        raise NotLoadable(f"{attribute} is a class; name an instance of it")
    if not callable(found):
        raise NotLoadable(f"{attribute} can't be called; name a function, or an object with __call__")
    return found  # type: ignore[no-any-return]


def waits(function: Callable[..., Any]) -> bool:
    """Is this to be awaited where it is called, instead of being called in a thread?"""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _installed(*modules: str) -> bool:
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # not even the package that it would lie in
        return False


def install(extra: str) -> str:
    """How one gets an optional package, for an error's end."""
    return f"pip install 'compactd[{extra}]', in a clone .venv/bin/pip install --editable '.[{extra}]'"


def missing(sections: Sections) -> Iterator[Broken]:
    """What the configuration names and is not there: the operator's code, and packages that are optional."""
    archives = sections.archive.url or ""
    named: list[tuple[Loc, str]] = [
        (("policies", at, "strategy"), policy.strategy) for at, policy in enumerate(sections.policies)
    ]
    for option, name in [*named, (("archive", "url"), archives)]:
        if ":" in name and "://" not in name:
            try:
                load(name)
            except NotLoadable as wrong:
                yield Broken(option, str(wrong))
    if archives.startswith("s3://") and find_spec("obstore") is None:
        yield Broken(("archive", "url"), "s3:// needs the obstore package; " + install("s3"))
    if sections.traces.enabled and not _installed("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk.trace"):
        yield Broken(("traces", "enabled"), "needs OpenTelemetry's packages; " + install("otel"))
