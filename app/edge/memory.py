"""What the process keeps of the memory that large bodies need.

By default glibc gives the memory of every large body back to the kernel and faults it in again for the next one, which costs more than all
copying of the body. Called once, when everything that is loaded at start is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

KEPT = 64 << 20
"""Bytes of freed memory that are kept at most."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def settle() -> None:
    """Give back what starting has left over, then keep what requests free. Does nothing without glibc."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc_trim(0)
        libc.mallopt(_M_MMAP_THRESHOLD, KEPT // 2)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT)
