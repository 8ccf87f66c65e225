"""What is told about a request: response headers, metrics, one log line. Never content, never a credential."""

from __future__ import annotations

import itertools
import logging
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from app.edge.headers import Pair
from app.edge.metrics import EITHER_WAY, UPSTREAM_FAILURES, Metrics, status
from app.edge.prices import Savings
from app.errors import place_of
from app.formats.base import Usage
from app.request import Outcome
from app.settings import Log

_PROCESS = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Record:
    """The measurements of one request. Times are from `time.perf_counter`, seconds."""

    began: float = field(default_factory=time.perf_counter)
    id: str = field(default_factory=lambda: f"{_PROCESS}{next(_NUMBERS):08x}")
    format: str = "none"
    upstream: str = "none"
    model: str = "other"
    reason: str = ""
    status: int = 0
    deciding: float = 0.0
    asked: float = 0.0
    answered: float = 0.0
    usage: Usage | None = None
    finished: bool = False
    disconnected: bool = False
    broken: str = ""
    own_error: str = ""
    because: str = ""
    """of a provider that could not be asked: the words of `app.edge.forwarding`"""
    policy: str = ""
    trace: str = ""

    @property
    def error(self) -> str:
        """Code of what went wrong with it here or at the provider, "" if nothing did."""
        return self.broken or self.own_error

    def verdict(self, outcome: Outcome | None) -> tuple[str, str]:
        """(outcome, reason) as they are told everywhere."""
        if outcome is not None:
            return outcome.result, outcome.reason
        return "passed", self.own_error or self.reason or "none"

    def told(self, outcome: Outcome | None) -> list[Pair]:
        """The `x-compactd-*` headers of the answer."""
        result, reason = self.verdict(outcome)
        told: list[Pair] = [
            (b"x-compactd-outcome", result.encode()),
            (b"x-compactd-reason", reason.encode()),
            (b"x-compactd-request-id", self.id.encode()),
            (b"x-compactd-overhead-ms", b"%.2f" % (self.deciding * 1000)),
        ]
        if outcome is None:
            return told
        if outcome.source:
            told += [
                (b"x-compactd-tokens-before", b"%d" % outcome.before),
                (b"x-compactd-tokens-after", b"%d" % outcome.after),
                (b"x-compactd-count-source", outcome.source.encode()),
            ]
        if outcome.session:
            told += [
                (b"x-compactd-session", outcome.session.encode("latin-1", "replace")),
                (b"x-compactd-compactions", b"%d" % outcome.compactions),
            ]
        if outcome.strategy:
            told += [(b"x-compactd-strategy", outcome.strategy.encode()), (b"x-compactd-level", b"%d" % outcome.level)]
        if outcome.archive:
            told.append((b"x-compactd-archive", outcome.archive.encode("latin-1", "replace")))
        return told


