"""The figures of the engine panel: four large ones, and four that explain them."""

from __future__ import annotations

import time
from collections import deque

from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.panel.value import Value
from app.text import units
from backend.protocol.statistics import PassFigures, Statistics

WINDOW_S = 2.0  # while answering, the bandwidth is that of the last two seconds
NOTHING = "\u2013"


class Figures(QWidget):
    """Speed, hits, late ones and bandwidth; misses, waiting, useful and wasted prefetches.

    Of an answer so far, or of one of its tokens.
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
        """What is shown, in order."""
        return [label.text() for label in self._values]

    @property
    def bandwidth_unit(self) -> str:
        """What stands under the bandwidth."""
        return self._units[3].text()

    @property
    def misses_words(self) -> str:
        """What is said of the misses."""
        return self._values[4].toolTip()

    def show_limit(self, link_gb_per_s: float | None) -> None:
        """Say how much this machine's drive was measured to read, beside what is read."""
        if link_gb_per_s is None:
            text = self.tr("GB/s read")
        else:
            limit = units.decimal(link_gb_per_s, 2 if link_gb_per_s < 10 else 1)
            text = self.tr("of {limit} GB/s").format(limit=limit)
        self._units[3].setText(text)
        self._units[3].setToolTip(
            self.tr("Read from the drive, and what it was measured to read at most on this machine")
        )

    def clear(self) -> None:
        """Show that nothing is known."""
        self._reads.clear()
        self._show([NOTHING] * 8)
        self._say_on_host(0, 0)

    def show_statistics(self, statistics: Statistics, is_live: bool, is_cached: bool) -> None:
        """Show an answer's figures, as it goes or as a whole."""
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
        self._say_where_from(statistics)
        self._say_on_host(statistics.on_host, statistics.late + statistics.misses)

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
        self._say_on_host(token.on_host, token.late + token.misses)

    def _say_where_from(self, statistics: Statistics) -> None:
        """Where RAM keeps experts for a device: what came from the file, and what from RAM."""
        text = ""
        if statistics.bytes_from_host:
            text = self.tr("{file} from the file, {ram} from memory").format(
                file=units.size(statistics.drive_bytes), ram=units.size(statistics.bytes_from_host)
            )
        self._values[3].setToolTip(text)

    def _say_on_host(self, on_host: int, lacked: int) -> None:
        """Where the processor computes what a device lacks: how much of it."""
        text = ""
        if on_host:
            text = self.tr("of {n} that the device lacked, the processor computed {share}").format(
                n=units.count(lacked, "expert"), share=units.percent(on_host / max(lacked, 1))
            )
        self._values[4].setToolTip(text)

    def _show(self, values: list[str]) -> None:
        for label, text in zip(self._values, values, strict=True):
            label.setText(text)

    def _bandwidth(self, statistics: Statistics, is_live: bool) -> float | None:
        """Bytes per second: of the last moments, or of the whole answer once it is over."""
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
