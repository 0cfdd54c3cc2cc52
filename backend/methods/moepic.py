"""MoEpic's cache configurator: choose the slots of each layer and the cuts of its experts.

MoEpic, section 3.4: statistics are gathered at run time. Every 5000 tokens, while the engine is
idle, Algorithm 1 turns them and the measured times into another layout.
"""

from __future__ import annotations

from typing import Any

from backend import _native
from backend.methods.cost import PassCost

INTERVAL_TOKENS = 5000
"""Tokens between two configurations (tau; MoEpic, section 4.1)."""


class Configurator:
    """Learns from every pass, through `statistics`, and from the cost of decoded tokens."""

    def __init__(self, shape: Any, interval_tokens: int = INTERVAL_TOKENS) -> None:
        self.statistics = _native.MoepicStatistics(shape.n_layer, shape.n_expert)
        self._shape = shape
        self._interval_tokens = interval_tokens
        self._n_configured = 0  # tokens until the last configuration
        self._cost = PassCost()
        self._wave_s = 0.0

    def observe(self, token: PassCost, wave_s: float) -> None:
        """Observe the cost of a decoded token. wave_s: seconds spent computing its experts."""
        self._cost = self._cost + token
        self._wave_s += wave_s

    @property
    def is_due(self) -> bool:
        """Whether enough tokens were observed since the last configuration."""
        n_token = self.statistics.n_token - self._n_configured
        return bool(n_token >= self._interval_tokens) and self._cost.n_token > 0

    def layout(self, budget_bytes: int) -> Any:
        """Return the backend._native.Layout from Algorithm 1. REQUIRES: observed tokens."""
        self._n_configured = self.statistics.n_token
        found = _native.moepic_configure(self.statistics, self._shape, self.times(), budget_bytes)
        self._cost, self._wave_s = PassCost(), 0.0
        return found.layout

    def times(self) -> Any:
        """Return the times since the last configuration as a backend._native.MoepicTimes.

        The fixed cost of a copy and the extra time of a cut layer are not measured separately. Both
        count as zero, so cutting looks cheaper than it is.
        """
        cost, shape = self._cost, self._shape
        n_expert = max(1, cost.n_token * sum(map(shape.used, range(shape.n_layer))))
        rest_s = max(0.0, cost.compute_s - self._wave_s)
        return _native.MoepicTimes(
            expert_us=1e6 * self._wave_s / n_expert,
            layer_us=1e6 * rest_s / max(1, cost.n_token * shape.n_layer),
            byte_us=1e6 * cost.link_busy_s / max(1, cost.bytes_read),
        )
