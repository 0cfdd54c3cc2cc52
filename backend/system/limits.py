"""Limits this process: processor time and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """End this process when the body takes longer than limit_s.

    Counts the processor time of all threads, or elapsed time on a system without such a timer. No
    timer needs the interpreter, so a single operation in C is ended, too.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
    else:
        with open(os.devnull, "w") as nowhere:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=nowhere)
            yield
            faulthandler.cancel_dump_traceback_later()


def reached_time_limit(status: int, took_s: float, limit_s: float) -> bool:
    """Return whether time_limit() has ended a process, which began took_s ago, with this status.

    Without a timer of the system the status is 1, which other ends have, too.
    """
    if hasattr(signal, "setitimer"):
        return status == -signal.SIGPROF
    return status == 1 and took_s >= limit_s


def limit_memory(more_bytes: int) -> None:
    """Limit this process to `more_bytes` more address space; beyond that MemoryError is raised.

    Not on Windows, nor where the system has no such limit, such as an old macOS.
    """
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + more_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    # macOS refuses a limit below its own count, which is larger than the one it tells a process.
    with contextlib.suppress(*(() if sys.platform == "linux" else (OSError, ValueError))):
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
