"""Limits that the system sets on this process: processor time and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """End this process when the body takes longer, whatever it is doing.

    Counts the processor time of all threads; elapsed time on a system without such a timer. Neither
    needs the interpreter, so that a single operation in C is ended too.
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


def limit_memory(more_bytes: int) -> None:
    """Let this process take at most `more_bytes` more of address space; then MemoryError.

    Linux only: no other system has such a limit that holds.
    """
    if sys.platform != "linux":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    n_page = int(Path("/proc/self/statm").read_text().split()[0])
    limit = n_page * resource.getpagesize() + more_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
