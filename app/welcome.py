"""What is shown before anything was said."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from app import icons, models, theme, units
from app.facts import ModelFacts

SUGGESTIONS = (
    "Tell me a fairy tale about a tin soldier who learns to swim.",
    "Why does the sky turn red in the evening?",
    "Write a letter to a friend who lives by the sea.",
)


class _Mark(QWidget):
    """The application's mark."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(52, 52)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102, N802
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        icons.paint_mark(painter, QRectF(self.rect()), theme.colours())
        painter.end()


class Welcome(QWidget):
    """The model's name, a word about it, and something to start with.

    Signals:
        suggested: (text) the user picked a suggestion.
        open_file: the user wants to pick a model.
    """

    suggested = Signal(str)
    open_file = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._words = QLabel()
        self._words.setProperty("role", "muted")
        for label in (self._title, self._words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setWordWrap(True)
        self._suggestions = []
        layout = QVBoxLayout(self)
        layout.setContentsMargins(28, 0, 28, 0)
        layout.setSpacing(10)
        layout.addStretch(3)
        layout.addWidget(_Mark(), 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addSpacing(12)
        layout.addWidget(self._title)
        layout.addWidget(self._words)
        layout.addSpacing(20)
        for text in SUGGESTIONS:
            button = QPushButton(text)
            button.setProperty("role", "suggestion")
            button.setAccessibleName(f"Ask: {text}")
            button.clicked.connect(lambda _=False, text=text: self.suggested.emit(text))
            button.setMaximumWidth(480)
            self._suggestions.append(button)
            layout.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        self._open = QPushButton("Open a GGUF file\u2026")
        self._open.setAccessibleName("Open a model file")
        self._open.clicked.connect(self.open_file)
        layout.addWidget(self._open, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addStretch(4)

    def show_model(self, model: ModelFacts | None, is_loading: bool, is_embedded: bool) -> None:
        """Say which model would answer."""
        ready = model is not None
        for button in self._suggestions:
            button.setVisible(ready or is_loading)
            button.setEnabled(ready)
        self._open.setVisible(not ready and not is_loading)
        if model is not None:
            self._title.setText(_name(model, is_embedded))
            self._words.setText(_words(model, is_embedded))
        elif is_loading:
            self._title.setText("One moment")
            self._words.setText("The model is being read. You can write already.")
        else:
            self._title.setText("Which model?")
            hint = "" if models.embedded_model() else " The embedded model is not installed."
            self._words.setText(f"Drop a GGUF file on this window, or open one.{hint}")


def _name(model: ModelFacts, is_embedded: bool) -> str:
    return "Ask me something" if is_embedded else model.name or "Ready"


def _words(model: ModelFacts, is_embedded: bool) -> str:
    if is_embedded:
        return (
            f"This is the embedded model: {units.size(model.file_bytes)}, here to try things out. "
            "It makes up most of what it says.\nDrop a GGUF file on the window for a larger one."
        )
    parts = [units.size(model.file_bytes), model.architecture]
    if model.is_moe:
        parts.append(
            f"{len(model.moe_layers)} layers of {model.n_expert} experts, "
            f"{model.n_expert_used} used"
        )
    return " · ".join(part for part in parts if part)
