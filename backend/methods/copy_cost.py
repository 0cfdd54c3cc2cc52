"""Estimates what a copy beside computing costs, from the costs of decoded tokens.

Copies and computing share cores and memory, on few cores more than on many. A right read ahead
saves less than its time where computing resident experts hides part of a read. The ratio of both
is Tuning.copy_cost; predict/worth.h says how it is used. The module has no clock.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from backend.methods.cost import PassCost

N_TOKEN, N_PERIOD = 128, 16
"""Tokens that count, and tokens between two estimates."""
FIRST, FIRST_ERROR = 0.25, 0.15
"""The time that computing loses in the time of a copy, until it is measured; its standard error."""
FIRST_SAVED = 0.6
"""The stall that a missing expert causes, as a share of the time to read it, until measured."""
LEAST_SAVED = 0.2
STEP = 0.05
"""A smaller change is not told."""


class CopyCost:
    """Observes tokens. value: the present estimate, 0 to 1. expert_bytes: of a mean expert."""

    def __init__(self, expert_bytes: float) -> None:
        self.value = FIRST / FIRST_SAVED
        self._expert_bytes = expert_bytes
        self._tokens: deque[tuple[float, ...]] = deque(maxlen=N_TOKEN)
        self._n_token = 0

    def observe(self, cost: PassCost) -> bool:
        """Observe a decoded token. Return whether `value` changed."""
        if not cost.is_sound:
            return False
        beside_s = max(0.0, cost.link_busy_s - cost.stall_s)
        n_missing = float(cost.late + cost.misses)
        self._tokens.append(
            (beside_s, n_missing, cost.compute_s, cost.stall_s, cost.link_busy_s, cost.bytes_read)
        )
        self._n_token += 1
        if self._n_token % N_PERIOD or self._n_token < 2 * N_PERIOD:
            return False
        value = min(self._lost() / self._saved(), 1.0)
        if abs(value - self.value) < STEP:
            return False
        self.value = value
        return True

    def _lost(self) -> float:
        """Return the time that computing loses in the time of a copy beside it.

        Computing also takes longer with every missing expert, whose wave is one more. Both are
        fitted. A value that the tokens do not determine keeps its initial estimate.
        """
        beside_s, n_missing, compute_s = np.array(self._tokens)[:, :3].T
        columns = np.stack([np.ones_like(beside_s), n_missing], axis=1)
        x, y = (
            v - columns @ np.linalg.lstsq(columns, v, rcond=None)[0] for v in (beside_s, compute_s)
        )
        spread = float(x @ x)
        if spread <= 1e-12:
            return FIRST
        slope = float(x @ y) / spread
        error = float(np.sum((y - slope * x) ** 2)) / max(len(x) - 3, 1) / spread
        weight = FIRST_ERROR**2 / (FIRST_ERROR**2 + error)
        return max(0.0, FIRST + weight * (slope - FIRST))

    def _saved(self) -> float:
        """Return the stall of a missing expert as a share of the time to read it."""
        _, n_missing, _, stall_s, busy_s, n_read = np.array(self._tokens).sum(axis=0)
        read_s = n_missing * self._expert_bytes * busy_s / n_read if n_read > 0 else 0.0
        return min(max(stall_s / read_s, LEAST_SAVED), 1.0) if read_s > 0 else FIRST_SAVED
