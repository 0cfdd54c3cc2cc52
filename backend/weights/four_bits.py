"""Packs arrays into four bits a value, for the largest arrays of predictor files.

A row (the last dimension) is cut into groups of GROUP values; a shorter row is one group. A group
has a factor d and an integer from -8 to 7 for each value, which is d times the integer. The factor
is chosen so that the value of the largest magnitude becomes -8, as in GGUF's Q4_0, whose groups
have 32 values. Packing an unpacked array gives the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUP = 64
_FACTOR_BYTES = 2  # float16


def packed(name: str, array: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Pack [..., row] into bytes [..., groups of a row, 2 + half a group]: factor, then integers.

    A byte holds two integers, each plus 8; the first is in the lower four bits. Raises ValueError,
    a sentence, if the array cannot be packed.
    """
    n_column = array.shape[-1] if array.ndim else 0
    group = group_of(n_column)
    if not group:
        raise ValueError(f"The array {name} has rows of {n_column} values, which q4 cannot hold.")
    groups = array.reshape(*array.shape[:-1], -1, group)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)
    with np.errstate(over="ignore"):
        factors = (largest / np.float32(-8)).astype("<f2")
    if not np.isfinite(factors).all():
        raise ValueError(f"The array {name} has values that q4 cannot hold.")
    divisors = np.where(factors == 0, 1, factors).astype(np.float32)
    numbers = (np.clip(np.rint(groups / divisors), -8, 7) + 8).astype(np.uint8)
    pairs = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return np.concatenate([factors.view(np.uint8), pairs], -1)


def unpacked(name: str, kept: NDArray[Any], n_column: Any) -> NDArray[np.float32]:
    """Unpack the result of packed() into rows of n_column values.

    Raises ValueError, a clause, if the bytes do not fit n_column.
    """
    group = group_of(n_column) if isinstance(n_column, int) else 0
    if (
        not group
        or kept.dtype != np.uint8
        or kept.ndim < 2
        or kept.shape[-2:] != (n_column // group, _FACTOR_BYTES + group // 2)
    ):
        raise ValueError(f"its array {name} is not what its header says")
    factors = np.ascontiguousarray(kept[..., :_FACTOR_BYTES]).view("<f2").astype(np.float32)
    pairs = kept[..., _FACTOR_BYTES:]
    numbers = np.stack([pairs & 15, pairs >> 4], -1).astype(np.float32) - 8
    values: NDArray[np.float32] = numbers.reshape(*pairs.shape[:-1], group) * factors
    return values.reshape(*kept.shape[:-2], n_column)


def group_of(n_column: int) -> int:
    """Return the values in a group for rows of n_column, or 0 if such rows have no groups."""
    group = min(n_column, GROUP)
    return group if group > 0 and group % 2 == 0 and n_column % group == 0 else 0
