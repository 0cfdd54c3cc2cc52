"""Measures the work of a token: the misses of a plain LRU cache of the same size.

Some tokens need the same experts as the previous tokens, others need new ones in every layer. A
comparison of settings over few tokens must separate this difference from that of the settings. The
misses of an LRU cache depend on the routing alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.methods import cells


class Work:
    """The count of one pass as a float. It must be read within N_OPEN_MAX passes, else it is 0."""

    __slots__ = ("_meter", "value")

    def __init__(self, meter: WorkMeter) -> None:
        self._meter = meter
        self.value = 0.0

    def __float__(self) -> float:
        self._meter.settle()
        return self.value


class WorkMeter:
    """Simulates an LRU cache of every layer, for counting only.

    Passes are processed several at a time. One by one, between tokens of a few milliseconds, each
    would find the processor's caches cold. Passes whose count is not read only update the LRU
    order.
    """

    N_OPEN_MAX = 64

    def __init__(self, n_layer: int, n_expert: int, n_slot: int) -> None:
        self._last = np.zeros((n_layer, n_expert), np.int64)  # last pass with the expert; 0: none
        self._n_pass = 0
        self._at = n_expert - min(max(n_slot, 1), n_expert)
        self._open: list[tuple[bytes, Work]] = []

    def count(self, snapshot: bytes) -> Work:
        """Return the number of experts that LRU misses in this pass. snapshot: Patch.snapshot()."""
        work = Work(self)
        self._open.append((snapshot, work))
        if len(self._open) >= self.N_OPEN_MAX:
            for passed, _ in self._open[:-1]:
                self._use(self._needed(passed))
            del self._open[:-1]
        return work

    def _needed(self, snapshot: bytes) -> NDArray[np.bool_]:
        flags: NDArray[np.uint8] = np.frombuffer(snapshot, np.uint8) & np.uint8(cells.FOUND)
        return flags.astype(bool).reshape(self._last.shape)

    def _use(self, needed: NDArray[np.bool_]) -> None:
        self._n_pass += 1
        self._last[needed] = self._n_pass

    def settle(self) -> None:
        """Compute the counts of the open passes."""
        for snapshot, work in self._open:
            needed = self._needed(snapshot)
            oldest = np.partition(self._last, self._at, axis=1)[:, self._at, np.newaxis]
            missed = needed & ((self._last < oldest) | (self._last == 0))
            self._use(needed)
            work.value = float(missed.sum())
        self._open.clear()
