"""Limits for code that is not to be trusted: how long it runs, and how much memory it takes."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_AGAIN_S = 0.05  # an exception may be lost, as in a destructor, so the alarm goes off repeatedly
_NOT_SET = object()


class TooLong(BaseException):
    """The time is over. Not an Exception, so that the limited code cannot catch it."""


class TimeLimit:
    """Raises TooLong in the body of a `with`, from whatever it is at, after some seconds.

    Every line of Python that the body calls is traced. In the main thread, where there are
    signals, an alarm also ends single operations that take long, such as powers of large numbers.
    Not to be wrapped in a generator: an interrupted one would not take the limit off.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._armed = False
        self._handler_before: Any = _NOT_SET

    def __enter__(self) -> None:
        self._end_s = time.monotonic() + self._limit_s
        self._trace_before = sys.gettrace()
        self._armed = True
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
            self._handler_before = signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, self._limit_s, _AGAIN_S)
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        self._armed = False
        sys.settrace(self._trace_before)
        if self._handler_before is not _NOT_SET:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler_before)

    def _trace(self, frame: Any, _event: str, _argument: Any) -> Any:
        if time.monotonic() > self._end_s:
            self._end(frame)
        return self._trace

    def _on_alarm(self, _number: int, frame: Any) -> None:
        self._end(frame)

    def _end(self, frame: Any) -> None:
        """Raise, unless the body has ended anyway: then the limit must be taken off."""
        if self._armed and frame.f_code is not TimeLimit.__exit__.__code__:
            raise TooLong


@contextlib.contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Let this process take at most so many more bytes of address space; then MemoryError.

    On Linux only; elsewhere there is no such limit that holds.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    n_page = int(Path("/proc/self/statm").read_text().split()[0])
    limit = n_page * resource.getpagesize() + more_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
