"""The share of the processor that other programs use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_COUNTED = (0, 2, 5, 6, 7)
"""Columns of /proc/stat: user, system, irq, softirq, steal. The low-priority time of `nice`, column
1, gives way to an answer."""


class OtherPrograms:
    """Observes the time that the processors spend on other programs.

    counts_nice: programs of low priority count, too. proc: the folder of the process information,
    /proc; other systems than Linux ask psutil.
    """

    def __init__(self, *, counts_nice: bool = False, proc: Path = _PROC) -> None:
        self._proc = proc
        self._columns = (*_COUNTED, 1) if counts_nice else _COUNTED
        self._before: tuple[float, float, frozenset[int], float] | None = None

    def share(self, pids: Iterable[int]) -> float | None:
        """Return the share of all processors, 0 to 1, that others used since the last call.

        pids: the processes that are not "others". Return None at the first call, after a change of
        `pids`, and where the system does not tell.
        """
        mine = frozenset(pids)
        try:
            busy_s, all_s = self._machine()
            own_s = sum(map(self._process, mine))
        except (OSError, ValueError, IndexError, ImportError):
            self._before = None
            return None
        before, self._before = self._before, (busy_s, all_s, mine, own_s)
        if before is None or before[2] != mine or all_s <= before[1]:
            return None
        others_s = (busy_s - before[0]) - (own_s - before[3])
        return min(max(others_s / (all_s - before[1]), 0.0), 1.0)

    def _machine(self) -> tuple[float, float]:
        """Return the seconds of all processors: busy, and in all."""
        if sys.platform != "linux":
            import psutil  # installed only where it is needed

            times = psutil.cpu_times()
            return times.user + times.system, sum(times)
        fields = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = [int(field) for field in fields[:8]]  # guests are counted as user, too
        per_s = os.sysconf("SC_CLK_TCK")
        return sum(ticks[i] for i in self._columns if i < len(ticks)) / per_s, sum(ticks) / per_s

    def _process(self, pid: int) -> float:
        """Return the seconds that a process has computed. Raises OSError if it has ended."""
        if sys.platform != "linux":
            import psutil  # installed only where it is needed

            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error as error:
                raise OSError(str(error)) from error
            return float(times.user + times.system)
        # The name, in brackets, may contain spaces.
        fields = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
