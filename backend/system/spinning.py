"""Has llama.cpp's threads sleep soon when they wait for each other while other programs compute.

llama.cpp's threads meet after every step, some hundred times for a token. libgomp lets those that
are there first look for the others some milliseconds long before they sleep: the best there is
while each has a processor to itself. Where one has not, the others keep it from getting theirs, and
a token takes ten to fifty times as long (docs/log/bench.md).

libgomp looks for microseconds only while a program has more of its threads than there are
processors. So some that sleep are made when the computing thread waits for a processor, and ended
when it does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.25
_LEAST_NS = 20_000_000
"""A thread that wanted to run for less time since the last look tells nothing."""
_BUSY, _CALM = 0.25, 0.12
"""Shares of that time in which it waited for a processor; a thread that reads costs it 0.05."""
_N_CALM = 4
"""Looks in a row: a second."""


@dataclass
class Contention:
    """Whether threads keep each other from computing, judged by one of them."""

    is_busy: bool = False
    _n_calm: int = 0

    def hear(self, ran_ns: int, waited_ns: int) -> bool:
        """What the thread did since the last look; returns is_busy."""
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
    """As many of libgomp's threads as there are processors; they do nothing while this exists."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sleepers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Threads stay with the one that they were made for, and end with it. What they are to
        # do is any function without arguments.
        nothing = ctypes.cast(self._library.omp_get_level, ctypes.c_void_p)
        n_thread = len(os.sched_getaffinity(0)) + 1
        self._library.GOMP_parallel(nothing, None, ctypes.c_uint(n_thread), ctypes.c_uint(0))
        self._over.wait()

    def end(self) -> None:
        """End them. Once."""
        self._over.set()
        self._thread.join()


class _Watch:
    """Looks at the thread that computes, four times a second."""

    def __init__(self) -> None:
        self._thread_id = 0
        self._started = sys.platform != "linux"

    def computing(self) -> None:
        """The calling thread computes with llama.cpp."""
        self._thread_id = threading.get_native_id()
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="spinning", daemon=True).start()

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
                contention.hear(now[1] - last[1], now[2] - last[2])
            last = now or (0, 0, 0)
            if contention.is_busy and not sleepers:
                sleepers = [Sleepers(library) for library in libraries]
            elif not contention.is_busy:
                while sleepers:
                    sleepers.pop().end()


def libgomp() -> list[str]:
    """Files of the OpenMP libraries that this process has loaded."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        paths = (line.split(maxsplit=5)[-1] for line in lines)
        return sorted({path for path in paths if "libgomp" in os.path.basename(path)})
    return []


def _times(thread_id: int) -> tuple[int, int, int] | None:
    """The thread, and for how long it ran and waited to run, in nanoseconds."""
    with contextlib.suppress(OSError, ValueError):
        text = Path(f"/proc/self/task/{thread_id}/schedstat").read_text(encoding="ascii")
        ran, waited, _ = text.split()
        return thread_id, int(ran), int(waited)
    return None


_watch = _Watch()
computing = _watch.computing
