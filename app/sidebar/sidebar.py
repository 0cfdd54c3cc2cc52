"""The column at the left: New chat, search, and the list of chats."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QInputDialog,
    QPushButton,
    QVBoxLayout,
)

from app.session.chats import Chats
from app.sidebar.list import ChatList
from app.store.chats import ChatRow
from app.text.messages import localized
from app.widgets.commands import key_words
from app.widgets.fields import SearchField, takes_escape
from app.widgets.parts import filled, spaced, text_label

SEARCH_MS = 60  # delay after the last key


class _Search(SearchField):
    """The search field: Escape clears it, Down moves the focus to the list.

    Signals:
        down: the user wants to go to the list.
        left: the user wants to write.
    """

    down = Signal()
    left = Signal()

    def event(self, event: QEvent) -> bool:
        return takes_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.clear()
            self.left.emit()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.down.emit()
        else:
            super().keyPressEvent(event)


class Sidebar(QFrame):
    """Shows the chats.

    Signals:
        import_file: the user wants to import chats.
        opened: a chat was opened here.
        passage: (int, str) id of a found message of the opened chat, and what to mark in it.
        left: the user wants to write.
    """

    import_file = Signal()
    opened = Signal()
    passage = Signal(int, str)
    left = Signal()

    def __init__(self, chats: Chats) -> None:
        super().__init__()
        self.setObjectName("sidebar")
        self._chats = chats
        self.new = QPushButton(self.tr("New chat"))
        self.new.setObjectName("newChat")
        self.new.setAccessibleName(self.tr("New chat"))
        self.new.setToolTip(key_words("Ctrl+N"))
        self.search = _Search()
        self.search.setObjectName("search")
        self.search.setAccessibleName(self.tr("Search chats"))
        self.search.setPlaceholderText(self.tr("Search chats"))
        self.search.setToolTip(key_words("Ctrl+F"))
        self.list = ChatList()
        self._found: dict[int, ChatRow] = {}  # by the id of the chat: with a passage
        self._nothing = text_label("muted", wraps=True)
        self._nothing.setContentsMargins(10, 8, 10, 8)
        self._import = QPushButton(self.tr("Import chats\u2026"))
        self._import.setProperty("role", "quiet")
        self._import.setAccessibleName(self.tr("Import chats from a file"))
        self._import.clicked.connect(self.import_file)
        layout = spaced(QVBoxLayout(self), 8, 12, 14, 8, 10)
        filled(layout, self.new, self.search, self._nothing, (self.list, 1))
        if not chats.store.is_kept:
            unkept = text_label(
                "warning", self.tr("Chats are not kept: they end with this window."), wraps=True
            )
            unkept.setContentsMargins(10, 0, 10, 0)
            unkept.setToolTip(localized(chats.store.trouble))
            layout.addWidget(unkept)
        layout.addLayout(filled(QHBoxLayout(), self._import, 1))
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.refresh)
        self.search.composed.connect(lambda: self._timer.start(SEARCH_MS))
        self.search.down.connect(self._focus_list)
        chats.list_changed.connect(self._refresh_later)
        self.list.opened.connect(self._open)
        self.list.deleted.connect(chats.delete)
        self.list.pinned.connect(chats.pin)
        self.list.renamed.connect(chats.rename)
        self.list.moved.connect(chats.move)
        self.list.folder_renamed.connect(chats.rename_folder)
        self.list.folder_wanted.connect(self._ask_folder)
        self.list.name_wanted.connect(self._ask_name)
        self.list.folded.connect(self.refresh)
        self.list.left.connect(self.left)
        self.search.left.connect(self.left)
        self.refresh()

    def refresh(self) -> None:
        """Show the list, or the results of the search."""
        self._timer.stop()
        text = self.search.whole_text
        rows = self._chats.rows(text)
        self.list.show_busy(self._chats.busy)
        self.list.show_folders(self._chats.folders())
        self.list.show_rows(rows, self._chats.open_id, with_headings=not text.strip())
        self._found = {row.id: row for row in rows if row.message_id}
        is_cut = self._chats.is_cut
        self._nothing.setVisible(not rows or is_cut)
        self._nothing.setText(
            self.tr("There may be more. Type more of what you look for.")
            if is_cut
            else self.tr("Nothing found.")
            if text.strip()
            else self.tr("Your chats will be here.")
        )

    def _refresh_later(self) -> None:
        """Refresh once for several changes at once."""
        self._timer.start(0)

    def _open(self, chat_id: int) -> None:
        found = self._found.get(chat_id)
        if self._chats.open(chat_id, found.message_id if found else 0):
            self.opened.emit()
            if found is not None:
                self.passage.emit(found.message_id, found.marked)

    def _ask_folder(self, chat_id: int) -> None:
        name = self._name_of_folder("")
        if name:
            self._chats.move(chat_id, name)

    def _ask_name(self, folder: str) -> None:
        name = self._name_of_folder(folder)
        if name:
            self._chats.rename_folder(folder, name)

    def _name_of_folder(self, present: str) -> str:
        name, is_chosen = QInputDialog.getText(
            self.window(), self.tr("Folder"), self.tr("Name of the folder"), text=present
        )
        return name.strip() if is_chosen else ""

    def _focus_list(self) -> None:
        if self._timer.isActive():
            self.refresh()
        model = self.list.model()
        for row in range(model.rowCount()):
            index = model.index(row, 0)
            if index.flags() & Qt.ItemFlag.ItemIsSelectable:
                self.list.setCurrentIndex(index)
                break
        self.list.setFocus()
