"""The few errors of our own. Built-in exceptions serve everywhere else."""

from __future__ import annotations


class NotCompactable(Exception):
    """This request can't be looked into or changed safely; the reason is a short stable word (a metric label).

    Never reaches a client: the original request goes upstream instead.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreFailed(Exception):
    """The store refused, timed out or answered nonsense. Carries no content and no address with credentials."""


class Unreadable(Exception):
    """A stored value that this process can't make sense of; `why` is a short phrase without content ("is damaged"). Of an archive, `holder`
    tells who may hear of it (`archive.holder_of`); b"": nobody."""

    def __init__(self, why: str, holder: bytes = b"") -> None:
        super().__init__(why)
        self.why = why
        self.holder = holder


class SummaryFailed(Exception):
    """No usable summary came back; the reason is a short stable word. The policy's fallback decides what happens next."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UpstreamFailed(Exception):
    """The provider could not be reached or broke off; `code` is stable and shown to the client, `status` is 502 or 504."""

    def __init__(self, code: str, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def place_of(fault: BaseException | None) -> str:
    """File and line where it was raised, "" if unknown. The text of an exception may hold content and is never logged; this may."""
    trace = fault.__traceback__ if fault else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}" if trace else ""


class ConfigInvalid(Exception):
    """The configuration can't be used. `faults` are complete sentences: file, line, key, what is wrong, what to do."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults
