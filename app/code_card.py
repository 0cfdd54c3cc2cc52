"""A block of code with its language and a Copy button."""

from __future__ import annotations

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.text_block import TextBlock


class CodeCard(QFrame):
    """Shows code as it grows."""

    def __init__(self, language: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("codeCard")
        self._text = ""
        label = QLabel(language or "text")
        label.setProperty("role", "small")
        copy = QPushButton("Copy")
        copy.setProperty("role", "quiet")
        copy.setAccessibleName("Copy this code")
        copy.clicked.connect(self._copy)
        self._body = TextBlock()
        self._body.setAccessibleName("Code")
        head = QHBoxLayout()
        head.addWidget(label)
        head.addStretch(1)
        head.addWidget(copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 7, 8, 8)
        layout.setSpacing(5)
        layout.addLayout(head)
        layout.addWidget(self._body)

    def show_text(self, text: str) -> None:
        """Show the code so far; what was there already is not laid out again."""
        text = text.rstrip("\n")
        if text.startswith(self._text) and self._text:
            self._body.append_plain(text[len(self._text) :])
        else:
            self._body.show_plain(text)
        self._text = text

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text)
