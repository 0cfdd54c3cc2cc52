"""The time line of the whole answer, to choose the token that the panel shows."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractSlider, QSizePolicy

from app.panel.bars import Bars
from app.widgets import theme
from backend.protocol.statistics import TokenCost

N_COLUMN = 200  # at most; beyond it, neighbours are merged in pairs
HEIGHT = 30


class Overview:
    """Columns with equal numbers of tokens, and the sums of their times."""

    def __init__(self) -> None:
        self.n_each = 1
        self.n_token = 0
        self.columns: list[list[float]] = []  # compute, stall, other, in seconds

    def add(self, tokens: Iterable[TokenCost]) -> None:
        """Append tokens."""
        for token in tokens:
            if self.n_token == len(self.columns) * self.n_each:
                if len(self.columns) == N_COLUMN:
                    pairs = zip(self.columns[::2], self.columns[1::2], strict=True)
                    self.columns = [[x + y for x, y in zip(a, b, strict=True)] for a, b in pairs]
                    self.n_each *= 2
                self.columns.append([0.0, 0.0, 0.0])
            sums = self.columns[-1]
            sums[0] += token.compute_s
            sums[1] += token.stall_s
            sums[2] += token.other_s
            self.n_token += 1

    def means(self) -> list[tuple[float, float, float]]:
        """Return each column's mean time of a token, by its parts."""
        n_last = self.n_token - (len(self.columns) - 1) * self.n_each
        counts = [self.n_each] * (len(self.columns) - 1) + [n_last]
        return [
            (compute / n, stall / n, other / n)
            for (compute, stall, other), n in zip(self.columns, counts, strict=True)
        ]


class TimeLine(QAbstractSlider):
    """A slider over the answer's tokens; its value is the index of a token.

    It is a slider for screen readers and the keyboard too: the arrows move by one token, Page Up
    and Page Down by ten.
    """

    def __init__(self) -> None:
        super().__init__()
        self._overview = Overview()
        self._shown = range(0)
        self._is_live = True
        self.setOrientation(Qt.Orientation.Horizontal)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(HEIGHT)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setPageStep(10)
        self.setRange(0, 0)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(self.tr("Token of the answer"))

    def clear(self) -> None:
        """Forget the answer."""
        self._overview = Overview()
        self._shown = range(0)
        self.setRange(0, 0)
        self.update()

    def add(self, tokens: Iterable[TokenCost]) -> None:
        """Append tokens. The value stays; the next show_place() shows them."""
        self._overview.add(tokens)
        self.setMaximum(max(self._overview.n_token - 1, 0))

    def show_place(self, shown: range, token: int | None) -> None:
        """Mark the tokens in the strip, and the chosen token; None: now."""
        self._shown, self._is_live = shown, token is None
        self.blockSignals(True)
        self.setValue(self.maximum() if token is None else token)
        self.blockSignals(False)
        self.update()

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(360, HEIGHT)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        self._follow(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        self._follow(event)

    def sliderChange(self, change: QAbstractSlider.SliderChange) -> None:  # noqa: D102
        if change is not QAbstractSlider.SliderChange.SliderRangeChange:
            super().sliderChange(change)

    def _follow(self, event: QMouseEvent) -> None:
        n_token = self._overview.n_token
        if n_token:
            token = int(event.position().x() * n_token / max(self.width(), 1))
            token = min(max(token, 0), n_token - 1)
            if token == self.value():
                self.valueChanged.emit(token)  # setValue() does not emit an equal value
            self.setValue(token)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.colour("surface"))
        bottom = self.height() - 1
        n_token = self._overview.n_token
        if n_token:
            painter.fillRect(0, bottom, self.width(), 1, theme.colour("border"))
            self._paint_columns(painter, bottom)
            if len(self._shown) < n_token:
                left, right = self._x(self._shown.start), self._x(self._shown.stop)
                painter.setPen(theme.colour("faint"))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(QRect(left, 0, max(right - left, 4) - 1, bottom))
            if not self._is_live:
                x = self._x(self.value())
                painter.fillRect(min(x, self.width() - 2), 0, 2, bottom, theme.colour("text"))
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.colour("focus"), 1))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _x(self, token: int) -> int:
        return token * self.width() // max(self._overview.n_token, 1)

    def _paint_columns(self, painter: QPainter, bottom: int) -> None:
        means = self._overview.means()
        # The slowest tenth may be cut off, so that one long stall does not flatten the others.
        totals = sorted(sum(mean) for mean in means)
        scale_s = max(totals[len(totals) * 9 // 10], 1e-9) * 1.1
        n_each, n_token = self._overview.n_each, self._overview.n_token
        bars = Bars(bottom, scale_s)
        for i, mean in enumerate(means):
            x = self._x(i * n_each)
            width = max(self._x(min((i + 1) * n_each, n_token)) - x, 1)
            bars.add(x, width, mean)
        bars.paint(painter)
