"""Ports for servers that tests start as processes.

The system's own free ports are no use to them: between asking for one and the process that binds it, a connection of any test may have it,
or another worker's server, which then answers in its place. So these lie below the range that the system gives out, a stretch for each
worker of the test run, and none is given twice in a row.
"""

from __future__ import annotations

import os
import socket
from itertools import count
from random import randrange

FIRST, STRETCH, WORKERS = 10_000, 1_200, 8
"""A Redis of a cluster listens 10,000 higher, too."""
_tried = count(randrange(STRETCH))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    for number in _tried:
        port = FIRST + worker * STRETCH + number % STRETCH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")
