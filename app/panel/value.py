"""Text of the panel that changes several times a second."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from app.widgets import theme

# role -> pixels more than ordinary text, weight, colour; as in the style sheet for labels.
_LOOKS = {
    "figure": (11, QFont.Weight.DemiBold, "text"),
    "strong": (0, QFont.Weight.DemiBold, "text"),
    "small": (-1, QFont.Weight.Normal, "muted"),
}


class Value(QWidget):
    """One line of text. Unlike a QLabel, a new text does not lay out its surroundings again.

    It takes the available width, and is opaque.
    """

    def __init__(self, role: str, align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft) -> None:
        super().__init__()
        self._role, self._align, self._text = role, align, ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    def text(self) -> str:
        """Return the text."""
        return self._text

    def setText(self, text: str) -> None:
        """Change the text."""
        if text != self._text:
            self._text = text
            self.setAccessibleDescription(text)
            self.update()

    def width_of(self, text: str) -> int:
        """Return the width of a text, in pixels."""
        return QFontMetrics(self._font()).horizontalAdvance(text)

    def sizeHint(self) -> QSize:  # noqa: D102
        return QSize(20, QFontMetrics(self._font()).height())

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        painter = QPainter(self)
        painter.fillRect(event.rect(), theme.colour("surface"))
        painter.setFont(self._font())
        painter.setPen(theme.colour(_LOOKS[self._role][2]))
        painter.drawText(self.rect(), self._align | Qt.AlignmentFlag.AlignVCenter, self._text)
        painter.end()

    def _font(self) -> QFont:
        more, weight, _ = _LOOKS[self._role]
        font = QFont(QApplication.font())
        font.setPixelSize(theme.pixels() + more)
        font.setWeight(weight)
        return font
