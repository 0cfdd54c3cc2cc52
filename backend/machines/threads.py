"""Measures how many threads compute a token fastest while experts are read, once per machine.

Computing threads wait for each other after every step. A thread that shares its core with a reading
thread therefore slows all of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from backend.machines import kept
from backend.machines.drive import LEAST_FILE_BYTES, Drive
from backend.system import faults
from backend.system.memory import is_busy, physical_cores
from backend.system.processor import OtherPrograms

_FILE = "threads.json"
_Q4_0 = 2  # ggml's number of the type
_N_COLUMN, _N_ROW = 2048, 16384  # 19 MB, larger than a processor's cache
_PRODUCT_S = 0.05
_ROUNDS = 3
_WORTH = 1.03
_OTHERS = 0.25
"""Processors that other programs may use while threads are measured.

Such a program slows two threads on two cores more than one thread, and the result is kept for good.
"""
_THREAD_BYTES = 8 << 20
"""Bytes of a token below which a further thread costs more waiting than it saves. One thread reads
the embedded model's 4.5 MB faster than two (docs/log/panel.md)."""

Times = Mapping[int, float]
"""Microseconds of the same work, by number of threads."""


def compute_threads(path: Path, drive: Drive, *, ring: bool) -> int:
    """Return the best number of threads. Measure for a third of a second if unknown.

    path: a file to read during the measurement, as `drive` and `ring` say (drive.drive_of). Return
    the number of cores if the file is small, or if other programs compute.
    """
    n_core = physical_cores()
    if n_core == 1:
        return 1
    found = kept.read(_FILE)
    key = f"{n_core} cores"
    n_thread = found.get(key)
    if isinstance(n_thread, int) and 1 <= n_thread <= n_core:
        return n_thread
    if is_busy() or path.stat().st_size < LEAST_FILE_BYTES:
        return n_core
    others, pids = OtherPrograms(counts_nice=True), [os.getpid()]
    others.share(pids)
    try:
        n_thread = choose(measure(path, drive, range(n_core, max(n_core - 3, 0), -1), ring=ring))
    except RuntimeError:
        return n_core
    if (others.share(pids) or 0.0) * (os.cpu_count() or 1) > _OTHERS:
        return n_core
    kept.write(_FILE, {**found, key: n_thread})
    return n_thread


def useful_threads(token_bytes: int, n_thread: int) -> int:
    """Return how many of n_thread have enough work with a model that reads token_bytes a token."""
    return max(1, min(n_thread, token_bytes // _THREAD_BYTES))


def measure(path: Path, drive: Drive, n_threads: range, *, ring: bool) -> Times:
    """Multiply with each number of threads, in turn, during reads. Raises RuntimeError."""
    from backend import _native  # loads llama.cpp; a kept result is read without it

    seconds = _ROUNDS * len(n_threads) * _PRODUCT_S

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # then measure without reads
            _native.measure_reads(str(path), drive.read_bytes, drive.n_read, seconds, ring)

    reader = faults.Thread("read beside", read, failed=faults.no_place)
    reader.start()
    times: dict[int, float] = {}
    try:
        for _ in range(_ROUNDS):
            for n in n_threads:
                us = _native.measure_product(_Q4_0, _N_COLUMN, _N_ROW, 1, n, False, _PRODUCT_S)
                times[n] = min(us, times.get(n, us))
    finally:
        reader.join()
    return times


def choose(times: Times) -> int:
    """Return the fewest threads that are nearly the fastest. Their other cores stay free."""
    best = min(times.values())
    return min(n for n, us in times.items() if us <= _WORTH * best)
