"""The chat: notices and progress, the conversation, and the composer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.banner import Banner
from app.chat.composer import Composer
from app.chat.find_bar import FindBar
from app.chat.loading_strip import LoadingStrip
from app.chat.transcript import COLUMN_WIDTH, Transcript
from app.chat.welcome import Welcome
from app.widgets.parts import filled, spaced
from app.widgets.scroll_column import ScrollColumn


class ChatView(QWidget):
    """Has its parts as attributes; ChatPage connects them."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("chat")
        self.loading = LoadingStrip(
            self.tr("Loading"), self.tr("Cancel"), self.tr("Cancel loading")
        )
        self.exchange = LoadingStrip(
            self.tr("Import or export"), self.tr("Stop"), self.tr("Stop the import or export")
        )
        self.banner = Banner()
        self.welcome = Welcome()
        self.transcript = Transcript()
        self.composer = Composer()
        self._stack = QStackedWidget()
        self._welcome = ScrollColumn()  # the composer may need its room
        self._welcome.setFrameShape(QFrame.Shape.NoFrame)
        self._welcome.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._welcome.setWidget(self.welcome)
        self._stack.addWidget(self._welcome)
        self._stack.addWidget(self.transcript)
        layout = spaced(QVBoxLayout(self), 8, 0, 14, 0, 22)
        self.find_bar = FindBar(self.transcript)
        filled(layout, *map(_column, (self.loading, self.exchange, self.find_bar)))
        filled(layout, (self._stack, 1), _column(self.banner), _column(self.composer))

    def show_messages(self, any_messages: bool) -> None:
        """Show the conversation, or the welcome if it is empty."""
        self._stack.setCurrentWidget(self.transcript if any_messages else self._welcome)


def _column(widget: QWidget) -> QHBoxLayout:
    """Centre a widget, as wide as the conversation's column."""
    row = QHBoxLayout()
    row.setContentsMargins(24, 0, 24, 0)
    widget.setMaximumWidth(COLUMN_WIDTH + 24)
    return filled(row, 1, (widget, 1000), 1)
