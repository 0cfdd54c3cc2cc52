"""How much a token asks of any cache, whatever the setting that it is decoded under.

Tokens differ: one needs what all of the last ones needed, another goes elsewhere in every layer. To
compare settings over few tokens, that has to be known apart from them. What a plain LRU cache of
the same size would have missed depends on the routing alone.
"""

from __future__ import annotations

import numpy as np

_NEEDED = 12  # the bits of Patch.snapshot() that an expert has that was needed


class WorkMeter:
    """An LRU cache of every layer that holds nothing: it only counts."""

    def __init__(self, n_layer: int, n_expert: int, n_slot: int) -> None:
        self._last = np.zeros((n_layer, n_expert), np.int64)  # the pass that needed it, 0: none
        self._n_pass = 0
        self._at = n_expert - min(max(n_slot, 1), n_expert)

    def count(self, snapshot: bytes) -> int:
        """Experts that the last pass needed and LRU would have missed; see Patch.snapshot()."""
        needed = (np.frombuffer(snapshot, np.uint8) & _NEEDED != 0).reshape(self._last.shape)
        oldest = np.partition(self._last, self._at, axis=1)[:, self._at, np.newaxis]
        missed = needed & ((self._last < oldest) | (self._last == 0))
        self._n_pass += 1
        self._last[needed] = self._n_pass
        return int(missed.sum())
