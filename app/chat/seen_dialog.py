"""Shows the rendered prompt of an answer and its raw text, as the model read and wrote them."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QLabel,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.widgets.fields import in_paragraphs
from app.widgets.on_screen import OnScreen
from app.widgets.parts import filled, report_field, spaced
from app.widgets.quiet_button import head_of_card


class _Part(QWidget):
    """A heading, a button that copies, and a text in a fixed-width font."""

    def __init__(self, heading: str, copy_name: str) -> None:
        super().__init__()
        self._text = ""
        self.field = report_field(heading)
        self.copy = QPushButton(self.tr("Copy"))
        self.copy.setProperty("role", "quiet")
        self.copy.setAccessibleName(copy_name)
        self.copy.setAutoDefault(False)
        self.copy.clicked.connect(self._copy)
        head = head_of_card(heading, self.copy, role="strong")
        filled(spaced(QVBoxLayout(self), 6), head, (self.field, 1))

    def show_text(self, text: str, can_copy: bool = True) -> None:
        """Show a text; without `can_copy` it is a sentence about a missing text."""
        self._text = text
        self.field.setPlainText(in_paragraphs(text))
        self.copy.setEnabled(can_copy and bool(text))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text)


class SeenDialog(QDialog):
    """Shows the raw text at once, and the prompt when the engine has rendered it."""

    def __init__(self, raw: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        OnScreen(self)
        self.setWindowTitle(self.tr("What the model saw"))
        self.resize(760, 620)
        about = QLabel(
            self.tr(
                "The prompt is rendered again, with the present model and the present settings of "
                "this chat."
            )
        )
        about.setProperty("role", "muted")
        about.setWordWrap(True)
        self.prompt = _Part(self.tr("Prompt"), self.tr("Copy the prompt"))
        self.answer = _Part(
            self.tr("Answer, as the model wrote it"), self.tr("Copy the raw answer")
        )
        self.answer.show_text(raw)
        self.prompt.show_text(self.tr("Waiting for the engine\u2026"), can_copy=False)
        parts = QSplitter(Qt.Orientation.Vertical)
        parts.setChildrenCollapsible(False)
        parts.addWidget(self.prompt)
        parts.addWidget(self.answer)
        parts.setStretchFactor(0, 3)
        parts.setStretchFactor(1, 2)
        close = QPushButton(self.tr("Close"))
        close.setAccessibleName(close.text())
        close.clicked.connect(self.reject)
        layout = spaced(QVBoxLayout(self), 10, 20, 16, 20, 16)
        filled(layout, about, (parts, 1), (close, Qt.AlignmentFlag.AlignRight))

    def show_prompt(self, prompt: str, why_not: str) -> None:
        """Show the prompt, or a sentence that says why there is none."""
        self.prompt.show_text(why_not or prompt, can_copy=not why_not)
