"""Round weights to four bits during training (backend.weights.four_bits), as the file does.

A network that continues training with rounded weights loses almost no accuracy. The gradient
passes the rounding unchanged (the straight-through estimator).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from backend.weights.four_bits import group_of


class Factors:
    """Train the factors of the groups while the four-bit numbers stay fixed.

    The loss is smooth in the factors, whereas training through the rounding stays noisy.
    """

    def __init__(self, parameters: Iterable[tuple[nn.Parameter, int]]) -> None:
        """Round the parameters. Each comes with the dimension of its rows."""
        self._parts: list[tuple[nn.Parameter, int, nn.Parameter, Tensor]] = []
        for parameter, dim in parameters:
            if group_of(parameter.shape[dim]):
                factors, numbers = _split(parameter.detach(), dim)
                self._parts.append((parameter, dim, nn.Parameter(factors), numbers))
        self.put()

    @property
    def factors(self) -> list[nn.Parameter]:
        """Return the factors for the optimiser."""
        return [factors for _, _, factors, _ in self._parts]

    def take_gradients(self) -> None:
        """Move the parameters' gradients to their factors."""
        for parameter, dim, factors, numbers in self._parts:
            if parameter.grad is not None:
                of_values = parameter.grad.movedim(dim, -1).reshape(numbers.shape)
                factors.grad = (of_values * numbers).sum(-1, keepdim=True)
                parameter.grad = None

    @torch.no_grad()
    def put(self) -> None:
        """Set the parameters to factor * number, with the factors in f16 as in the file."""
        for parameter, dim, factors, numbers in self._parts:
            values = factors.half().float() * numbers
            parameter.copy_(values.flatten(-2).movedim(-1, dim))


def _split(values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return factors [..., groups, 1] and numbers [..., groups, group] of rows along `dim`."""
    rows = values.movedim(dim, -1)
    groups = rows.reshape(*rows.shape[:-1], -1, group_of(rows.shape[-1]))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    factors = (largest / -8).half().float()
    divisors = torch.where(factors == 0, 1.0, factors)
    return factors, torch.clamp(torch.round(groups / divisors), -8, 7)


def rounded(values: Tensor, dim: int = -1) -> Tensor:
    """Return values [...] rounded in groups along `dim`, the row dimension in the file."""
    if not group_of(values.shape[dim]):
        return values
    factors, numbers = _split(values.detach(), dim)
    kept = (numbers * factors).flatten(-2).movedim(-1, dim)
    return values + (kept - values).detach()
