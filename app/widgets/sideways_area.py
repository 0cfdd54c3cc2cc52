"""A frame as tall as its content, which scrolls to the side only."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.widgets.parts import spaced


class SidewaysArea(QScrollArea):
    """Holds widgets one below the other in its `column`; `content` has their least width.

    Signals:
        widened: it has another width.
    """

    widened = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.content = QWidget()
        self.content.setObjectName("sidewaysContent")
        self.column = spaced(QVBoxLayout(self.content), 0)
        self.setWidget(self.content)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.content.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Be as tall as the content, and as the bar below it if it is wider than the frame."""
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            is_wide = self.content.minimumWidth() > self.viewport().width()
            bar = self.horizontalScrollBar().sizeHint().height() if is_wide else 0
            height = self.column.sizeHint().height() + bar
            if self.height() != height:
                self.setFixedHeight(height)
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.widened.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll to the side; up and down is the transcript's."""
        if event.angleDelta().x() and not event.angleDelta().y():
            super().wheelEvent(event)
        else:
            event.ignore()
