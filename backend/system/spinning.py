"""Shortens the spinning of llama.cpp's threads while other programs compute.

llama.cpp's threads meet at a barrier after every step, some hundred times per token. libgomp's
threads spin for some milliseconds at a barrier before they sleep, which is best while each thread
has its own processor. If a thread has none, the spinning ones keep it from running, and a token
takes ten to fifty times as long (docs/log/bench.md).

libgomp spins for microseconds only while a process has more of its threads than there are
processors. So extra sleeping threads are started when the computing thread has to wait for a
processor, and ended when it no longer does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from backend.system import faults

_LOOK_S = 0.25
_LEAST_NS = 20_000_000
"""Intervals in which the thread wanted to run for less time do not count."""
_BUSY, _CALM = 0.25, 0.12
"""Shares of that time spent waiting for a processor; one reading thread causes 0.05."""
_N_CALM = 4
"""Consecutive calm intervals: one second."""


@dataclass
class Contention:
    """Detects from one thread's times whether threads wait for processors."""

    is_busy: bool = False
    _n_calm: int = 0

    def observe(self, ran_ns: int, waited_ns: int) -> bool:
        """Observe the thread's times since the last call. Return is_busy."""
        wanted_ns = ran_ns + waited_ns
        if wanted_ns >= _LEAST_NS:
            share = waited_ns / wanted_ns
            self._n_calm = self._n_calm + 1 if share < _CALM else 0
            if share > _BUSY:
                self.is_busy = True
            elif self._n_calm >= _N_CALM:
                self.is_busy = False
        return self.is_busy


class Sleepers:
    """Sleeping threads of libgomp, as many as there are processors. end() ends them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._over = threading.Event()
        self._thread = faults.Thread("sleepers", self._run, failed=faults.no_place)
        self._thread.start()

    def _run(self) -> None:
        # libgomp's threads belong to the thread that starts them, and end with it. They may run
        # any function without arguments.
        nothing = ctypes.cast(self._library.omp_get_level, ctypes.c_void_p)
        n_thread = len(os.sched_getaffinity(0)) + 1
        self._library.GOMP_parallel(nothing, None, ctypes.c_uint(n_thread), ctypes.c_uint(0))
        self._over.wait()

    def end(self) -> None:
        """End the threads. Call once."""
        self._over.set()
        self._thread.join()


class _Watch:
    """Watches the computing thread, four times a second."""

    def __init__(self) -> None:
        self._thread_id = 0
        self._started = sys.platform != "linux"

    def computing(self) -> None:
        """Watch the calling thread, which computes with llama.cpp."""
        self._thread_id = threading.get_native_id()
        if not self._started:
            self._started = True
            faults.Thread("spinning", self._run, failed=faults.no_place).start()

    def _run(self) -> None:
        libraries = [ctypes.CDLL(path) for path in libgomp()]
        contention = Contention()
        sleepers: list[Sleepers] = []
        last = (0, 0, 0)  # thread, ran, waited
        pause = threading.Event()
        while libraries:
            pause.wait(_LOOK_S)
            now = _times(self._thread_id)
            if now is not None and now[0] == last[0]:
                contention.observe(now[1] - last[1], now[2] - last[2])
            last = now or (0, 0, 0)
            if contention.is_busy and not sleepers:
                sleepers = [Sleepers(library) for library in libraries]
            elif not contention.is_busy:
                while sleepers:
                    sleepers.pop().end()


def libgomp() -> list[str]:
    """Return the files of the OpenMP libraries that this process has loaded."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        paths = (line.split(maxsplit=5)[-1] for line in lines)
        return sorted({path for path in paths if "libgomp" in os.path.basename(path)})
    return []


def _times(thread_id: int) -> tuple[int, int, int] | None:
    """Return the thread, the time that it ran and the time that it waited to run, in ns."""
    with contextlib.suppress(OSError, ValueError):
        text = Path(f"/proc/self/task/{thread_id}/schedstat").read_text(encoding="ascii")
        ran, waited, _ = text.split()
        return thread_id, int(ran), int(waited)
    return None


_watch = _Watch()
computing = _watch.computing
