"""Weights rounded to four bits (backend.weights.four_bits) while they are trained.

A network that is trained on with the rounded weights loses next to nothing by the rounding. The
gradient passes it as if it were not there (the straight-through estimator).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from backend.weights.four_bits import group_of


class Factors:
    """What four bits leave to train: the factors of the groups, while the numbers stay.

    Their loss is smooth, where training through the rounding stays noisy.
    """

    def __init__(self, parameters: Iterable[tuple[nn.Parameter, int]]) -> None:
        """Parameters, each with the dimension along which its rows are; they become rounded."""
        self._parts: list[tuple[nn.Parameter, int, nn.Parameter, Tensor]] = []
        for parameter, dim in parameters:
            if group_of(parameter.shape[dim]):
                factors, numbers = _split(parameter.detach(), dim)
                self._parts.append((parameter, dim, nn.Parameter(factors), numbers))
        self.put()

    @property
    def factors(self) -> list[nn.Parameter]:
        """What an optimiser steps."""
        return [factors for _, _, factors, _ in self._parts]

    def take_gradients(self) -> None:
        """Give the factors the gradients that their parameters have got, which forget them."""
        for parameter, dim, factors, numbers in self._parts:
            if parameter.grad is not None:
                of_values = parameter.grad.movedim(dim, -1).reshape(numbers.shape)
                factors.grad = (of_values * numbers).sum(-1, keepdim=True)
                parameter.grad = None

    @torch.no_grad()
    def put(self) -> None:
        """Make the parameters what factors and numbers say, with factors as the file keeps them."""
        for parameter, dim, factors, numbers in self._parts:
            values = factors.half().float() * numbers
            parameter.copy_(values.flatten(-2).movedim(-1, dim))


def _split(values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Factors [..., groups, 1] and numbers [..., groups, group] of rows along `dim`."""
    rows = values.movedim(dim, -1)
    groups = rows.reshape(*rows.shape[:-1], -1, group_of(rows.shape[-1]))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    factors = (largest / -8).half().float()
    divisors = torch.where(factors == 0, 1.0, factors)
    return factors, torch.clamp(torch.round(groups / divisors), -8, 7)


def rounded(values: Tensor, dim: int = -1) -> Tensor:
    """Values [...] rounded in groups along `dim`, which is the row in the file."""
    if not group_of(values.shape[dim]):
        return values
    factors, numbers = _split(values.detach(), dim)
    kept = (numbers * factors).flatten(-2).movedim(-1, dim)
    return values + (kept - values).detach()
