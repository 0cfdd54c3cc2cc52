"""Connects the engine panel with the engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.panel.panel import EnginePanel
from app.session.engine import EngineSession
from app.state.engine_state import Notice, State
from backend.protocol.statistics import Batch
from backend.system.processor import OtherPrograms


class EnginePage(QObject):
    """The panel and its connections with the engine. link_gb_per_s: returns the drive's bandwidth.

    A hidden panel costs nothing: the worker then sends neither maps nor moments.

    Signals:
        notice: (Notice) to show in the window.
    """

    notice = Signal(object)

    def __init__(
        self,
        engine: EngineSession,
        link_gb_per_s: Callable[[], float | None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._link_gb_per_s = link_gb_per_s
        self.panel = EnginePanel()
        link = engine.link
        self.panel.shown.connect(self._shown)
        self.panel.trouble.connect(lambda text: self.notice.emit(Notice(text)))
        self.panel.rate_wanted.connect(self._use)
        self._others = OtherPrograms()
        self.panel.refreshed.connect(self._measure_others)
        engine.model_changed.connect(self._show_model)
        engine.state_changed.connect(self._state_changed)
        link.residency.connect(self.panel.show_residency)
        link.prefill.connect(self.panel.show_prompt)
        link.stats.connect(lambda statistics: self.panel.show_statistics(statistics, True))
        link.done.connect(lambda _, statistics: self.panel.show_statistics(statistics, False))
        link.moments.connect(self._add_moments)
        link.advice.connect(self.panel.show_advice)
        self._show_model()

    def _shown(self, is_shown: bool) -> None:
        self._engine.link.watch("all" if is_shown else "nothing")
        if is_shown:
            self.panel.show_limit(self._link_gb_per_s())

    def _show_model(self) -> None:
        self.panel.show_model(self._engine.model, self._engine.cache)
        self.panel.show_mode(self._engine.asked.automatic)

    def _measure_others(self) -> None:
        if self._engine.state is State.ANSWERING:
            pids = (os.getpid(), self._engine.link.pid)
            self.panel.show_others(self._others.share(pids))

    def _state_changed(self, state: State) -> None:
        if state is State.IDLE:
            self.panel.show_limit(self._link_gb_per_s())

    def _add_moments(self, batch: Batch) -> None:
        # A batch that does not match the model is ignored.
        with contextlib.suppress(ValueError):
            self.panel.add_moments(batch)

    def _use(self, n_slot: int) -> None:
        """Set the cache size that the simulator recommends, as a manual setting."""
        engine = self._engine
        if engine.slots is not None and engine.cache is not None:
            rate = engine.slots.rate(n_slot)
            method = engine.cache.method
            choice = replace(engine.asked, automatic=False, cache_rate=rate, method=method)
            engine.choose(choice)
