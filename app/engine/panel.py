"""The live panel beside the chat: what the engine does, in pictures, figures and words."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app import units
from app.engine import verdict
from app.engine.expert_map import ROW_HIGHEST, ExpertMap
from app.engine.figures import Figures
from app.engine.legend import Legend
from app.engine.memory_bar import Memory, MemoryBar
from app.engine.stall_bars import StallBars
from app.engine.token_strip import TokenStrip
from app.facts import CacheFacts, ModelFacts, Residency, Statistics
from backend.methods import METHODS

MEMORY_MS = 2000

_MAP_LEGEND = [
    ("resident", "resident"), ("arriving", "arriving"), ("hit", "hit"), ("late", "late"),
    ("stall", "miss"),
]  # fmt: skip
_STRIP_LEGEND = [("compute", "compute"), ("stall", "waiting for experts"), ("other", "unexplained")]


class EnginePanel(QFrame):
    """Shows a model, its cache and an answer; the window feeds it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("enginePanel")
        self.setAccessibleName("Engine")
        self._model: ModelFacts | None = None
        self._cache: CacheFacts | None = None
        self._statistics: Statistics | None = None
        self.figures = Figures()
        self.map = ExpertMap()
        self.stall = StallBars()
        self.strip = TokenStrip()
        self.memory = MemoryBar()
        self.words = QLabel()
        self.words.setWordWrap(True)
        self._method = _label("", "small")
        self._longest = _label("", "small")
        self._scale = _label("", "small")
        self._map_legend, self._strip_legend, self._memory_legend = Legend(), Legend(), Legend()
        self._map_legend.show_items(_MAP_LEGEND)
        self._strip_legend.show_items(_STRIP_LEGEND)
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setInterval(MEMORY_MS)
        self._timer.timeout.connect(self._refresh_memory)
        self.show_model(None, None)

    def show_model(self, model: ModelFacts | None, cache: CacheFacts | None) -> None:
        """Show a model and the cache that is in force; forget the answer of another model."""
        if model != self._model:
            self._statistics = None
            self.figures.clear()
            self.strip.show_tokens(())
            self.map.show_residency(None)
            self._scale.setText("")
            self.stall.show_stall((), {})
            self._longest.setText("")
        self._model, self._cache = model, cache
        has_experts = model is not None and model.is_moe
        self._map_head.setVisible(has_experts)
        self._map_row.setVisible(has_experts)
        self._strip_head.setVisible(model is not None)
        self.strip.setVisible(model is not None)
        if has_experts and model is not None:
            highest = max(len(model.moe_layers) * ROW_HIGHEST, 60)
            self._map_row.setMaximumHeight(highest)
        method = cache.method if cache is not None and cache.mode == "cached" else ""
        self._method.setText(method)
        self._method.setToolTip(METHODS[method].sentence if method in METHODS else "")
        self._refresh_memory()

    def show_statistics(self, statistics: Statistics, is_live: bool) -> None:
        """Show the figures of an answer, while it runs or at its end."""
        self._statistics = statistics
        is_cached = self._cache is not None and self._cache.mode == "cached"
        self.figures.show_statistics(statistics, is_live, is_cached)
        layers = self._model.moe_layers if self._model else ()
        self.stall.show_stall(layers, statistics.layer_stall_s)
        longest = self.stall.longest_s
        worst = f"stall \u2264 {units.short_time(longest)}" if longest > 0 else "stall"
        self._longest.setText(worst)
        self.strip.show_tokens(statistics.tokens)
        self._scale.setText(self.strip.scale_words)
        self._write_words()

    def show_residency(self, residency: Residency) -> None:
        """Show a snapshot of the cache."""
        self.map.show_residency(residency)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102, N802
        super().showEvent(event)
        self._refresh_memory()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102, N802
        super().hideEvent(event)
        self._timer.stop()

    def _refresh_memory(self) -> None:
        memory = Memory.measure(self._model, self._cache)
        self._free_bytes = memory.free
        self.memory.show_memory(memory)
        self._memory_legend.show_items(
            [
                (name, f"{word} {units.size(n_byte)}")
                for name, word, n_byte in self.memory.parts()
                if n_byte > 0
            ]
        )
        self._write_words()

    def _write_words(self) -> None:
        text = verdict.sentence(self._model, self._cache, self._statistics, self._free_bytes)
        self._words_box.setVisible(bool(text))
        if text != self.words.text():
            self.words.setText(text)

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 18, 20, 18)
        layout.setSpacing(8)
        layout.addLayout(_row(_label("Engine", "strong"), self._method, None))
        layout.addWidget(self.figures)
        layout.addSpacing(10)
        self._map_head, self._map_row = QWidget(), QWidget()
        head = QVBoxLayout(self._map_head)
        head.setContentsMargins(0, 0, 0, 0)
        head.addLayout(_row(_label("Layers \u00d7 experts", "strong"), None, self._longest))
        head.addWidget(self._map_legend)
        row = QHBoxLayout(self._map_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self.map, 1)
        row.addWidget(self.stall)
        layout.addWidget(self._map_head)
        layout.addWidget(self._map_row, 4)
        layout.addSpacing(10)
        self._strip_head = QWidget()
        head = QVBoxLayout(self._strip_head)
        head.setContentsMargins(0, 0, 0, 0)
        head.addLayout(_row(_label("Last tokens", "strong"), None, self._scale))
        head.addWidget(self._strip_legend)
        layout.addWidget(self._strip_head)
        layout.addWidget(self.strip, 1)
        layout.addSpacing(10)
        layout.addWidget(_label("Memory", "strong"))
        layout.addWidget(self.memory)
        layout.addWidget(self._memory_legend)
        layout.addSpacing(6)
        self._words_box = QFrame()
        self._words_box.setObjectName("verdict")
        inside = QVBoxLayout(self._words_box)
        inside.setContentsMargins(14, 10, 14, 10)
        inside.addWidget(self.words)
        layout.addWidget(self._words_box)
        layout.addStretch(0)


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    return label


def _row(*widgets: QWidget | None) -> QHBoxLayout:
    """Widgets side by side; None is a stretch."""
    row = QHBoxLayout()
    row.setSpacing(10)
    for widget in widgets:
        if widget is None:
            row.addStretch(1)
        else:
            row.addWidget(widget)
    return row
