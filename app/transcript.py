"""The conversation as a column that follows the answer until the user scrolls up."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.answer_view import AnswerView
from app.conversation import Conversation, Message
from app.icon_button import IconButton
from app.user_bubble import UserBubble

COLUMN_WIDTH = 760
NEAR_END = 24  # pixels from the end that still count as the end


class Transcript(QScrollArea):
    """Shows the messages of a conversation.

    Signals:
        go_on: the user wants the last answer continued.
    """

    go_on = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Conversation")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setAutoFillBackground(False)
        self._views: list[UserBubble | AnswerView] = []
        self._follows = True
        self._moving = False

        self._column = QWidget()
        self._column.setObjectName("transcriptColumn")
        self._messages = QVBoxLayout(self._column)
        self._messages.setContentsMargins(0, 28, 0, 20)
        self._messages.setSpacing(26)
        self._messages.addStretch(1)
        self._column.setMaximumWidth(COLUMN_WIDTH)
        outside = QWidget()
        outside.setObjectName("transcriptColumn")
        centre = QHBoxLayout(outside)
        centre.setContentsMargins(28, 0, 28, 0)
        centre.addStretch(1)
        centre.addWidget(self._column, 1000)
        centre.addStretch(1)
        self.setWidget(outside)

        self._to_end = IconButton("down", "Jump to the end", fill="raised", parent=self)
        self._to_end.clicked.connect(self.follow)
        self._to_end.hide()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._scrolled)
        bar.rangeChanged.connect(self._grew)

    @property
    def follows(self) -> bool:
        """Whether the end stays in view as text arrives."""
        return self._follows

    def view(self, index: int) -> UserBubble | AnswerView:
        """Return the widget of one message."""
        return self._views[index]

    def show_conversation(self, conversation: Conversation) -> None:
        """Replace everything."""
        for view in self._views:
            self._messages.removeWidget(view)
            view.hide()
            view.deleteLater()
        self._views.clear()
        for message in conversation.messages:
            self.add(message)
        self.follow()

    def add(self, message: Message) -> None:
        """Show a new message at the end; one of the user's brings the end into view."""
        view: UserBubble | AnswerView
        if message.role == "user":
            view = UserBubble(message.content)
            self._follows = True
        else:
            view = AnswerView(message)
            view.go_on.connect(self.go_on)
        self._views.append(view)
        self._messages.insertWidget(self._messages.count() - 1, view)
        self._mark_last()

    def refresh(self, index: int) -> None:
        """Take in that a message has changed."""
        view = self._views[index]
        if isinstance(view, AnswerView):
            view.refresh()
            self._mark_last()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._follows = True
        self._move_to_end()
        self._to_end.hide()

    def changeEvent(self, event: QEvent) -> None:  # noqa: D102, N802
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            for view in self._views:
                if isinstance(view, AnswerView):
                    view.redress()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        area = self.viewport().rect()
        self._to_end.move(area.center().x() - 17, area.bottom() - 46)

    def _mark_last(self) -> None:
        for view in self._views[-3:]:
            if isinstance(view, AnswerView):
                view.show_last(view is self._views[-1])

    def _move_to_end(self) -> None:
        self._moving = True
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())
        self._moving = False

    def _scrolled(self, value: int) -> None:
        if not self._moving:
            self._follows = value >= self.verticalScrollBar().maximum() - NEAR_END
        self._to_end.setVisible(not self._follows)

    def _grew(self) -> None:
        if self._follows:
            self._move_to_end()
