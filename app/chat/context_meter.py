"""The used share of the context: a short bar, and the count in words."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.text import units
from app.widgets import theme

WARN = 0.85  # share of the context from which the bar warns


class ContextMeter(QWidget):
    """A bar of fixed size; hidden while the use is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self._share = 0.0
        self.setFixedSize(QSize(56, 6))
        self.hide()

    def show_use(self, n_used: int, n_context: int) -> None:
        """Show the used tokens; 0 in either argument hides the bar."""
        self.setVisible(n_used > 0 and n_context > 0)
        self._share = min(n_used / n_context, 1.0) if n_context > 0 else 0.0
        text = self.tr("{used} of {all} tokens of context").format(
            used=units.number(n_used), all=units.number(n_context)
        )
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        place = QRectF(self.rect())
        painter.setBrush(theme.colour("border"))
        painter.drawRoundedRect(place, 3, 3)
        painter.setBrush(theme.colour("warning" if self._share >= WARN else "accent"))
        place.setWidth(max(place.width() * self._share, 6.0))
        painter.drawRoundedRect(place, 3, 3)
        painter.end()
