"""Logging: one structured line per event, JSON unless a person is watching.

uvicorn's own messages go through the same pipe; its access log is off, because every request has a line of compactd's own, and so are its
tracebacks of broken streams: ending a connection in an error is what the relay means to do.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from app.settings import Listen, Settings

_QUIET = (
    "ASGI callable returned without completing response",
    "Unsupported upgrade request",
    "No supported WebSocket library",
)


FRAMES = 6
"""Places that are told of a traceback."""


class _Lines:
    """The last processor for JSON: level and time put in, one line out. The date is formatted once a second."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=str).encode
        self._second, self._stamp = -1, ""

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:  # noqa: ARG002
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        event.pop("_record", None)
        event.pop("_from_structlog", None)
        line = {"time": f"{self._stamp}.{int((now - second) * 1000):03d}Z", "level": method, **event}
        return self._encode(line).decode()


def _without_exception_text(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG001
    """Of an exception its kind and where it was raised: its text, and so every usual traceback, may hold what a user said."""
    told = event.pop("exc_info", None)
    fault = told[1] if isinstance(told, tuple) else told
    if isinstance(fault, BaseException):
        frames = traceback.extract_tb(fault.__traceback__)[-FRAMES:]
        event["kind"] = type(fault).__name__
        event["at"] = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return event


class _CannotListen(logging.Filter):
    """uvicorn says that it can't listen with the bare OSError: this says where, and what to do about it."""

    def __init__(self, listen: Listen) -> None:
        super().__init__()
        self._listen = listen

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.msg
        if isinstance(fault, OSError):
            number = fault.errno or 0  # a name that can't be resolved has one below 0, which the system doesn't know
            why = os.strerror(number) if number > 0 else fault.strerror or str(fault)
            record.msg = (
                f"can't listen on {self._listen.host}:{self._listen.port}: {why}. "
                "Another place: --host and --port, or listen.host and listen.port"
            )
        return True


class _Unwanted(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_QUIET)


def configure(settings: Settings) -> None:
    """Set up structlog and the standard library's logging; after a reload again, and loggers that are there already follow."""
    level = getattr(logging, settings.log.level.upper())
    wanted = settings.log.format
    pretty = wanted == "console" or (wanted == "auto" and sys.stderr.isatty())
    shared: list[Any] = [structlog.contextvars.merge_contextvars]  # the id of the request that it is about
    render: Any = _Lines()
    if pretty:
        shared += [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)]
        colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        render = structlog.dev.ConsoleRenderer(colors=colours, sort_keys=False)
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    outlet = logging.StreamHandler(sys.stderr)
    foreign = [*shared, _without_exception_text]
    outlet.setFormatter(structlog.stdlib.ProcessorFormatter(processor=render, foreign_pre_chain=foreign))
    outlet.addFilter(_Unwanted())
    outlet.addFilter(_CannotListen(settings.listen))
    root = logging.getLogger()
    root.handlers[:] = [outlet]
    root.setLevel(max(level, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
        logging.getLogger(name).propagate = True
