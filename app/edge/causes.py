"""What the system says of a failure: words that hold no values of ours, unlike the texts of most exceptions."""

from __future__ import annotations

import os
import socket
import ssl


def cause(error: BaseException) -> str:
    """The system's words for what lies deepest behind an exception, "" where it says nothing."""
    found = ""
    behind: BaseException | None = error
    seen: list[BaseException] = []  # some say that they were raised for each other
    while behind is not None and behind not in seen:
        seen.append(behind)
        found = system_words(behind) or found
        behind = behind.__cause__ or behind.__context__
    return found


def system_words(error: BaseException) -> str:
    """Of this very exception."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'it failed').replace('_', ' ').lower()}"
    if isinstance(error, socket.gaierror):
        return error.strerror or ""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio puts the address in the place of the reason
    return ""
