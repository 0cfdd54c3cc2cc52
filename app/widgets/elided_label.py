"""A line of text that is cut with an ellipsis if it is too long."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QWidget


class ElidedLabel(QLabel):
    """Plain text in one line; `text()` always returns the whole text.

    n_least: number of characters that the minimum width has room for.
    """

    def __init__(
        self,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        n_least: int = 6,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._mode = mode
        self._n_least = n_least
        self.setTextFormat(Qt.TextFormat.PlainText)

    def minimumSizeHint(self) -> QSize:  # noqa: D102, N802
        whole = super().minimumSizeHint()
        least = self.fontMetrics().averageCharWidth() * self._n_least
        return QSize(min(whole.width(), least), whole.height())

    def shown_text(self) -> str:
        """Return the text as shown, perhaps with an ellipsis."""
        return self.fontMetrics().elidedText(self.text(), self._mode, self.contentsRect().width())

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002, D102, N802
        painter = QPainter(self)
        self.style().drawItemText(
            painter,
            self.contentsRect(),
            self.alignment(),
            self.palette(),
            self.isEnabled(),
            self.shown_text(),
            self.foregroundRole(),
        )
