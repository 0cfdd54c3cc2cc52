"""The line above which the model no longer sees a chat."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel


class LeftOutLine(QLabel):
    """A sentence under a rule, between two messages."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("leftOut")
        self.setProperty("role", "small")
        self.setWordWrap(True)
        self.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.setText(
            self.tr(
                "The model no longer sees what is above this line, except the beginning of the "
                "first question."
            )
        )
