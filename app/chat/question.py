"""The user's message in a bubble at the right, and the field to edit it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.branch_switch import BranchSwitch
from app.chat.file_fold import FileFold
from app.chat.text_block import TextBlock
from app.session.pictures import Pictures
from app.state.conversation import Message
from app.text import units
from app.widgets.fields import PARAGRAPH_CHARS, TextField, say_full
from backend.protocol.attachments import Attachment

WIDEST = 0.82  # largest width of a bubble, as a share of the column
PADDING = (18, 9, 18, 11)  # the extra height of a line is above its text
N_LINE_MAX = 12
HEAD_CHARS = 600  # of a long question, before its fold


class _Editor(TextField):
    """Enter sends, Escape cancels.

    Signals:
        done: (bool) whether to send.
    """

    done = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("input")
        self.setAccessibleName(self.tr("Your message, to change"))
        self.setAcceptDrops(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.done.emit(True)
        elif event.key() == Qt.Key.Key_Escape:
            self.done.emit(False)
        else:
            super().keyPressEvent(event)


class UserBubble(QWidget):
    """A message of the user with its files, as wide as its text.

    Signals:
        edited: (str) the question to ask instead.
        stepped: (-1 or 1) the user wants the branch before or after this one.
    """

    edited = Signal(str)
    stepped = Signal(int)

    def __init__(self, message: Message, pictures: Pictures | None = None) -> None:
        super().__init__()
        self._message = message
        self._editor: _Editor | None = None
        self.setAccessibleName(self.tr("Your message"))
        self._text = TextBlock()
        self._text.setAccessibleName(self.tr("Your message"))
        is_long = len(message.content) > PARAGRAPH_CHARS
        head = message.content[:HEAD_CHARS] + "\u2026" if is_long else message.content
        self._text.show_plain(head)
        self._frame = QFrame()
        self._frame.setObjectName("bubble")
        self._inside = QVBoxLayout(self._frame)
        self._inside.setContentsMargins(*PADDING)
        self._folds = [FileFold(file, pictures) for file in message.attachments]
        for fold in self._folds:
            self._inside.addWidget(fold)
        self._inside.addWidget(self._text)
        self._text.setVisible(bool(message.content) or not self._folds)
        if is_long:
            self._folds.append(FileFold(Attachment(self.tr("All of it"), "text", message.content)))
            self._inside.addWidget(self._folds[-1])
        for fold in self._folds:
            fold.button.toggled.connect(self._fit)
            fold.fitted.connect(self._fit)
        self._edit = _button(self.tr("Edit"), self.tr("Change this message"), self.begin_edit)
        if is_long:
            most = units.count(PARAGRAPH_CHARS, "character")
            self._edit.setEnabled(False)
            self._edit.setToolTip(
                self.tr("A message of more than {most} cannot be changed here.").format(most=most)
            )
        self._ends: list[QPushButton] = []  # the buttons beside the field
        self._branches = BranchSwitch()
        self._branches.stepped.connect(self.stepped)
        self._branches.show_branch(message.branch)
        foot = self._foot = QHBoxLayout()
        foot.setSpacing(4)
        foot.addStretch(1)
        foot.addWidget(self._branches)
        foot.addWidget(self._edit)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self._frame)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(row)
        layout.addLayout(foot)

    @property
    def message(self) -> Message:
        """Return the message that is shown."""
        return self._message

    @property
    def is_edited(self) -> bool:
        """Return whether the field for another question is open."""
        return self._editor is not None

    def begin_edit(self) -> None:
        """Replace the text by a field."""
        if self._editor is not None or not self._edit.isEnabled():
            return
        if not self._ends:
            self._ends = [
                _button(self.tr("Send"), self.tr("Ask this instead"), lambda: self._end_edit(True)),
                _button(
                    self.tr("Cancel"), self.tr("Leave it as it is"), lambda: self._end_edit(False)
                ),
            ]
            for button in self._ends:
                self._foot.addWidget(button)
        editor = _Editor()
        editor.setPlainText(self._message.content)
        editor.moveCursor(editor.textCursor().MoveOperation.End)
        editor.done.connect(self._end_edit)
        editor.refused.connect(self._say_full)
        editor.textChanged.connect(self._fit_editor)
        self._editor = editor
        self._inside.addWidget(editor)
        editor.show()  # at once, so that it can take the focus from the button that is hidden
        self._show_editing(True)
        self._fit_editor()
        editor.setFocus()

    def _end_edit(self, is_sent: bool) -> None:
        editor, self._editor = self._editor, None
        if editor is None:
            return
        editor.end_composition()
        text = editor.toPlainText().strip()
        editor.hide()
        self._inside.removeWidget(editor)
        editor.deleteLater()
        self._show_editing(False)
        if is_sent and (text or self._folds):
            self.edited.emit(text)

    def _say_full(self, _: str) -> None:
        say_full(self._editor or self)

    def _show_editing(self, editing: bool) -> None:
        self._text.setVisible(not editing and bool(self._message.content or not self._folds))
        self._edit.setVisible(not editing)
        for button in self._ends:
            button.setVisible(editing)
        self._branches.setVisible(not editing and self._message.branch[1] > 1)
        self._fit()

    def _fit_editor(self) -> None:
        if self._editor is not None:
            n_line = min(max(self._editor.blockCount(), 2), N_LINE_MAX)
            self._editor.setFixedHeight(self._editor.fontMetrics().lineSpacing() * n_line + 14)

    def _fit(self, _: object = None) -> None:
        widest = int(self.width() * WIDEST)
        is_wide = self._editor is not None or any(fold.is_unfolded for fold in self._folds)
        inside = [self._text.ideal_width(), *(fold.ideal_width() for fold in self._folds)]
        wanted = widest if is_wide else max(inside) + 2 * PADDING[0]
        self._frame.setFixedWidth(min(wanted, widest))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._fit()


def _button(text: str, name: str, action: object) -> QPushButton:
    button = QPushButton(text)
    button.setProperty("role", "quiet")
    button.setAccessibleName(name)
    button.clicked.connect(action)
    return button
