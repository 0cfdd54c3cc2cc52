"""A line of text that is cut with an ellipsis if it is too long."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QToolTip


class ElidedLabel(QLabel):
    """Plain text in one line; `text()` always returns the whole text.

    n_least: number of characters that the minimum width has room for. short: a text that is shown
    where the whole one has no room; "": none.
    """

    def __init__(
        self, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight, n_least: int = 6
    ) -> None:
        super().__init__()
        self._mode = mode
        self._n_least = n_least
        self.short = ""
        self.setTextFormat(Qt.TextFormat.PlainText)

    def minimumSizeHint(self) -> QSize:  # noqa: D102
        whole = super().minimumSizeHint()
        least = self.fontMetrics().averageCharWidth() * self._n_least
        return QSize(min(whole.width(), least), whole.height())

    def shown_text(self) -> str:
        """Return the text as shown, perhaps with an ellipsis."""
        metrics, width = self.fontMetrics(), self.contentsRect().width()
        is_short = self.short and metrics.horizontalAdvance(self.text()) > width
        return metrics.elidedText(self.short if is_short else self.text(), self._mode, width)

    def event(self, event: QEvent) -> bool:
        """Tell the whole text of one that is cut, where no tool tip says more."""
        is_cut = self.shown_text() != self.text()
        if event.type() == QEvent.Type.ToolTip and is_cut and not self.toolTip():
            assert isinstance(event, QHelpEvent)
            QToolTip.showText(event.globalPos(), self.text(), self)
            return True
        return bool(super().event(event))

    def width_of(self, text: str) -> int:
        """Return the width that a text needs, in pixels."""
        return (
            self.sizeHint().width()
            + self.fontMetrics().horizontalAdvance(text)
            - self.fontMetrics().horizontalAdvance(self.text())
        )

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
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
