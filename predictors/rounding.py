"""Weights rounded to four bits as a file keeps them (backend.four_bits), while they are trained.

A network that is trained on with the rounded weights loses next to nothing by the rounding. The
gradient passes it as if it were not there (the straight-through estimator).
"""

from __future__ import annotations

import torch
from torch import Tensor

from backend.four_bits import group_of


def rounded(values: Tensor, dim: int = -1) -> Tensor:
    """Values [...] rounded in groups along `dim`, which is the row in the file."""
    group = group_of(values.shape[dim])
    if not group:
        return values
    rows = values.detach().movedim(dim, -1)
    groups = rows.reshape(*rows.shape[:-1], -1, group)
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    factors = (largest / -8).half().float()
    numbers = torch.clamp(torch.round(groups / torch.where(factors == 0, 1.0, factors)), -8, 7)
    kept = (numbers * factors).reshape(rows.shape).movedim(-1, dim)
    return values + (kept - values).detach()
