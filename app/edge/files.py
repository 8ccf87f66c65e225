"""Connections are files to the system, which lets a process have only so many. Containers and shells often begin with 1,024 though they may
have more: then a few hundred requests at a time would be cut off, and strangers who only connect could keep providers out of reach.
"""

from __future__ import annotations

import contextlib

import structlog

from app.settings import Settings

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SPARE = 256
"""Files for all that is no connection of a client or to a provider: the store's, the log, libraries."""


def fitted(settings: Settings) -> Settings:
    """Have as many files as `limits` may need. Where the system grants fewer: settings with as many connections as there is room for."""
    limits = settings.limits
    allowed = _allowed(limits.max_clients + limits.max_connections + SPARE)
    if allowed is None:
        return settings
    room = max(allowed - SPARE, 2)
    connections = min(limits.max_connections, room // 2)
    fewer = {"max_clients": room - connections, "max_connections": connections}
    if connections < limits.max_connections:
        structlog.get_logger("compactd").warning(
            "few_open_files",
            allowed=allowed,
            **fewer,
            action="let this process open more files (ulimit -n, LimitNOFILE)",
        )
    return settings.model_copy(update={"limits": limits.model_copy(update=fewer)})


def _allowed(wanted: int) -> int | None:
    """How many files this process may have open, None where it is as many as `wanted`."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower bound that they don't tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return soft if soft < wanted else None
