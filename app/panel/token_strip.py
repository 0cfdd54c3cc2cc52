"""Tokens as bars: computing, waiting for experts, and unexplained time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.panel.bars import Bars
from app.text import units
from app.widgets import theme
from backend.protocol.statistics import TokenCost

STEP = 6  # pixels from one bar to the next
N_SHOWN_MAX = 400
PAGE = 10  # tokens
OUTLIER = 4.0  # times the median


class TokenStrip(QWidget):
    """The newest token is at the right; the chosen one is marked.

    The slowest token fills the height. If it is an outlier, which would flatten the others, the
    scale ends below it and its bar has a bright end.

    Signals:
        picked: (int) index of a token that the user clicked.
    """

    picked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._tokens: Sequence[TokenCost] = ()
        self._first = 0
        self._chosen: int | None = None
        self._scale_s = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(44)
        self.setMaximumHeight(120)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Time of the last tokens"))

    @property
    def n_room(self) -> int:
        """Return the number of tokens that fit."""
        return min(max(self.width() // STEP, 1), N_SHOWN_MAX)

    @property
    def numbers(self) -> range:
        """Return the indices of the shown tokens."""
        return range(self._first, self._first + len(self._tokens))

    @property
    def slowest_s(self) -> float:
        """Return the time of the slowest shown token."""
        return max((token.total_s for token in self._tokens), default=0.0)

    @property
    def scale_s(self) -> float:
        """Return the time that fills the height."""
        return self._scale_s

    @property
    def scale_words(self) -> str:
        """Return the scale in words; empty without tokens."""
        if self.scale_s <= 0:
            return ""
        words = self.tr("0 to {time}").format(time=units.short_time(self.scale_s))
        if self.slowest_s > self.scale_s:
            slowest = self.tr("slowest {time}").format(time=units.short_time(self.slowest_s))
            words = f"{words}, {slowest}"
        return words

    def show_tokens(
        self, tokens: Sequence[TokenCost], first: int = 0, chosen: int | None = None
    ) -> None:
        """Show the last tokens that fit. first: index of the first of `tokens`."""
        n_cut = max(len(tokens) - self.n_room, 0)
        self._tokens = tokens[n_cut:]
        self._first, self._chosen = first + n_cut, chosen
        self._scale_s = 0.0
        text = self.tr("No tokens")
        if self._tokens:
            usual_s = statistics.median(token.total_s for token in self._tokens)
            self._scale_s = min(self.slowest_s, OUTLIER * usual_s)
            text = self.tr("The slowest of the last {n} took {time}").format(
                n=len(self._tokens), time=units.short_time(self.slowest_s)
            )
        self.setAccessibleDescription(text)
        self.update()

    def describe(self, number: int) -> str:
        """Describe a token."""
        token = self._tokens[number - self._first]
        return self.tr(
            "Token {number}: {total}; compute {compute}, waiting {waiting}, unexplained {other}"
        ).format(
            number=units.number(number + 1), total=units.short_time(token.total_s),
            compute=units.short_time(token.compute_s), waiting=units.short_time(token.stall_s),
            other=units.short_time(token.other_s),
        )  # fmt: skip

    def token_at(self, place: QPoint) -> int | None:
        """Return the index of the token under a point."""
        number = self._first + (place.x() - self._left()) // STEP
        return number if number in self.numbers else None

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(360, 56)

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            number = self.token_at(event.pos())
            if number is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.describe(number), self)
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        number = self.token_at(event.position().toPoint())
        if number is not None:
            self.picked.emit(number)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102
        last = self._first + len(self._tokens) - 1
        now = last if self._chosen is None else self._chosen
        chosen = {
            Qt.Key.Key_Left: now - 1, Qt.Key.Key_Right: now + 1, Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last, Qt.Key.Key_PageUp: now - PAGE, Qt.Key.Key_PageDown: now + PAGE,
        }.get(Qt.Key(event.key()))  # fmt: skip
        if chosen is None or not self._tokens:
            super().keyPressEvent(event)
        else:
            self.picked.emit(max(chosen, 0))

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.colour("surface"))
        bottom = self.height() - 1
        if self._tokens:
            painter.fillRect(0, bottom, self.width(), 1, theme.colour("border"))
        else:
            painter.setPen(theme.colour("faint"))
            centre = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.rect(), centre, self.tr("A bar for each token of an answer"))
        x = self._left()
        if self._scale_s > 0:
            bars = Bars(bottom, self._scale_s)
            for token in self._tokens:
                bars.add(x, STEP - 1, (token.compute_s, token.stall_s, token.other_s))
                x += STEP
            chosen = None if self._chosen is None else self._chosen - self._first
            place = QRect(self._left() + (chosen or 0) * STEP - 1, 0, STEP, bottom)
            if chosen is not None:
                painter.fillRect(place, theme.colour("hover"))
            bars.paint(painter)
            self._paint_outliers(painter)
            if chosen is not None:
                painter.setPen(theme.colour("text"))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(place)
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.colour("focus"), 1))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _paint_outliers(self, painter: QPainter) -> None:
        x = self._left()
        for token in self._tokens:
            if token.total_s > self._scale_s:
                painter.fillRect(x, 0, STEP - 1, 2, theme.colour("text"))
            x += STEP

    def _left(self) -> int:
        return self.width() - len(self._tokens) * STEP
