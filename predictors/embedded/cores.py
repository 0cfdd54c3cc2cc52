"""How many cores others leave free, so that a shared machine does not stall every product.

A product on two threads ends when the slower one does. Where another program holds a core, the
second thread waits for its turn at each of thousands of joins per step: measured on two cores, a
step took 6.7 s instead of 1.1 s, while one thread alone takes 2.0 s.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")


def _busy_s() -> float | None:
    """Processor time that all programs have used since boot; None where Linux's file is absent."""
    try:
        fields = _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, *_ = (int(field) for field in fields)
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class FreeCores:
    """Counts, from call to call, how many of `n_core` cores other programs left idle."""

    def __init__(self, n_core: int) -> None:
        self.n_core = n_core
        self.n_free = n_core
        self._seen = n_core
        self._mark = (time.monotonic(), time.process_time(), _busy_s())

    def __call__(self, least_s: float = 1.0) -> int:
        """Between 1 and `n_core`; looks again at most every `least_s` seconds."""
        now = (time.monotonic(), time.process_time(), _busy_s())
        wall_s = now[0] - self._mark[0]
        if wall_s >= least_s and now[2] is not None and self._mark[2] is not None:
            others_s = (now[2] - self._mark[2]) - (now[1] - self._mark[1])
            free = max(1, min(self.n_core, round(self.n_core - others_s / wall_s + 0.1)))
            # Down at once, up when it was free twice: a wrong second thread costs three steps.
            self.n_free = min(free, max(self.n_free, self._seen))
            self._seen = free
            self._mark = now
        return self.n_free
