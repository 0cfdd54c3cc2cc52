"""Round weights to four bits during training (backend.weights.four_bits), as the file does.

A network that continues training with rounded weights loses almost no accuracy. The gradient
passes the rounding unchanged (the straight-through estimator).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.weights.four_bits import group_of

Floats = NDArray[np.float32]


def split(values: Floats) -> tuple[Floats, Floats]:
    """Return factors [groups, 1] and numbers [groups, group] of rows along the last dimension.

    REQUIRES: group_of() of the rows' length.
    """
    groups = values.reshape(-1, group_of(values.shape[-1]))
    places = np.abs(groups).argmax(1)
    largest = groups[np.arange(len(groups)), places][:, None]
    factors = in_half(largest / np.float32(-8))
    divisors: Floats = np.where(factors == 0, 1, factors).astype(np.float32)
    numbers: Floats = groups / divisors
    np.rint(numbers, out=numbers)
    return factors, np.clip(numbers, -8, 7, out=numbers)


def in_half(factors: Floats) -> Floats:
    """Return the factors as the file stores them."""
    return factors.astype(np.float16).astype(np.float32)


def rounded(values: Floats) -> Floats:
    """Return values [...] rounded in groups of their rows; unchanged if rows have no groups."""
    if not group_of(values.shape[-1]):
        return values
    factors, numbers = split(values)
    numbers *= factors
    return numbers.reshape(values.shape)
