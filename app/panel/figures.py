"""The figures of the engine panel: four large ones, and four that explain them."""

from __future__ import annotations

import time
from collections import deque

from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.panel.value import Value
from app.text import units
from backend.protocol.statistics import PassFigures, Statistics

WINDOW_S = 2.0  # the bandwidth during an answer is that of the last two seconds
NOTHING = "\u2013"


class Figures(QWidget):
    """Speed, hits, late experts and bandwidth; misses, waiting, useful and wasted prefetches.

    They belong to the answer so far, or to one of its tokens.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._reads: deque[tuple[float, int]] = deque()  # (when, bytes read so far)
        self._values: list[Value] = []
        self._units: list[QLabel] = []
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setHorizontalSpacing(10)
        layout.setVerticalSpacing(0)
        names = (
            self.tr("token/s"), self.tr("hits"), self.tr("late"), self.tr("GB/s read"),
            self.tr("misses"), self.tr("waiting"), self.tr("prefetches useful"),
            self.tr("prefetches wasted"),
        )  # fmt: skip
        for index, name in enumerate(names):
            row, column = 2 * (index // 4) + index // 4, index % 4
            value, unit = Value("figure" if index < 4 else "strong"), QLabel(name)
            value.setText(NOTHING)
            unit.setProperty("role", "small")
            value.setAccessibleName(name)
            layout.addWidget(value, row, column)
            layout.addWidget(unit, row + 1, column)
            layout.setColumnStretch(column, 1)
            self._values.append(value)
            self._units.append(unit)
        layout.setRowMinimumHeight(2, 6)
        self.show_limit(None)

    @property
    def values(self) -> list[str]:
        """Return the shown figures, in order."""
        return [label.text() for label in self._values]

    @property
    def bandwidth_unit(self) -> str:
        """Return the unit of the bandwidth."""
        return self._units[3].text()

    @property
    def misses_words(self) -> str:
        """Return the tool tip of the misses."""
        return self._values[4].toolTip()

    def show_limit(self, link_gb_per_s: float | None) -> None:
        """Show the measured bandwidth of the drive beside the present one."""
        if link_gb_per_s is None:
            text = self.tr("GB/s read")
        else:
            limit = units.decimal(link_gb_per_s, 2 if link_gb_per_s < 10 else 1)
            text = self.tr("of {limit} GB/s").format(limit=limit)
        self._units[3].setText(text)
        self._units[3].setToolTip(
            self.tr("Present read bandwidth of the drive, and the highest measured on this machine")
        )

    def clear(self) -> None:
        """Clear the figures."""
        self._reads.clear()
        self._show([NOTHING] * 8)
        self._show_on_host(0, 0)

    def show_statistics(self, statistics: Statistics, is_live: bool, is_cached: bool) -> None:
        """Show the figures of an answer, running or ended."""
        values = [NOTHING] * 8
        if statistics.n_token:
            values[0] = units.speed(statistics.tokens_per_s)
        if is_cached and statistics.requests:
            bandwidth = self._bandwidth(statistics, is_live)
            values[1] = units.percent(statistics.hits / statistics.requests)
            values[2] = units.percent(statistics.late / statistics.requests)
            values[3] = NOTHING if bandwidth is None else units.decimal(bandwidth / 1e9, 2)
            values[4] = units.percent(statistics.misses / statistics.requests)
            values[5] = units.percent(statistics.stall_share)
            values[6] = units.number(statistics.prefetches_useful)
            values[7] = units.number(statistics.prefetches_wasted)
        self._show(values)
        self._show_sources(statistics)
        self._show_on_host(statistics.on_host, statistics.late + statistics.misses)

    def show_token(self, token: PassFigures) -> None:
        """Show the figures of one token."""
        values = [NOTHING] * 8
        if token.wall_us:
            values[0] = units.speed(1e6 / token.wall_us)
        if token.requests:
            values[1] = units.percent(token.hits / token.requests)
            values[2] = units.percent(token.late / token.requests)
            values[3] = units.decimal(token.bytes_read / token.wall_us / 1e3, 2)
            values[4] = units.percent(token.misses / token.requests)
            values[5] = units.percent(token.stall_us / token.wall_us)
            values[6] = units.number(token.prefetches_useful)
            values[7] = units.number(token.prefetches_wasted)
        self._show(values)
        self._show_on_host(token.on_host, token.late + token.misses)

    def _show_sources(self, statistics: Statistics) -> None:
        """Show how much came from the file, and how much from experts kept in RAM."""
        text = ""
        if statistics.bytes_from_host:
            text = self.tr("{file} from the file, {ram} from memory").format(
                file=units.size(statistics.drive_bytes), ram=units.size(statistics.bytes_from_host)
            )
        self._values[3].setToolTip(text)

    def _show_on_host(self, on_host: int, lacked: int) -> None:
        """Show the share of missing experts that the processor computed."""
        text = ""
        if on_host:
            text = self.tr("the processor computed {share} of {n} that the device lacked").format(
                n=units.count(lacked, "expert"), share=units.percent(on_host / max(lacked, 1))
            )
        self._values[4].setToolTip(text)

    def _show(self, values: list[str]) -> None:
        for label, text in zip(self._values, values, strict=True):
            label.setText(text)

    def _bandwidth(self, statistics: Statistics, is_live: bool) -> float | None:
        """Return the bytes per second of the last WINDOW_S, or of the whole answer at its end."""
        if not is_live:
            self._reads.clear()
            return statistics.drive_bytes / statistics.total_s if statistics.total_s > 0 else None
        now = time.monotonic()
        if self._reads and statistics.drive_bytes < self._reads[-1][1]:
            self._reads.clear()  # another answer
        self._reads.append((now, statistics.drive_bytes))
        while now - self._reads[0][0] > WINDOW_S and len(self._reads) > 2:
            self._reads.popleft()
        (then, before), (_, after) = self._reads[0], self._reads[-1]
        return (after - before) / (now - then) if now - then > 0.1 else None
