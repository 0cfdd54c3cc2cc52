"""What the user said, in a bubble at the right."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.text_block import TextBlock

WIDEST = 0.82  # of the column
PADDING = (18, 9, 18, 11)  # a line's extra height lies above its text


class UserBubble(QWidget):
    """A message of the user, as wide as it needs to be."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Your message")
        self._text = TextBlock()
        self._text.setAccessibleName("Your message")
        self._text.show_plain(text)
        self._frame = QFrame()
        self._frame.setObjectName("bubble")
        inside = QVBoxLayout(self._frame)
        inside.setContentsMargins(*PADDING)
        inside.addWidget(self._text)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addStretch(1)
        layout.addWidget(self._frame)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        widest = int(self.width() * WIDEST)
        self._frame.setFixedWidth(min(self._text.ideal_width() + 2 * PADDING[0], widest))
