"""Count the cores that other programs leave free, for training on a shared machine.

A matrix product on two threads ends with the slower thread. If another program holds a core, the
second thread is late at each of thousands of joins per step. Measured on two cores: a step took
6.7 s instead of 1.1 s, while one thread alone takes 2.0 s.
"""

from __future__ import annotations

import time

import psutil

_BUSY = ("user", "nice", "system", "irq", "softirq")


def _busy_s() -> float:
    """Return the processor time of all programs since boot."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in _BUSY)


class FreeCores:
    """Count how many of `n_core` cores other programs left idle since the last call."""

    def __init__(self, n_core: int) -> None:
        self.n_core = n_core
        self.n_free = n_core
        self._seen = n_core
        self._mark = (time.monotonic(), time.process_time(), _busy_s())

    def __call__(self, least_s: float = 1.0) -> int:
        """Return 1 to `n_core`. Measure at most once every `least_s` seconds."""
        now = (time.monotonic(), time.process_time(), _busy_s())
        wall_s = now[0] - self._mark[0]
        if wall_s >= least_s:
            others_s = (now[2] - self._mark[2]) - (now[1] - self._mark[1])
            free = max(1, min(self.n_core, round(self.n_core - others_s / wall_s + 0.1)))
            # Fall at once, rise after two measurements: an excess thread costs three steps.
            self.n_free = min(free, max(self.n_free, self._seen))
            self._seen = free
            self._mark = now
        return self.n_free
