"""What the engine does between passes, for the simulator: it tunes and configures methods."""

from __future__ import annotations

from dataclasses import replace

from backend import _native
from backend.auto import Auto, Decision
from backend.auto_trial import Window
from backend.auto_work import WorkMeter
from backend.configurator import Configurator
from backend.methods import Method


class Adapter:
    """Hears every simulated pass. lines: what an adaptive method decided."""

    def __init__(
        self,
        method: Method,
        shape: _native.Shape,
        rate: float,
        configure_tokens: int,
        *,
        predicts: bool,
    ) -> None:
        self._names = [eviction.name for eviction in method.evictions]
        self._core: _native.Core | None = None
        self._auto: Auto | None = None
        self._configurator: Configurator | None = None
        if method.adaptive:
            self._auto = Auto(self._names, max_depth=method.depth if predicts else 0)
            self._work = WorkMeter(shape.n_layer, shape.n_expert, round(rate * shape.n_expert))
        if method.configured:
            self._configurator = Configurator(shape, configure_tokens)

    @property
    def statistics(self) -> _native.MoepicStatistics | None:
        """What a configured method's core shall fill."""
        return None if self._configurator is None else self._configurator.statistics

    @property
    def listens(self) -> bool:
        """Whether it wants to hear of passes."""
        return self._auto is not None or self._configurator is not None

    @property
    def lines(self) -> tuple[str, ...]:
        """What was decided, a sentence each."""
        return () if self._auto is None else tuple(self._auto.lines)

    def attend(self, core: _native.Core) -> None:
        """From now on this is the core to tune."""
        self._core = core
        if self._auto is not None:
            self._tune(Decision(self._auto.setting, ""))

    def hear(self, done: _native.SimulatedPass) -> None:
        """A pass is over."""
        times, counts = done.times, done.counts
        if done.phase != _native.Phase.decode or times.n_token != 1:
            return
        cost = Window(
            n_token=1,
            wall_s=times.time_us / 1e6,
            compute_s=times.compute_us / 1e6,
            stall_s=times.stall_us / 1e6,
            link_busy_s=times.link_busy_us / 1e6,
            bytes_read=counts.bytes_read,
            bytes_useful=counts.bytes_useful,
            bytes_wasted=counts.bytes_wasted,
            prefetches_useful=counts.prefetches_useful,
            prefetches_wasted=counts.prefetches_wasted,
            hits=counts.hits,
            late=counts.late,
            misses=counts.misses,
        )
        if self._configurator is not None:
            self._configurator.observe(cost, times.wave_us / 1e6)
        if self._auto is not None:
            assert self._core is not None
            cost = replace(cost, work=self._work.count(self._core.snapshot()))
            if (decision := self._auto.observe(cost)) is not None:
                self._tune(decision)

    def new_layout(self, budget_bytes: int) -> _native.Layout | None:
        """Between requests: how the cache is to be laid out anew, or None."""
        if self._configurator is None or not self._configurator.is_due:
            return None
        layout: _native.Layout = self._configurator.layout(budget_bytes)
        return layout

    def _tune(self, decision: Decision) -> None:
        assert self._core is not None
        setting = decision.setting
        self._core.tune(
            _native.Tuning(
                setting.prefetch,
                setting.depth,
                setting.min_precision,
                self._names.index(setting.eviction),
            )
        )
