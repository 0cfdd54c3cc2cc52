"""The field that replaces a message while the user changes it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.widgets.fields import TextField, in_paragraphs, say_full, takes_escape, whole_paragraphs
from app.widgets.parts import filled, spaced
from app.widgets.quiet_button import QuietButton

N_LINE_MAX = 12
MESSAGE_CHARS = 1_000_000
"""Longest message that can be changed: its layout takes 0.1 s here."""


class _Field(TextField):
    """Enter, or Ctrl+Enter where Enter begins a line, ends it; Escape cancels.

    Signals:
        done: (bool) whether to take the text.
    """

    done = Signal(bool)

    def __init__(self, by_enter: bool) -> None:
        super().__init__(MESSAGE_CHARS)
        self._by_enter = by_enter
        self.setObjectName("input")
        self.setAcceptDrops(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)

    def event(self, event: QEvent) -> bool:
        return takes_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers()
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and (
            bool(modifiers & Qt.KeyboardModifier.ControlModifier)
            or (self._by_enter and not modifiers & Qt.KeyboardModifier.ShiftModifier)
        ):
            self.done.emit(True)
        elif event.key() == Qt.Key.Key_Escape:
            self.done.emit(False)
        else:
            super().keyPressEvent(event)


class MessageEditor(QWidget):
    """The field with its two buttons. `take`: text and name of the button that takes the text.

    A paragraph that is too long for a field is shown in pieces, and comes back whole.

    Signals:
        taken: (str) the new text.
        ended: the user has taken the text, or has cancelled.
    """

    taken = Signal(str)
    ended = Signal()

    def __init__(self, text: str, name: str, take: tuple[str, str], by_enter: bool) -> None:
        super().__init__()
        self.field = _Field(by_enter)
        self.field.setAccessibleName(name)
        self.field.setPlainText(in_paragraphs(text))
        self.field.moveCursor(self.field.textCursor().MoveOperation.End)
        self.field.done.connect(self._end)
        self.field.refused.connect(lambda _: say_full(self.field))
        self.field.textChanged.connect(self._fit)
        self.setFocusProxy(self.field)
        leave = self.tr("Cancel"), self.tr("Leave it as it is")
        buttons = (
            QuietButton(*take, lambda: self._end(True)),
            QuietButton(*leave, lambda: self._end(False)),
        )
        row = filled(spaced(QHBoxLayout(), 4), 1, *buttons)
        filled(spaced(QVBoxLayout(self), 2), self.field, row)
        self._fit()

    def _end(self, is_taken: bool) -> None:
        self.field.end_composition()
        text = whole_paragraphs(self.field.toPlainText()).strip()
        self.ended.emit()
        if is_taken:
            self.taken.emit(text)

    def _fit(self) -> None:
        n_line = min(max(self.field.blockCount(), 2), N_LINE_MAX)
        self.field.setFixedHeight(self.field.fontMetrics().lineSpacing() * n_line + 14)


def can_change(text: str) -> bool:
    """Return whether a message is short enough to be changed."""
    return len(text) <= MESSAGE_CHARS
