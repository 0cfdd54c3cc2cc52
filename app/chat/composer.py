"""The composer: Enter sends, Shift+Enter begins a line, Send becomes Stop."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QShowEvent, QTextOption
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.context_meter import ContextMeter
from app.widgets.icon_button import IconButton

N_LINE_MAX = 9


class _Input(QPlainTextEdit):
    """A text field as tall as its text, up to N_LINE_MAX lines.

    Signals:
        submitted: Enter without Shift.
        focused: (bool) the field has got or lost the focus.
    """

    submitted = Signal()
    focused = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("input")
        self.setAccessibleName(self.tr("Message"))
        self.setPlaceholderText(self.tr("Ask something\u2026"))
        self.setAcceptDrops(False)  # the window accepts drops
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102, N802
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        n_line = max(round(self.document().size().height()), 1)
        shown = min(n_line, N_LINE_MAX)
        many = n_line > N_LINE_MAX
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if many else policy.ScrollBarAlwaysOff
        )
        self.setFixedHeight(self.fontMetrics().lineSpacing() * shown + 8)

    def minimumSizeHint(self) -> QSize:  # noqa: D102, N802
        return QSize(80, self.fontMetrics().lineSpacing() + 8)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102, N802
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.submitted.emit()
            event.accept()
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()  # the window stops the answer
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: D102, N802
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: D102, N802
        super().focusOutEvent(event)
        self.focused.emit(False)


class Composer(QFrame):
    """The text field, a line of hints, and the button.

    Signals:
        send: (str) text to send; call clear() once it is accepted.
        stop: the user wants the answer stopped.
    """

    send = Signal(str)
    stop = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._answering = False
        self._can_send = False
        self.input = _Input()
        self.button = IconButton("send", self.tr("Send"), fill="accent")
        self._hint = QLabel()
        self._hint.setProperty("role", "small")
        self.preset = QPushButton(self.tr("System prompt"))
        self.preset.setProperty("role", "quiet")
        self.preset.setAccessibleName(self.tr("System prompt and sampling"))
        self.preset.setToolTip(self.tr("System prompt and sampling (Ctrl+P)"))
        self.preset.setCursor(Qt.CursorShape.PointingHandCursor)
        self.meter = ContextMeter()
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.preset)
        foot.addWidget(self.meter)
        foot.addWidget(self._hint)
        foot.addStretch(1)
        foot.addWidget(self.button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 12, 10)
        layout.setSpacing(6)
        layout.addWidget(self.input)
        layout.addLayout(foot)
        self.input.submitted.connect(self._submit)
        self.input.focused.connect(self._show_focus)
        self.input.textChanged.connect(self._update_button)
        self.button.clicked.connect(self._pressed)
        self.setFocusProxy(self.input)
        self._update_button()

    def show_state(self, can_send: bool, answering: bool, hint: str) -> None:
        """Show whether sending is possible, whether the button is Stop, and a hint."""
        self._can_send, self._answering = can_send, answering
        self._hint.setText(hint)
        self._update_button()

    def show_preset(self, words: str) -> None:
        """Show the system prompt and sampling in force."""
        self.preset.setText(words)

    def set_text(self, text: str) -> None:
        """Put text into the field, to edit or send."""
        self.input.setPlainText(text)
        self.input.moveCursor(self.input.textCursor().MoveOperation.End)
        self.input.setFocus()

    def clear(self) -> None:
        """Empty the field."""
        self.input.clear()

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102, N802
        self.input.setFocus()
        super().mousePressEvent(event)

    def _submit(self) -> None:
        text = self.input.toPlainText()
        if self._can_send and text.strip():
            self.send.emit(text)

    def _pressed(self) -> None:
        self.input.setFocus()  # for further typing
        if self._answering:
            self.stop.emit()
        else:
            self._submit()

    def _update_button(self) -> None:
        if self._answering:
            self.button.show_icon("stop", "danger")
            self.button.rename(self.tr("Stop (Esc)"))
            self.button.setEnabled(True)
        else:
            self.button.show_icon("send", "accent")
            self.button.rename(self.tr("Send (Enter)"))
            self.button.setEnabled(self._can_send and bool(self.input.toPlainText().strip()))

    def _show_focus(self, has_focus: bool) -> None:
        self.setProperty("focused", has_focus)
        self.style().unpolish(self)
        self.style().polish(self)
