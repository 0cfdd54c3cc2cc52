"""The figures of the engine panel, each with a tool tip that explains it."""

from __future__ import annotations

import time
from collections import deque

from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.panel.value import Value
from app.text import units
from backend.protocol.statistics import PassFigures, Statistics

WINDOW_S = 2.0  # the bandwidth during an answer is that of the last two seconds
NOTHING = "\u2013"
N_COLUMN = 4
_GAP = 10  # between columns, in pixels


class Figures(QWidget):
    """Speed, hits, late experts and bandwidth; misses, waiting, useful and wasted prefetches.

    They belong to the answer so far, or to one of its tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reads: deque[tuple[float, int]] = deque()  # (when, bytes read so far)
        self._values: list[Value] = []
        self.captions: list[QLabel] = []
        self._n_column = 0
        self.notes = [""] * len(self._texts())  # behind the explanations, a remark on this answer
        layout = self._layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setHorizontalSpacing(_GAP)
        layout.setVerticalSpacing(0)
        for index, (name, explanation) in enumerate(self._texts()):
            value, unit = Value("figure" if index < 4 else "strong"), QLabel(name)
            value.setText(NOTHING)
            unit.setProperty("role", "small")
            value.setAccessibleName(name)
            for widget in (value, unit):
                widget.setToolTip(explanation)
            self._values.append(value)
            self.captions.append(unit)
        self._arrange(N_COLUMN)
        self.show_limit(None)

    def _texts(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the meaning of each figure, whether more is better, and why."""
        return (
            (self.tr("token/s"), self.tr(
                "How fast the answer is written. A token is about three quarters of a word.\n"
                "More is better. A larger cache, a faster drive and a smaller model raise it.")),
            (self.tr("hits"), self.tr(
                "Experts that were in memory when they were needed.\n"
                "More is better. A larger cache raises it.")),
            (self.tr("late"), self.tr(
                "Experts that were still being read when they were needed: a part of the wait "
                "was saved.\n"
                "Less is better, but late is better than a miss. A faster drive lowers it.")),
            (self.tr("GB/s read"), self.tr(
                "Present read bandwidth of the drive, and the highest measured on this machine.\n"
                "Close to the highest means that the drive is the limit.")),
            (self.tr("misses"), self.tr(
                "Experts that were not in memory when they were needed. The answer waits until "
                "they are read.\n"
                "Less is better. A larger cache or a better method lowers it.")),
            (self.tr("waiting"), self.tr(
                "Share of the time in which the answer waited for experts.\n"
                "Less is better. A larger cache and a faster drive lower it.")),
            (self.tr("prefetches useful"), self.tr(
                "Experts that were read before they were needed, and then were needed.\n"
                "More is better: each one saved a wait.")),
            (self.tr("prefetches wasted"), self.tr(
                "Experts that were read ahead but evicted before anything needed them.\n"
                "Less is better: each one kept the drive busy for nothing.")),
        )  # fmt: skip

    def _arrange(self, n_column: int) -> None:
        """Put the figures into rows of `n_column`."""
        if n_column == self._n_column:
            return
        self._n_column = n_column
        for index, (value, unit) in enumerate(zip(self._values, self.captions, strict=True)):
            row, column = divmod(index, n_column)
            self._layout.addWidget(value, 3 * row, column)
            self._layout.addWidget(unit, 3 * row + 1, column)
            self._layout.setRowMinimumHeight(3 * row + 2, 6)
        for column in range(N_COLUMN):
            self._layout.setColumnStretch(column, int(column < n_column))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        widest = max(
            max(value.width_of("100\u00a0%") for value in self._values[:4]),
            max(QFontMetrics(unit.font()).horizontalAdvance(unit.text()) for unit in self.captions),
        )
        fits = (self.width() + _GAP) // (widest + _GAP)
        self._arrange(N_COLUMN if fits >= N_COLUMN else 2)

    @property
    def values(self) -> list[str]:
        """Return the shown figures, in order."""
        return [label.text() for label in self._values]

    def show_limit(self, link_gb_per_s: float | None) -> None:
        """Show the measured bandwidth of the drive beside the present one."""
        if link_gb_per_s is None:
            text = self.tr("GB/s read")
        else:
            limit = units.decimal(link_gb_per_s, 2 if link_gb_per_s < 10 else 1)
            text = self.tr("of {limit} GB/s").format(limit=limit)
        self.captions[3].setText(text)

    def clear(self) -> None:
        """Clear the figures."""
        self._reads.clear()
        self._show([NOTHING] * 8)
        self._note(0, "")
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
        self._show_drafts(statistics)
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

    def _show_drafts(self, statistics: Statistics) -> None:
        """Show how many of the guessed tokens were right."""
        text = ""
        if statistics.n_drafted:
            text = self.tr("drafts: {right} of {n} were right").format(
                right=units.number(statistics.n_accepted),
                n=units.count(statistics.n_drafted, "token"),
            )
        self._note(0, text)

    def _show_sources(self, statistics: Statistics) -> None:
        """Show how much came from the file, and how much from experts kept in RAM."""
        text = ""
        if statistics.bytes_from_host:
            text = self.tr("{file} from the file, {ram} from memory").format(
                file=units.size(statistics.drive_bytes), ram=units.size(statistics.bytes_from_host)
            )
        self._note(3, text)

    def _show_on_host(self, on_host: int, lacked: int) -> None:
        """Show the share of missing experts that the processor computed."""
        text = ""
        if on_host:
            text = self.tr("the processor computed {share} of {n} that the device lacked").format(
                n=units.count(lacked, "expert"), share=units.percent(on_host / max(lacked, 1))
            )
        self._note(4, text)

    def _note(self, index: int, note: str) -> None:
        """Put a note below the explanation of a figure."""
        if note != self.notes[index]:
            self.notes[index] = note
            explanation = self._texts()[index][1]
            self._values[index].setToolTip(f"{explanation}\n{note}" if note else explanation)

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
