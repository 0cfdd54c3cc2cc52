"""The conversation as a column that follows the answer until the user scrolls up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QHBoxLayout,
    QVBoxLayout,
    QWidget,
)

from app.chat.answer import AnswerView
from app.chat.left_out_line import LeftOutLine
from app.chat.question import UserBubble
from app.chat.text_block import TextBlock
from app.session.pictures import Pictures
from app.state.conversation import Conversation, Message
from app.widgets import slices
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, filled, spaced
from app.widgets.scroll_column import BAR_WIDTH, ScrollColumn

COLUMN_WIDTH = 760
ROW_HEIGHT = 16  # pixels; controls with centres in one such row stand beside each other
NEAR_END = 24  # pixels; within this distance the end counts as reached


class _Result(QWidget):
    """The place of a tool's message. The answer that made the call shows its text."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message
        self.hide()


_View = UserBubble | AnswerView | _Result


def _delete(view: _View) -> None:
    """Delete a view now, rather than all removed ones in one turn of the event loop."""
    view.deleteLater()
    QApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete)


class Transcript(ScrollColumn):
    """Shows the messages of a conversation.

    Signals:
        go_on: the user wants the last answer continued.
        regenerate: (index) the user wants another answer instead of this one.
        more_wanted: (index, n) the user wants n other answers instead of this one.
        edited: (index, text) the user wants to ask another question instead of this one.
        answer_edited: (index, text) the user wants another version of an answer, with this text.
        forked: (index) the user wants a new chat with the messages up to this one.
        deleted: (index) the user wants a message removed.
        unawaited: the user wants the answers without the tools that they wait for.
        inspected: (index) the user wants to see the prompt and the raw text of an answer.
        stepped: (index, -1 or 1) the user wants the branch before or after this one.
        cards_shown: (AnswerView) whose cards of tool calls are new or have changed.
        changed: a message is new, gone or another, or the height of all messages has changed.
    """

    cards_shown = Signal(object)
    changed = Signal()
    go_on = Signal()
    regenerate = Signal(int)
    more_wanted = Signal(int, int)
    edited = Signal(int, str)
    answer_edited = Signal(int, str)
    forked = Signal(int)
    deleted = Signal(int)
    unawaited = Signal()
    inspected = Signal(int)
    stepped = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self.pictures: Pictures | None = None
        """Decodes the pictures of questions."""
        self.setAccessibleName(self.tr("Conversation"))
        # A click on a button, or beside the text, leaves the focus in the composer.
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.viewport().setAutoFillBackground(False)
        self._views: list[_View] = []
        self._earlier: list[Message] = []  # messages before the views, still without one
        self._seen_from = 0  # id of the first message that the model sees after a gap
        self._undressed: Iterator[None] = iter(())
        self._is_dressing = False
        self.follows = True  # the view stays at the end while text arrives
        self._moving = False
        self._read: tuple[TextBlock, float] | None = None  # the text at the top, and its part above

        self._column = QWidget()
        self._column.setObjectName("transcriptColumn")
        self._messages = spaced(QVBoxLayout(self._column), 26, 0, 28, 0, 20)
        self._messages.addStretch(1)  # below the messages, so that a short chat begins at the top
        self._column.setMaximumWidth(COLUMN_WIDTH)
        outside = QWidget()
        outside.setObjectName("transcriptColumn")
        centre = QHBoxLayout(outside)
        centre.setContentsMargins(28 + BAR_WIDTH, 0, 28, 0)  # the bar has its place at the right
        filled(centre, 1, (self._column, 1000), 1)
        self.setWidget(outside)

        self._to_end = IconButton("down", self.tr("Jump to the end"), fill="raised", parent=self)
        self._to_end.clicked.connect(self.follow)
        self._to_end.hide()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._scrolled)
        bar.rangeChanged.connect(self._range_changed)
        bar.rangeChanged.connect(self.changed)

    def view(self, index: int) -> QWidget:
        """Return the widget of one message."""
        return self._views[index - len(self._earlier)]

    def answer(self, index: int) -> AnswerView | None:
        """Return the widget of an answer; None if it is not shown yet."""
        row = index - len(self._earlier)
        view = self._views[row] if 0 <= row < len(self._views) else None
        return view if isinstance(view, AnswerView) else None

    @property
    def is_whole(self) -> bool:
        """Return whether all messages are shown, to their ends."""
        # Qt shows a view some time after it was put into the layout.
        is_shown = not any(v.isHidden() for v in self._views if not isinstance(v, _Result))
        return is_shown and not self._earlier and slices.is_done()

    def show_conversation(self, conversation: Conversation) -> None:
        """Show another conversation."""
        self.cut(0)
        self._seen_from = conversation.left_out_before
        self._earlier = list(conversation.messages)
        self._show_earlier()
        self.follow()

    def mark_left_out(self, message_id: int) -> None:
        """Show a line above the message from which on the model sees the chat; 0: it sees all."""
        if message_id == self._seen_from:
            return
        self._seen_from = message_id
        for view in self._views:
            self._show_line(view)

    def _show_line(self, view: _View) -> None:
        """Show the line above a view, or remove it."""
        line = view.findChild(LeftOutLine)
        is_first = bool(self._seen_from) and view.message.id == self._seen_from
        layout = view.layout()
        if is_first and line is None and isinstance(layout, QVBoxLayout):
            line = LeftOutLine()
            layout.insertWidget(0, line)
            line.lower()  # screen readers read in the order of the stack
        elif line is not None and not is_first:
            discard(None, line)

    def add(self, message: Message) -> None:
        """Append a message. A message of the user scrolls to the end."""
        if message.role == "user":
            self.follows = True
        self._insert(len(self._views), message)
        self._mark_last()

    def cut(self, index: int) -> None:
        """Remove a message and those after it."""
        self._read = None
        row = max(index - len(self._earlier), 0)
        for view in self._views[row:]:
            self._remove(view)
        del self._views[row:]
        del self._earlier[index:]
        if self._is_dressing:
            self._begin_dressing()

    def make_again(self) -> None:
        """Delete the views and make them again in slices, before a change of style.

        A new style takes the longer for each view the more there are: 2 s for 40 answers. Where the
        user reads or writes within the conversation, it stays as it is.
        """
        is_read = self.isVisible() and not self.follows
        if is_read or any(not isinstance(v, _Result) and v.is_edited for v in self._views):
            return
        views = list(self._views)
        messages = self._earlier + [view.message for view in views]
        self.cut(0)
        for view in views:
            _delete(view)
        self._earlier = messages
        slices.later(self, self._show_earlier)
        self.follow()

    def refresh(self, index: int) -> None:
        """Show a changed message."""
        row = index - len(self._earlier)
        if not 0 <= row < len(self._views):
            return
        view = self._views[row]
        if not isinstance(view, _Result):
            view.refresh()
            self._mark_last()
            self.changed.emit()

    def splice(self, index: int, n: int, new: Sequence[Message]) -> None:
        """Show other messages in place of n. What the user reads stays where it is."""
        n_earlier = len(self._earlier)
        begin, end = max(index - n_earlier, 0), max(index + n - n_earlier, 0)
        for view in self._views[begin:end]:
            self._remove(view)
        del self._views[begin:end]
        del self._earlier[index : index + n]
        if index < n_earlier:
            self._earlier[index:index] = new
        else:
            for place, message in enumerate(new):
                self._insert(begin + place, message)
        self._mark_last()
        if self._is_dressing:
            self._begin_dressing()

    def edit_last(self) -> None:
        """Let the user change the last question."""
        for view in reversed(self._views):
            if isinstance(view, UserBubble):
                self.ensureWidgetVisible(view)
                view.begin_edit()
                break

    def _remove(self, view: _View) -> None:
        self._messages.removeWidget(view)
        view.hide()
        slices.later(view, partial(_delete, view))
        self.changed.emit()

    def _insert(self, row: int, message: Message) -> None:
        """Insert the view of a message into the list and the layout."""
        view: _View
        if message.role == "user":
            view = UserBubble(message, self.pictures)
            view.edited.connect(lambda text: self.edited.emit(self._index(view), text))
        elif message.role == "assistant":
            view = AnswerView(message)
            view.go_on.connect(self.go_on)
            view.unawaited.connect(self.unawaited)
            view.regenerate.connect(lambda: self.regenerate.emit(self._index(view)))
            view.more_wanted.connect(lambda n: self.more_wanted.emit(self._index(view), n))
            view.inspected.connect(lambda: self.inspected.emit(self._index(view)))
            view.edited.connect(lambda text: self.answer_edited.emit(self._index(view), text))
            view.forked.connect(lambda: self.forked.emit(self._index(view)))
            view.cards_shown.connect(lambda: self.cards_shown.emit(view))
        else:
            view = _Result(message)
        if not isinstance(view, _Result):
            view.stepped.connect(lambda step: self.stepped.emit(self._index(view), step))
            view.deleted.connect(lambda: self.deleted.emit(self._index(view)))
        self._messages.insertWidget(row, view)
        if row < len(self._views):  # screen readers read in the order of the stack
            view.stackUnder(self._views[row])
        self._views.insert(row, view)
        self._show_line(view)
        self._give_results(row)
        if isinstance(view, AnswerView) and view.cards:
            self.cards_shown.emit(view)
        self.changed.emit()

    def _give_results(self, row: int) -> None:
        """Show the results around a row in the answer that made the calls."""
        while row > 0 and isinstance(self._views[row], _Result):
            row -= 1
        caller = self._views[row]
        if isinstance(caller, AnswerView):
            for place in range(row + 1, len(self._views)):
                result = self._views[place]
                if not isinstance(result, _Result):
                    break
                caller.take_result(result.message)

    def _index(self, view: _View) -> int:
        return len(self._earlier) + self._views.index(view)

    def _show_earlier(self) -> None:
        """Insert earlier messages at the top, newest first, in slices."""
        with slices.a_slice() as is_over:
            while self._earlier:
                self._insert(0, self._earlier.pop())
                if is_over():
                    slices.later(self, self._show_earlier)
                    break
        self._mark_last()

    def _begin_dressing(self) -> None:
        answers = [view for view in self._views[::-1] if isinstance(view, AnswerView)]
        self._undressed = (step for answer in answers for step in answer.redress())
        self._is_dressing = True
        slices.later(self, self._dress_some)

    def _dress_some(self) -> None:
        """Give answers the colours of a new theme, the last one first, in slices."""
        with slices.a_slice() as is_over:
            for _ in self._undressed:
                if is_over():
                    slices.later(self, self._dress_some)
                    return
        self._is_dressing = False

    def follow(self) -> None:
        """Scroll to the end and stay there."""
        self.follows = True
        self._move_to_end()
        self._to_end.hide()

    def focus_next(self, forward: bool) -> bool:
        """Move the focus to the next control of the messages, by position. Return False at an end.

        The conversation itself stands before its first control.
        """
        order: list[QWidget] = [self, *self._controls()]
        focused = QApplication.focusWidget()
        place = order.index(focused) if focused in order else -1
        place += 1 if forward else -1
        if not 0 <= place < len(order) or focused not in order:
            return False
        self._focus(order[place])
        return True

    def focus_last(self) -> None:
        """Focus the last control of the messages."""
        self._focus([self, *self._controls()][-1])

    def text_blocks(self) -> list[TextBlock]:
        """Return the visible blocks of text, from the first to the last. See is_whole."""
        found = []
        for view in self._views:
            blocks = [block for block in view.findChildren(TextBlock) if block.isVisibleTo(view)]
            found += sorted(blocks, key=lambda block: block.mapTo(view, QPoint(0, 0)).y())
        return found

    def view_of(self, message_id: int) -> QWidget | None:
        """Return the view of a message; None if it is not shown."""
        return next((view for view in self._views if view.message.id == message_id), None)

    def show_place(self, widget: QWidget, place: QPoint) -> None:
        """Scroll to a point of a widget."""
        column = self._column
        inside = widget.mapTo(column, place)
        self.follows = False
        self.ensureVisible(inside.x(), inside.y(), 50, 120)

    def _controls(self) -> list[QWidget]:
        found = [
            button
            for view in self._views
            for button in view.findChildren(QAbstractButton)
            if button.isVisible() and button.isEnabled()
            if button.focusPolicy() & Qt.FocusPolicy.TabFocus
        ]

        def place(widget: QWidget) -> tuple[int, int]:
            centre = widget.mapTo(self._column, widget.rect().center())
            return centre.y() // ROW_HEIGHT, centre.x()

        return sorted(found, key=place)

    def _focus(self, widget: QWidget) -> None:
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        if widget is not self:
            self.ensureWidgetVisible(widget)

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:  # comes many times for one change of theme
            self._begin_dressing()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        if not self.follows and self._read is None:
            self._read = self._at_top()
        super().resizeEvent(event)
        area = self.viewport().rect()
        self._to_end.move(area.center().x() - 17, area.bottom() - 46)

    def _mark_last(self) -> None:
        for view in self._views[-3:]:
            if isinstance(view, AnswerView):
                view.show_last(view is self._views[-1])

    def _at_top(self) -> tuple[TextBlock, float] | None:
        """Return the uppermost visible text, and the share of its height that is above the view."""
        for view in self._views:
            if view.mapTo(self.viewport(), QPoint(0, view.height())).y() > 0:
                for block in view.findChildren(TextBlock):
                    above = -block.mapTo(self.viewport(), QPoint(0, 0)).y()
                    if block.isVisible() and above < block.height():
                        return block, max(above / block.height(), 0.0)
        return None

    def _move_to(self, value: int) -> None:
        self._moving = True
        self.verticalScrollBar().setValue(value)
        self._moving = False

    def _move_to_end(self) -> None:
        self._move_to(self.verticalScrollBar().maximum())

    def _scrolled(self, value: int) -> None:
        if not self._moving:
            self._read = None
            self.follows = value >= self.verticalScrollBar().maximum() - NEAR_END
        self._to_end.setVisible(not self.follows)

    def _range_changed(self) -> None:
        if self.follows:
            self._move_to_end()
        elif self._read is not None:  # another width changes the heights above
            block, above = self._read
            place = QPoint(0, round(above * block.height()))
            self._move_to(block.mapTo(self._column, place).y())