class RequestRecorder:
    """Also the compactor's Recorder port."""

    def __init__(self, metrics: Metrics, options: Log | None = None) -> None:
        self.metrics = metrics
        self._savings = Savings(metrics.cost.labels("saved").inc)
        self._log = structlog.get_logger("compactd")
        self.follow(options or Log())

    def follow(self, options: Log) -> None:
        """Take over changed log options."""
        self._sample, self._least = options.sample, getattr(logging, options.level.upper())
        self._lines: Any = None  # the logger, made ready once instead of with each line

    def begin(self) -> Record:
        """Whatever is logged in this request's task, and in those that it begins, has its id."""
        self.metrics.inflight.inc()
        record = Record()
        bind_contextvars(request_id=record.id)
        return record

    def end(self, record: Record, outcome: Outcome | None) -> None:
        metrics = self.metrics
        metrics.inflight.dec()
        result, reason = record.verdict(outcome)
        metrics.of(metrics.requests, record.format, record.upstream, result, reason).inc()
        if record.deciding:
            metrics.of(metrics.overhead, result).observe(record.deciding)
        if record.answered:
            metrics.of(metrics.responses, record.upstream, status(record.status)).inc()
            metrics.of(metrics.first_byte, record.upstream).observe(record.answered - record.asked)
        if (code := record.error) in UPSTREAM_FAILURES:
            metrics.of(metrics.failures, record.upstream, code).inc()
        if outcome is not None:
            self._decided(record, outcome)
        if record.usage is not None:
            self._used(record, record.usage)
        if record.disconnected and not record.finished:
            metrics.of(metrics.disconnected, record.format).inc()
        self._line(record, outcome, result, reason)

    def _decided(self, record: Record, outcome: Outcome) -> None:
        metrics = self.metrics
        if outcome.source:
            metrics.of(metrics.count_source, outcome.source).inc()
            metrics.of(metrics.request_tokens, record.format, "before").observe(outcome.before)
            metrics.of(metrics.request_tokens, record.format, "after").observe(
                outcome.after if outcome.changed else outcome.before
            )
        if outcome.result == "compacted":
            metrics.of(metrics.compactions, record.format, outcome.strategy, str(outcome.level)).inc()
        if outcome.cleared:
            metrics.of(metrics.tokens_cleared, record.format, outcome.strategy, record.model).inc(outcome.cleared)
            if record.status == 200 and record.model != "other":
                self._savings.count(record.model, record.format, outcome.cleared, record.usage)

    def _used(self, record: Record, usage: Usage) -> None:
        for kind in ("input", "output", "cache_read", "cache_write"):
            counter = self.metrics.of(self.metrics.upstream_tokens, record.upstream, record.model, kind)
            if amount := getattr(usage, kind):
                counter.inc(amount)

    def _line(self, record: Record, outcome: Outcome | None, result: str, reason: str) -> None:
        """One line a request: a warning where compactd or the provider failed; of those that passed as a matter of course a sample."""
        left = record.disconnected and not record.finished
        severe = result == "failed" or record.status >= 500 or bool(record.broken)
        plain = result == "passed" and record.status < 400 and not (severe or left or record.own_error)
        if (plain and random.random() >= self._sample) or self._least > (logging.WARNING if severe else logging.INFO):
            return
        line: dict[str, object] = {
            "request_id": record.id, "outcome": result, "reason": reason, "format": record.format, "upstream": record.upstream,
            "model": record.model, "status": record.status, "overhead_ms": round(record.deciding * 1000, 2),
            "seconds": round(time.perf_counter() - record.began, 4),
        }  # fmt: skip
        if record.answered:
            line["first_byte_ms"] = round((record.answered - record.asked) * 1000, 2)
        if record.policy:
            line["policy"] = record.policy
        if outcome is not None and outcome.session:
            line["session"] = outcome.session
        if outcome is not None and outcome.source:
            line |= {
                "tokens_before": outcome.before,
                "tokens_after": outcome.after,
                "tokens_cleared": outcome.cleared,
                "count_source": outcome.source,
            }
        if outcome is not None and outcome.strategy:
            line |= {
                "strategy": outcome.strategy,
                "compaction_level": outcome.level,
                "compactions": outcome.compactions,
            }
        if record.usage is not None:
            line |= {
                "input_tokens": record.usage.input,
                "cached_tokens": record.usage.cache_read,
                "output_tokens": record.usage.output,
                **{f"context_{name}": figure for name, figure in record.usage.edits},
            }
        if record.error:
            line["error"] = record.error
        if record.because:
            line["because"] = record.because
        if record.trace:
            line["trace_id"] = record.trace
        if left:
            line["client_left"] = True
        if self._lines is None:
            self._lines = self._log.bind()
        (self._lines.warning if severe else self._lines.info)("request", **line)

    # The compactor's port, and what the relay has to say

    def rejected(self, format_name: str, kind: str) -> None:
        self.metrics.of(self.metrics.rejections, format_name, kind).inc()
        if kind == EITHER_WAY:
            self._log.info("refused_either_way", format=format_name, action="gave the refusal to the client")
            return
        self._log.warning(
            "provider_rejected_compacted_request", format=format_name, kind=kind, action="sent the original"
        )

    def overflowed(self, format_name: str) -> None:
        self.metrics.of(self.metrics.overflows, format_name).inc()

    def fault(self, where: str, fault: BaseException | None) -> None:
        self.metrics.of(self.metrics.faults, where).inc()
        self._log.error(
            "fault_survived", where=where, kind=type(fault).__name__ if fault else "refused", at=place_of(fault)
        )

    def summary_failed(self, reason: str, fallback: str) -> None:
        _, is_status, code = reason.partition("status_")
        kind = f"status_{status(int(code))}" if is_status else reason
        self.metrics.of(self.metrics.summary_failures, kind).inc()
        self._log.warning("summary_failed", reason=reason, fallback=fallback)

    def note(self, event: str, **facts: str) -> None:
        self._log.info(event, **facts)

    def warn(self, event: str, **facts: str) -> None:
        self._log.warning(event, **facts)

    def archived(self, sink: str, result: str) -> None:
        self.metrics.of(self.metrics.archives, sink, "ok" if result == "ok" else "failed").inc()
        if result != "ok":
            self._log.warning("archive_failed", sink=sink, kind=result)

    def store_seconds(self, op: str, seconds: float) -> None:
        self.metrics.of(self.metrics.store_seconds, op).observe(seconds)

    def store_error(self, op: str) -> None:
        self.metrics.of(self.metrics.store_errors, op).inc()
