"""How many threads compute a token fastest while experts are read: measured once on a machine.

Threads that compute wait for each other after every step: one more than finds a core for itself,
because somebody reads, slows them all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

from backend.machines import kept
from backend.machines.drive import LEAST_FILE_BYTES, Drive
from backend.system.memory import is_busy, physical_cores

_FILE = "threads.json"
_Q4_0 = 2  # ggml's number of the type
_N_COLUMN, _N_ROW = 2048, 16384  # 19 MB: more than a cache holds
_PRODUCT_S = 0.05
_ROUNDS = 3
_WORTH = 1.03
_THREAD_BYTES = 8 << 20
"""A thread that reads less for a token costs more waiting than it spares: the embedded model's
4.5 MB are read faster by one thread than by two (docs/log/panel.md)."""

Times = Mapping[int, float]
"""Microseconds of the same work by number of threads."""


def compute_threads(path: Path, drive: Drive, *, ring: bool) -> int:
    """As measured before, or now, in a third of a second.

    path: a file to read meanwhile, in the way of `drive` and `ring` (drive.drive_of). A small
    one, or a busy machine, tells nothing: then one for each core.
    """
    n_core = physical_cores()
    if n_core == 1:
        return 1
    found = kept.read(_FILE)
    n_thread = found.get(str(n_core))
    if isinstance(n_thread, int) and 1 <= n_thread <= n_core:
        return n_thread
    if is_busy() or path.stat().st_size < LEAST_FILE_BYTES:
        return n_core
    try:
        n_thread = choose(measure(path, drive, range(n_core, max(n_core - 3, 0), -1), ring=ring))
    except RuntimeError:
        return n_core
    kept.write(_FILE, {**found, str(n_core): n_thread})
    return n_thread


def useful_threads(token_bytes: int, n_thread: int) -> int:
    """Of n_thread, as many as a model has work for that reads so many bytes for a token."""
    return max(1, min(n_thread, token_bytes // _THREAD_BYTES))


def measure(path: Path, drive: Drive, n_threads: range, *, ring: bool) -> Times:
    """Multiply with each number of threads, in turn, while somebody reads. Raises RuntimeError."""
    from backend import _native  # loads llama.cpp; what was kept is read without

    seconds = _ROUNDS * len(n_threads) * _PRODUCT_S

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # then nobody reads meanwhile
            _native.measure_reads(str(path), drive.read_bytes, drive.n_read, seconds, ring)

    reader = threading.Thread(target=read)
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
    """The fewest that are nearly as fast as any: the others' core is somebody else's."""
    best = min(times.values())
    return min(n for n, us in times.items() if us <= _WORTH * best)
