"""MoEpic's cache configurator at work: what each layer gets, and where its experts are cut.

MoEpic, section 3.4: statistics are gathered while running; every 5000 tokens, and only while
nothing is asked of the engine, Algorithm 1 turns them and the measured times into another layout.
"""

from __future__ import annotations

from typing import Any

from backend import _native
from backend.methods.cost import PassCost

INTERVAL_TOKENS = 5000
"""Tokens between two configurations (tau; MoEpic, section 4.1)."""


class Configurator:
    """Learns from every pass, through `statistics`, and from what decoded tokens cost."""

    def __init__(self, shape: Any, interval_tokens: int = INTERVAL_TOKENS) -> None:
        self.statistics = _native.MoepicStatistics(shape.n_layer, shape.n_expert)
        self._shape = shape
        self._interval_tokens = interval_tokens
        self._n_configured = 0  # tokens at the last configuration
        self._cost = PassCost()
        self._wave_s = 0.0

    def observe(self, token: PassCost, wave_s: float) -> None:
        """Hear what one decoded token cost; wave_s: computing its experts."""
        self._cost = self._cost + token
        self._wave_s += wave_s

    @property
    def is_due(self) -> bool:
        """Whether enough was heard since the last time."""
        heard = self.statistics.n_token - self._n_configured
        return bool(heard >= self._interval_tokens) and self._cost.n_token > 0

    def layout(self, budget_bytes: int) -> Any:
        """The backend._native.Layout that Algorithm 1 finds. REQUIRES: something was heard."""
        self._n_configured = self.statistics.n_token
        found = _native.moepic_configure(self.statistics, self._shape, self.times(), budget_bytes)
        self._cost, self._wave_s = PassCost(), 0.0
        return found.layout

    def times(self) -> Any:
        """What was measured since the last time, as backend._native.MoepicTimes.

        What a copy costs but for its bytes, and what a layer takes longer when it is cut, is not
        measured apart: both count as nothing, so that cutting looks cheaper than it is.
        """
        cost, shape = self._cost, self._shape
        n_expert = max(1, cost.n_token * shape.n_layer * shape.n_expert_used)
        rest_s = max(0.0, cost.compute_s - self._wave_s)
        return _native.MoepicTimes(
            expert_us=1e6 * self._wave_s / n_expert,
            layer_us=1e6 * rest_s / max(1, cost.n_token * shape.n_layer),
            byte_us=1e6 * cost.link_busy_s / max(1, cost.bytes_read),
        )
