"""The view of an empty conversation."""

from __future__ import annotations

import textwrap

from PySide6.QtCore import QT_TRANSLATE_NOOP, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.session import known_models as models
from app.text import units
from app.text.language import translate
from app.widgets import icons, theme
from app.widgets.parts import filled, spaced, text_label
from backend.protocol.status import ModelFacts

SUGGESTIONS = (
    QT_TRANSLATE_NOOP("welcome", "Tell me a fairy tale about a tin soldier who learns to swim."),
    QT_TRANSLATE_NOOP("welcome", "Why does the sky turn red in the evening?"),
    QT_TRANSLATE_NOOP("welcome", "Write a letter to a friend who lives by the sea."),
)
FOR_EMBEDDED = (
    "Tell me a short story about a fox and a crow.",
    "Why do leaves fall in autumn?",
    "Anna has a white dog called Max. What is the name of the dog?",
)
"""Questions that the embedded model answers well; it knows only English. A test asks them."""


SIDE = 28  # pixels at the left and right
SUGGESTION_WIDTH = 520  # pixels with the usual text, at most


class _Mark(QWidget):
    """The application's mark."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(52, 52)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        icons.paint_mark(painter, QRectF(self.rect()), theme.colours())
        painter.end()


class _Suggestion(QPushButton):
    """A question to ask, in as many lines as it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "suggestion")
        self.question = ""

    def fit(self, room: int) -> None:
        """Break the question into lines that are at most `room` pixels wide."""
        most, words = min(room, theme.wide(SUGGESTION_WIDTH)), self.question
        for n_line in range(1, 7):
            lines = textwrap.wrap(words, len(words) // n_line + 1 + 4 * (n_line > 1)) or [words]
            self.setText("\n".join(lines))
            if self.sizeHint().width() <= most:
                break


class Welcome(QWidget):
    """The model's name, a description, and suggestions.

    Signals:
        suggested: (str) the suggestion that the user picked.
        open_file: the user wants to pick a model.
        get_model: the user wants to download a model.
    """

    suggested = Signal(str)
    get_model = Signal()
    open_file = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._title = text_label("title")
        self._words = text_label("muted")
        for label in (self._title, self._words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setWordWrap(True)
        self._suggestions: list[_Suggestion] = []
        self._shown: tuple[ModelFacts | None, bool, bool] | None = None
        centre = Qt.AlignmentFlag.AlignHCenter
        layout = filled(spaced(QVBoxLayout(self), 10, SIDE, 0, SIDE), 3, (_Mark(), centre))
        layout.addSpacing(12)
        filled(layout, self._title, self._words)
        layout.addSpacing(20)
        for _ in SUGGESTIONS:
            button = _Suggestion()
            button.clicked.connect(lambda _=False, one=button: self.suggested.emit(one.question))
            self._suggestions.append(button)
            layout.addWidget(button, 0, centre)
        layout.addSpacing(6)
        self._get = QPushButton(self.tr("Get a larger model\u2026"))
        self._get.setProperty("role", "primary")
        self._get.clicked.connect(self.get_model)
        self._open = QPushButton(self.tr("Open a GGUF file\u2026"))
        self._open.setAccessibleName(self.tr("Open a model file"))
        self._open.clicked.connect(self.open_file)
        filled(layout, (self._get, centre), (self._open, centre), 4)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Break the questions into lines for another width."""
        super().resizeEvent(event)
        for button in self._suggestions:
            button.fit(event.size().width() - 2 * SIDE)
        if (layout := self.layout()) is not None:
            layout.activate()  # within a resize Qt asks for no other layout

    def minimumSizeHint(self) -> QSize:
        """Let it become narrower than the present lines."""
        return QSize(2 * SIDE, super().minimumSizeHint().height())

    def show_model(self, model: ModelFacts | None, is_loading: bool, is_embedded: bool) -> None:
        """Show the model that would answer."""
        if self._shown == (model, is_loading, is_embedded):
            return
        self._shown = model, is_loading, is_embedded
        ready = model is not None
        for index, button in enumerate(self._suggestions):
            text = (
                FOR_EMBEDDED[index]
                if is_embedded
                else translate("welcome", str(SUGGESTIONS[index]))
            )
            button.question = text
            button.fit(self.width() - 2 * SIDE)
            button.setAccessibleName(self.tr("Ask: {question}").format(question=text))
            button.setVisible(ready or is_loading)
            button.setEnabled(ready)
        self._open.setVisible(not ready and not is_loading)
        self._get.setVisible(not is_loading and (is_embedded or not ready))
        if model is not None:
            self._title.setText(_name(model, is_embedded))
            self._words.setText(_words(model, is_embedded))
        elif is_loading:
            self._title.setText(self.tr("One moment"))
            self._words.setText(self.tr("The model is being read. You can write already."))
        else:
            self._title.setText(self.tr("Which model?"))
            text = self.tr("Drop a GGUF file on this window, or open one.")
            if not models.embedded_model():
                text += " " + self.tr("The embedded model is not installed.")
            self._words.setText(text)


def _name(model: ModelFacts, is_embedded: bool) -> str:
    if is_embedded:
        return translate("welcome", "Ask me something")
    return model.name or translate("welcome", "Ready")


def _words(model: ModelFacts, is_embedded: bool) -> str:
    if is_embedded:
        return translate(
            "welcome",
            "This is the embedded model: {size}, here to try things out. It makes up most of what "
            "it says.\nFor real use, get a larger model.",
        ).format(size=units.size(model.file_bytes))
    parts = [units.size(model.file_bytes), model.architecture]
    if model.is_moe:
        parts.append(
            translate("welcome", "{layers} layers of {experts} experts, {used} used").format(
                layers=len(model.moe_layers), experts=model.n_expert, used=model.n_expert_used
            )
        )
    return " · ".join(part for part in parts if part)
