"""How much a token asks of any cache, whatever the setting that it is decoded under.

Tokens differ: one needs what all of the last ones needed, another goes elsewhere in every layer. To
compare settings over few tokens, that has to be known apart from them. What a plain LRU cache of
the same size would have missed depends on the routing alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.methods import cells


class Work:
    """The count of one pass, as a float; it is found if somebody asks within 64 passes, else 0."""

    __slots__ = ("_meter", "value")

    def __init__(self, meter: WorkMeter) -> None:
        self._meter = meter
        self.value = 0.0

    def __float__(self) -> float:
        self._meter.settle()
        return self.value


class WorkMeter:
    """An LRU cache of every layer that holds nothing: it only counts.

    Passes are looked at some at a time: one by one, between tokens of a few milliseconds, each
    would find the processor's caches cold. Of passes that nobody asks about, only what they used
    is kept.
    """

    N_OPEN_MAX = 64

    def __init__(self, n_layer: int, n_expert: int, n_slot: int) -> None:
        self._last = np.zeros((n_layer, n_expert), np.int64)  # the pass that needed it, 0: none
        self._n_pass = 0
        self._at = n_expert - min(max(n_slot, 1), n_expert)
        self._open: list[tuple[bytes, Work]] = []

    def count(self, snapshot: bytes) -> Work:
        """Experts that the last pass needed and LRU would have missed; see Patch.snapshot()."""
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
        """Find what has not been found yet."""
        for snapshot, work in self._open:
            needed = self._needed(snapshot)
            oldest = np.partition(self._last, self._at, axis=1)[:, self._at, np.newaxis]
            missed = needed & ((self._last < oldest) | (self._last == 0))
            self._use(needed)
            work.value = float(missed.sum())
        self._open.clear()
