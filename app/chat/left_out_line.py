"""The line above which the model no longer sees a chat."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget


class LeftOutLine(QWidget):
    """A sentence under a rule, between two messages."""

    def __init__(self) -> None:
        super().__init__()
        rule = QFrame()
        rule.setFrameShape(QFrame.Shape.HLine)
        words = QLabel(
            self.tr(
                "The model no longer sees what is above this line, except the beginning of the "
                "first question."
            )
        )
        words.setProperty("role", "small")
        words.setWordWrap(True)
        words.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 12)
        layout.setSpacing(6)
        layout.addWidget(rule)
        layout.addWidget(words)
