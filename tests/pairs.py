"""Few combinations of values in which every pair of values occurs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

Pair = tuple[tuple[int, Any], ...]


class Pairs:
    """Chooses one combination after the other, first those with pairs that did not occur yet.

    values: those of each kind. left: the pairs of two kinds' values that did not occur yet.
    """

    def __init__(self, *values: Sequence[Any]) -> None:
        self._values = values
        self._n_used: Counter[tuple[int, Any]] = Counter()
        self.left = {
            ((i, a), (j, b))
            for (i, of_i), (j, of_j) in itertools.combinations(enumerate(values), 2)
            for a, b in itertools.product(of_i, of_j)
        }

    def next(self, *given: Any) -> tuple[Any, ...]:
        """Return a combination that begins with these values. Of equal ones, take rare values."""
        rest = itertools.product(*self._values[len(given) :])
        chosen = max(((*given, *row) for row in rest), key=self._worth)
        self._n_used.update(enumerate(chosen))
        self.left -= self._pairs(chosen)
        return chosen

    def _worth(self, row: tuple[Any, ...]) -> tuple[int, int]:
        n_used = sum(self._n_used[value] for value in enumerate(row))
        return len(self._pairs(row) & self.left), -n_used

    @staticmethod
    def _pairs(row: tuple[Any, ...]) -> set[Pair]:
        return set(itertools.combinations(enumerate(row), 2))
