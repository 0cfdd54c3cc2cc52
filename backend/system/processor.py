"""The share of the processor that other programs use."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

_BUSY = ("user", "system", "irq", "softirq", "steal")
"""The times of a processor that count as busy. The low-priority time, `nice`, gives way to an
answer."""
_COUNTED_TWICE = ("guest", "guest_nice")
"""Linux counts them as `user` and `nice`, too."""


class OtherPrograms:
    """Observes the time that the processors spend on other programs.

    counts_nice: programs of low priority count, too.
    """

    def __init__(self, *, counts_nice: bool = False) -> None:
        self._busy = (*_BUSY, "nice") if counts_nice else _BUSY
        self._before: tuple[float, float, frozenset[int], float] | None = None

    def share(self, pids: Iterable[int]) -> float | None:
        """Return the share of all processors, 0 to 1, that others used since the last call.

        pids: the processes that are not "others". Return None at the first call, after a change of
        `pids`, and where the system does not tell.
        """
        mine = frozenset(pids)
        try:
            times = psutil.cpu_times()
            used = [psutil.Process(pid).cpu_times() for pid in mine]
        except (OSError, psutil.Error):
            self._before = None
            return None
        busy_s = sum(getattr(times, name, 0.0) for name in self._busy)
        all_s = sum(times) - sum(getattr(times, name, 0.0) for name in _COUNTED_TWICE)
        own_s = sum(time.user + time.system for time in used)
        before, self._before = self._before, (busy_s, all_s, mine, own_s)
        if before is None or before[2] != mine or all_s <= before[1]:
            return None
        others_s = (busy_s - before[0]) - (own_s - before[3])
        return min(max(others_s / (all_s - before[1]), 0.0), 1.0)
