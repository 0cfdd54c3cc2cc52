"""The list of chats: a click opens, F2 renames, Delete deletes, a menu has the rest."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QMenu

from app.sidebar.list_delegate import MORE_WIDTH, ChatDelegate
from app.sidebar.list_model import ChatListModel
from app.store.chats import ChatRow
from app.widgets.commands import key_words


class ChatList(QListView):
    """Shows rows of chats under headings.

    Signals:
        opened, deleted: (chat id).
        pinned: (chat id, whether).
        renamed: (chat id, title).
        exported: (chat id, "md" or "json"); the id 0: all chats.
        moved: (chat id, folder) "": into none.
        folder_renamed: (folder, new name) "": its chats leave it.
        folder_wanted: (chat id) the user wants to put a chat into a new folder.
        name_wanted: (folder) the user wants to rename a folder.
        typed: (text) the user types, so that the text belongs to the message.
        left: the user wants to write.
        folded: a folder was opened or closed.
    """

    opened = Signal(int)
    deleted = Signal(int)
    pinned = Signal(int, bool)
    renamed = Signal(int, str)
    exported = Signal(int, str)
    moved = Signal(int, str)
    folder_renamed = Signal(str, str)
    folder_wanted = Signal(int)
    name_wanted = Signal(str)
    typed = Signal(str)
    left = Signal()
    folded = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("chatList")
        self.setAccessibleName(self.tr("Chats"))
        self._folders: list[str] = []
        self._model = ChatListModel()
        self._model.renamed.connect(self.renamed)
        self.setModel(self._model)
        self.setItemDelegate(ChatDelegate(self))
        self.setMouseTracking(True)
        self.setUniformItemSizes(False)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFrameShape(QListView.Shape.NoFrame)
        self.setLayoutMode(QListView.LayoutMode.Batched)
        self.setBatchSize(200)

    def show_rows(self, rows: list[ChatRow], open_id: int, with_headings: bool = True) -> None:
        """Replace the list and mark the open chat."""
        bar = self.verticalScrollBar()
        place = bar.value()
        self._model.show_rows(rows, with_headings)
        self.mark(open_id)
        bar.setValue(place)

    def show_busy(self, chats: set[int]) -> None:
        """Set the chats with an answer in progress; shown by the next show_rows()."""
        self._model.busy = chats

    def mark(self, open_id: int) -> None:
        """Mark the open chat."""
        row = self._model.row_of(open_id)
        if row < 0:
            self.clearSelection()
            self.setCurrentIndex(QModelIndex())
            return
        index = self._model.index(row)
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.selectionModel().setCurrentIndex(index, flags)

    @property
    def current_id(self) -> int:
        """Return the id of the row under the keyboard's cursor; 0 if there is none."""
        chat = self._model.chat(self.currentIndex())
        return chat.id if chat is not None else 0

    def titles(self) -> list[str]:
        """Return the titles in the list, without the headings."""
        indices = (self._model.index(row) for row in range(self._model.rowCount()))
        return [chat.title for index in indices if (chat := self._model.chat(index))]

    def edit_name(self, chat_id: int) -> None:
        """Edit a chat's name in its row."""
        row = self._model.row_of(chat_id)
        if row >= 0:
            self.edit(self._model.index(row))

    def show_folders(self, folders: list[str]) -> None:
        """Set the folders that the menu of a chat offers."""
        self._folders = folders

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return menu

    def folder_menu(self, folder: str) -> QMenu:
        """Return the menu of a folder."""
        menu = self._menu()
        menu.addAction(self.tr("Rename\u2026"), lambda: self.name_wanted.emit(folder))
        menu.addAction(
            self.tr("Dissolve (the chats stay)"), lambda: self.folder_renamed.emit(folder, "")
        )
        return menu

    def menu_for(self, chat: ChatRow) -> QMenu:
        """Return the menu of one chat."""
        menu = self._menu()
        menu.addAction(self.tr("Rename") + "\t" + key_words("F2"), lambda: self.edit_name(chat.id))
        label = self.tr("Unpin") if chat.is_pinned else self.tr("Pin")
        menu.addAction(label, lambda: self.pinned.emit(chat.id, not chat.is_pinned))
        folders = menu.addMenu(self.tr("Folder"))
        for folder in self._folders:
            action = folders.addAction(folder)
            action.triggered.connect(lambda _=False, name=folder: self.moved.emit(chat.id, name))
            action.setCheckable(True)
            action.setChecked(folder == chat.folder)
        if self._folders:
            folders.addSeparator()
        folders.addAction(self.tr("New folder\u2026"), lambda: self.folder_wanted.emit(chat.id))
        if chat.folder:
            folders.addAction(self.tr("Into no folder"), lambda: self.moved.emit(chat.id, ""))
        menu.addSeparator()
        menu.addAction(
            self.tr("Export as Markdown\u2026"), lambda: self.exported.emit(chat.id, "md")
        )
        menu.addAction(self.tr("Export as JSON\u2026"), lambda: self.exported.emit(chat.id, "json"))
        menu.addAction(self.tr("Export all chats\u2026"), lambda: self.exported.emit(0, "json"))
        menu.addSeparator()
        menu.addAction(
            self.tr("Delete") + "\t" + key_words("Del"), lambda: self.deleted.emit(chat.id)
        )
        return menu

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102
        chat = self._model.chat(self.currentIndex())
        key = event.key()
        if chat is not None and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            if self.state() != QAbstractItemView.State.EditingState:
                self.opened.emit(chat.id)
                self.left.emit()
                return
        pins = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if chat is not None and key == Qt.Key.Key_P and event.modifiers() == pins:
            self.pinned.emit(chat.id, not chat.is_pinned)
            return
        if chat is not None and key == Qt.Key.Key_Delete:
            self.deleted.emit(chat.id)
            return
        if key == Qt.Key.Key_Escape:
            event.ignore()
            return
        plain = event.modifiers() & ~Qt.KeyboardModifier.ShiftModifier
        if event.text().strip() and event.text().isprintable() and not plain:
            self.typed.emit(event.text())
            return
        super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: D102
        super().mouseReleaseEvent(event)
        if event.button() != Qt.MouseButton.LeftButton:
            return
        index = self.indexAt(event.position().toPoint())
        chat = self._model.chat(index)
        if folder := self._model.folder(index):
            self._model.closed ^= {folder}
            self.folded.emit()
        if chat is None:
            return
        place = self.visualRect(index)
        if event.position().x() > place.right() - MORE_WIDTH:
            corner = QPoint(place.right() - MORE_WIDTH, place.bottom())
            self.menu_for(chat).popup(self.viewport().mapToGlobal(corner))
        else:
            self.opened.emit(chat.id)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:  # noqa: D102
        by_key = event.reason() == QContextMenuEvent.Reason.Keyboard
        index = self.currentIndex() if by_key else self.indexAt(event.pos())
        chat = self._model.chat(index)
        place = self.visualRect(index).center() if by_key else event.pos()
        if chat is not None:
            self.menu_for(chat).popup(self.viewport().mapToGlobal(place))
        elif folder := self._model.folder(index):
            self.folder_menu(folder).popup(self.viewport().mapToGlobal(place))
