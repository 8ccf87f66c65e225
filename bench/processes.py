"""Processes of a bench run: build, start on a CPU, wait until ready, read what they use, stop.

CPU time comes from the kernel's per-process CPU clock (nanoseconds, threads that have ended included), summed over the
process tree that /proc shows; memory from /proc/PID/status. Linux only.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO

BENCH = Path(__file__).resolve().parent
READY_SECONDS = 60.0
STOP_SECONDS = 5.0


class BenchError(Exception):
    """Something that a bench run needs is missing or did not start; the text says what to do."""


def build(directory: Path = BENCH / "bin") -> tuple[Path, Path]:
    """Compiles `upstream` and `load` if a source is newer; returns their paths."""
    compiler = shutil.which("gcc")
    if not compiler:
        raise BenchError("gcc is missing; on Debian and Ubuntu: apt-get install gcc libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    newest = max(source.stat().st_mtime for source in BENCH.glob("*.[ch]"))
    programs = directory / "upstream", directory / "load"
    for program in programs:
        if not program.exists() or program.stat().st_mtime < newest:
            flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra"]
            subprocess.run([compiler, *flags, "-o", program, BENCH / f"{program.name}.c"], check=True)
    return programs


def cpu_pair() -> tuple[int, int] | None:
    """One CPU for the proxies and one for upstream and load; None with a single CPU: nothing is pinned then."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def pin(cpu: int | None) -> Callable[[], None] | None:
    """A `preexec_fn` that keeps the process on this CPU."""
    return None if cpu is None else partial(os.sched_setaffinity, 0, {cpu})


def start(
    stack: ExitStack, command: list[str], cpu: int | None, output: IO[bytes] | int, directory: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own; the stack ends that group."""
    process = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, cwd=directory, start_new_session=True, preexec_fn=pin(cpu)
    )
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)


def wait_ready(process: subprocess.Popen[bytes], port: int, began: float) -> float:
    """Seconds from `began` to the first HTTP answer to GET /livez, whatever its status."""
    while time.monotonic() < began + READY_SECONDS:
        if process.poll() is not None:
            raise BenchError(f"ended with exit code {process.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/livez")
            connection.getresponse()
            return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            time.sleep(0.005)
        finally:
            connection.close()
    raise BenchError(f"not ready after {READY_SECONDS:.0f} s")


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):  # it may have ended since
                after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(after_name[1]), []).append(int(entry))
    found = [root]
    for pid in found:  # grows while we walk
        found += children.get(pid, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            total += time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) returns for a process
    return total


def memory_mb(pids: list[int], field: str) -> float:
    """Sum of a field of /proc/PID/status: `VmRSS` now, `VmHWM` the peak since `reset_peak`. Shared pages count twice."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return total / 1024


def reset_peak(pids: list[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM
