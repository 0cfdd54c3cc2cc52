"""The user's message in a bubble at the right, and the field to edit it."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QVBoxLayout, QWidget

from app.chat.branch_switch import BranchSwitch
from app.chat.file_fold import FileFold
from app.chat.message_editor import MESSAGE_CHARS, MessageEditor, can_change
from app.chat.text_block import TextBlock
from app.session.pictures import Pictures
from app.state.conversation import Message
from app.text import units
from app.widgets.fields import PARAGRAPH_CHARS
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, filled, spaced
from app.widgets.quiet_button import QuietButton
from backend.protocol.attachments import Attachment

WIDEST = 0.82  # largest width of a bubble, as a share of the column
PADDING = (18, 9, 18, 11)  # the extra height of a line is above its text
HEAD_CHARS = 600  # of a long question, before its fold


class UserBubble(QWidget):
    """A message of the user with its files, as wide as its text.

    Signals:
        edited: (str) the question to ask instead.
        stepped: (-1 or 1) the user wants the branch before or after this one.
        deleted: the user wants it removed from the chat.
    """

    edited = Signal(str)
    deleted = Signal()
    stepped = Signal(int)

    def __init__(self, message: Message, pictures: Pictures | None = None) -> None:
        super().__init__()
        self._message = message
        self._editor: MessageEditor | None = None
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
        self._edit = QuietButton(
            self.tr("Edit"), self.tr("Change this message"), lambda: self.begin_edit()
        )
        if not can_change(message.content):
            most = units.count(MESSAGE_CHARS, "character")
            self._edit.setEnabled(False)
            self._edit.setToolTip(
                self.tr("A message of more than {most} cannot be changed here.").format(most=most)
            )
        self._more = IconButton("more", self.tr("More about this message"), side=24)
        self._more.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._more.clicked.connect(self._open_menu)
        self._branches = BranchSwitch()
        self._branches.stepped.connect(self.stepped)
        self._branches.show_branch(message.branch)
        foot = filled(spaced(QHBoxLayout(), 4), 1, self._branches, self._edit, self._more)
        row = filled(QHBoxLayout(), 1, self._frame)
        filled(spaced(QVBoxLayout(self), 2), row, foot)

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
        take = self.tr("Send"), self.tr("Ask this instead")
        name = self.tr("Your message, to change")
        self._editor = editor = MessageEditor(self._message.content, name, take, by_enter=True)
        editor.taken.connect(self._send)
        editor.ended.connect(self._end_edit)
        self._inside.addWidget(editor)
        editor.show()  # at once, so that it can take the focus from the button that is hidden
        self._show_editing(True)
        editor.setFocus()

    def refresh(self) -> None:
        """Show the number of the branch again."""
        self._branches.show_branch(self._message.branch)
        self._show_editing(self.is_edited)

    def menu(self) -> QMenu:
        """Return the menu of rare actions on a message."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(
            self.tr("Copy"),
            lambda: QGuiApplication.clipboard().setText(self._message.content),
        )
        copy.setEnabled(bool(self._message.content))
        menu.addAction(self.tr("Delete"), self.deleted.emit)
        return menu

    def _open_menu(self) -> None:
        self.menu().popup(self._more.mapToGlobal(QPoint(0, self._more.height())))

    def _send(self, text: str) -> None:
        if text or self._message.attachments:
            self.edited.emit(text)

    def _end_edit(self) -> None:
        editor, self._editor = self._editor, None
        if editor is not None:
            discard(self._inside, editor)
        self._show_editing(False)

    def _show_editing(self, editing: bool) -> None:
        self._text.setVisible(not editing and bool(self._message.content or not self._folds))
        self._edit.setVisible(not editing)
        self._more.setVisible(not editing)
        self._branches.setVisible(not editing and self._message.branch[1] > 1)
        self._fit()

    def _fit(self, _: object = None) -> None:
        widest = int(self.width() * WIDEST)
        is_wide = self._editor is not None or any(fold.is_unfolded for fold in self._folds)
        inside = [self._text.ideal_width(), *(fold.ideal_width() for fold in self._folds)]
        wanted = widest if is_wide else max(inside) + 2 * PADDING[0]
        self._frame.setFixedWidth(min(wanted, widest))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._fit()
