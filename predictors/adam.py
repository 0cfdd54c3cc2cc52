"""Adam with decoupled weight decay, on parts of one long vector (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

import math

import numpy as np

from predictors.routings import Floats

BLOCK = 1 << 14
"""Values updated at once: their six vectors stay in the processor's cache."""
EPSILON = 1e-8


class Adam:
    """The averages for a vector of parameters. Call begin_step(), then update() for its parts."""

    def __init__(self, n: int, betas: tuple[float, float], decay: float = 0.0) -> None:
        self.mean: Floats = np.zeros(n, np.float32)
        self.square: Floats = np.zeros(n, np.float32)
        self.n_step = 0
        self._betas, self._decay = betas, decay

    def begin_step(self) -> None:
        """Count a step."""
        self.n_step += 1

    def update(self, begin: int, values: Floats, gradient: Floats, rate: float) -> None:
        """Change the vector `values`, whose averages begin at `begin`, by their gradient.

        The memory of the gradient is used.
        """
        keep_mean, keep_square = self._betas
        of_mean = rate / (1 - keep_mean**self.n_step)
        of_square = 1 / math.sqrt(1 - keep_square**self.n_step)
        for at in range(0, len(values), BLOCK):
            v, g = values[at : at + BLOCK], gradient[at : at + BLOCK]
            mean = self.mean[begin + at : begin + at + len(v)]
            square = self.square[begin + at : begin + at + len(v)]
            if self._decay:
                v *= 1 - rate * self._decay
            mean *= keep_mean
            square *= keep_square
            step = g * g
            step *= 1 - keep_square
            square += step
            g *= 1 - keep_mean
            mean += g
            np.sqrt(square, out=step)
            step *= of_square
            step += EPSILON
            np.divide(mean, step, out=step)
            step *= of_mean
            v -= step
