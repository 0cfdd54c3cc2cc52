"""The four large figures of the engine panel."""

from __future__ import annotations

import time
from collections import deque

from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app import units
from app.facts import Statistics

WINDOW_S = 2.0  # while answering, the bandwidth is that of the last two seconds
NOTHING = "\u2013"


class Figures(QWidget):
    """Speed, hits, late ones, and bandwidth read from the disk."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._reads: deque[tuple[float, int]] = deque()  # (when, bytes read so far)
        self._values: list[QLabel] = []
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setHorizontalSpacing(10)
        layout.setVerticalSpacing(0)
        for column, words in enumerate(("token/s", "hits", "late", "GB/s read")):
            value, unit = QLabel(NOTHING), QLabel(words)
            value.setProperty("role", "figure")
            unit.setProperty("role", "small")
            value.setAccessibleName(words)
            layout.addWidget(value, 0, column)
            layout.addWidget(unit, 1, column)
            layout.setColumnStretch(column, 1)
            self._values.append(value)

    @property
    def values(self) -> list[str]:
        """What is shown, in order."""
        return [label.text() for label in self._values]

    def clear(self) -> None:
        """Show that nothing is known."""
        self._reads.clear()
        for label in self._values:
            label.setText(NOTHING)

    def show_statistics(self, statistics: Statistics, is_live: bool, is_cached: bool) -> None:
        """Show an answer's figures, as it goes or as a whole."""
        speed, hits, late, read = NOTHING, NOTHING, NOTHING, NOTHING
        if statistics.n_token:
            speed = units.speed(statistics.tokens_per_s)
        if is_cached and statistics.requests:
            hits = units.percent(statistics.hits / statistics.requests)
            late = units.percent(statistics.late / statistics.requests)
            bandwidth = self._bandwidth(statistics, is_live)
            read = NOTHING if bandwidth is None else f"{bandwidth / 1e9:.2f}"
        for label, text in zip(self._values, (speed, hits, late, read), strict=True):
            label.setText(text)

    def _bandwidth(self, statistics: Statistics, is_live: bool) -> float | None:
        """Bytes per second: of the last moments, or of the whole answer once it is over."""
        if not is_live:
            self._reads.clear()
            return statistics.bytes_read / statistics.total_s if statistics.total_s > 0 else None
        now = time.monotonic()
        if self._reads and statistics.bytes_read < self._reads[-1][1]:
            self._reads.clear()  # another answer
        self._reads.append((now, statistics.bytes_read))
        while now - self._reads[0][0] > WINDOW_S and len(self._reads) > 2:
            self._reads.popleft()
        (then, before), (_, after) = self._reads[0], self._reads[-1]
        return (after - before) / (now - then) if now - then > 0.1 else None
