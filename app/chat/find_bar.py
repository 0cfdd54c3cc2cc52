"""The bar that finds words in the shown chat."""

from __future__ import annotations

import contextlib

from PySide6.QtCore import QEvent, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QTextEdit

from app.chat.text_block import TextBlock
from app.chat.transcript import Transcript
from app.text import units
from app.widgets import theme
from app.widgets.fields import LineField, takes_escape
from app.widgets.icon_button import IconButton
from app.widgets.parts import filled, text_label

FIND_MS = 120  # delay after the last key
N_FOUND_MAX = 2000


class _Words(LineField):
    """Escape closes the bar, Enter goes on, Shift+Enter goes back.

    Signals:
        closed, stepped: (1 or -1).
    """

    closed = Signal()
    stepped = Signal(int)

    def event(self, event: QEvent) -> bool:
        return takes_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            back = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self.stepped.emit(-1 if back else 1)
        else:
            super().keyPressEvent(event)


class FindBar(QFrame):
    """Marks the places in the chat that contain words, and goes from one to the next.

    Signals:
        closed: the user is done.
    """

    closed = Signal()

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self.setObjectName("findBar")
        self._transcript = transcript
        self._found: list[tuple[QTextEdit, QTextCursor]] = []
        self._place = -1
        self._lead = 0  # id of the message to go to
        self._sought = ""  # the words that were searched
        self._blocks: list[TextBlock] = []  # where they were
        self.words = _Words()
        self.words.setPlaceholderText(self.tr("Find in this chat"))
        self.words.setAccessibleName(self.tr("Find in this chat"))
        self.count = text_label("small")
        self.before = IconButton("up", self.tr("Previous place (Shift+Enter)"), side=28)
        self.after = IconButton("chevron", self.tr("Next place (Enter)"), side=28)
        close = IconButton("close", self.tr("Close the search (Esc)"), side=28)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        filled(layout, (self.words, 1), self.count, self.before, self.after, close)
        self._timer = QTimer(self, singleShot=True, interval=FIND_MS)
        self._timer.timeout.connect(self.search)
        transcript.changed.connect(self._search_later)
        self.words.composed.connect(self._timer.start)
        self.words.stepped.connect(self.step)
        self.words.closed.connect(self.finish)
        self.before.clicked.connect(lambda: self.step(-1))
        self.after.clicked.connect(lambda: self.step(1))
        close.clicked.connect(self.finish)
        self.hide()

    @property
    def found(self) -> int:
        """Return the number of places."""
        return len(self._found)

    @property
    def present(self) -> QTextCursor | None:
        """Return the place that is shown."""
        return self._found[self._place][1] if self._found else None

    def begin(self) -> None:
        """Show the bar and let the user type."""
        self.show()
        self.words.setFocus()
        self.words.selectAll()
        self._sought = ""
        self.search()

    def lead(self, message_id: int, words: str) -> None:
        """Mark words, and show their first place in a message. The focus stays where it is."""
        self._lead = message_id
        self.words.setText(words)
        self.show()
        self.search()

    def finish(self) -> None:
        """Remove the marks and hide the bar."""
        self._timer.stop()
        self._clear()
        self.hide()
        self.closed.emit()

    def search(self) -> None:
        """Find the words, and show the last place of new ones: chats are read from their end.

        A long chat is searched as soon as all of it is shown. Where the same words are found again
        because the chat has changed, the present place and what the user reads stay.
        """
        self._timer.stop()
        self._clear()
        words = self.words.whole_text
        if words.strip() and not self._transcript.is_whole:
            if self.isVisible():
                self._timer.start()
            self._show()
            return
        is_new = words != self._sought
        if is_new:
            self._sought, self._place = words, -1
        self._blocks = self._transcript.text_blocks() if words.strip() else []
        for block in self._blocks:
            found = block.find_all(words, N_FOUND_MAX - len(self._found))
            self._found += [(block, cursor) for cursor in found]
        last = len(self._found) - 1
        self._place = last if self._place < 0 else min(self._place, last)
        if self._lead:
            self._go_to_message(self._lead)
            self._lead, is_new = 0, True
        self._show(goes=is_new)

    def _search_later(self) -> None:
        """Search what has changed in the chat, also while it goes on changing."""
        if self.isVisible() and self.words.whole_text.strip() and not self._timer.isActive():
            self._timer.start()

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:  # answers get new documents, without marks
            self._search_later()

    def _go_to_message(self, message_id: int) -> None:
        """Make the first place in a message the present one; without any, show the message."""
        view = self._transcript.view_of(message_id)
        if view is None:
            return
        for place, (block, _) in enumerate(self._found):
            if view.isAncestorOf(block):
                self._place = place
                return
        self._clear()
        self._transcript.show_place(view, QPoint(0, 0))

    def step(self, step: int) -> None:
        """Go to another place; after the last comes the first."""
        is_new = self.words.whole_text != self._sought
        if self._timer.isActive() or self._is_stale():
            self.search()
        if self._found and not is_new:
            left, _ = self._found[self._place]
            self._place = (self._place + step) % len(self._found)
            self._show({id(left), id(self._found[self._place][0])}, goes=True)

    def _is_stale(self) -> bool:
        """Return whether the chat shows other texts than those that were searched."""
        has_new = self._blocks != self._transcript.text_blocks()
        return has_new or any(cursor.isNull() for _, cursor in self._found)

    def _clear(self) -> None:
        for block in {id(block): block for block, _ in self._found}.values():
            with contextlib.suppress(RuntimeError):  # its message is no longer shown
                block.setExtraSelections([])
        self._found = []

    def _show(self, changed: set[int] | None = None, *, goes: bool = False) -> None:
        """Mark the places of all blocks, or of those with these ids.

        goes: scroll to the present place.
        """
        for button in (self.before, self.after):
            button.setEnabled(bool(self._found))
        if not self._found:
            is_over = self.words.whole_text.strip() and not self._timer.isActive()
            self.count.setText(self.tr("Nothing found.") if is_over else "")
            return
        self.count.setText(
            self.tr("{n} of {all}").format(
                n=units.number(self._place + 1), all=units.number(len(self._found))
            )
        )
        marks: dict[int, tuple[QTextEdit, list[QTextEdit.ExtraSelection]]] = {}
        for place, (block, cursor) in enumerate(self._found):
            if changed is not None and id(block) not in changed:
                continue
            look = QTextCharFormat()
            look.setBackground(theme.colour("accent" if place == self._place else "bubble"))
            look.setForeground(theme.colour("on_accent" if place == self._place else "text"))
            look.setUnderlineStyle(QTextCharFormat.UnderlineStyle.SingleUnderline)
            look.setUnderlineColor(theme.colour("accent"))  # also within a question's bubble
            mark = QTextEdit.ExtraSelection()
            mark.cursor, mark.format = cursor, look
            marks.setdefault(id(block), (block, []))[1].append(mark)
        for block, selections in marks.values():
            block.setExtraSelections(selections)
        if not goes:
            return
        block, cursor = self._found[self._place]
        line = block.cursorRect(cursor)
        self._transcript.show_place(block.viewport(), QPoint(line.x(), line.center().y()))
