"""The chats as rows under headings: pinned, today, yesterday, and so on."""

from __future__ import annotations

import datetime
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QDate,
    QLocale,
    QModelIndex,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.store.chats import ChatRow
from app.text.language import translate

N_STEP = 200  # rows that are added at once

Index = QModelIndex | QPersistentModelIndex


class ChatListModel(QAbstractListModel):
    """Rows are headings (text, or a Folder) and chats (ChatRow).

    Signals:
        renamed: (chat id, title) the user renamed a chat.
    """

    renamed = Signal(int, str)

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()  # folders whose chats are not shown
        self._items: list[str | Folder | ChatRow] = []
        self.busy: set[int] = set()  # chats with an answer in progress
        self._n_shown = 0  # the other rows follow when the user scrolls

    def show_rows(self, rows: list[ChatRow], with_headings: bool = True) -> None:
        """Replace the list. REQUIRES: the rows are sorted as ChatStore.chats() sorts them."""
        self.beginResetModel()
        self._items = []
        today = datetime.date.today()
        last: str | Folder = ""
        for row in rows:
            if with_headings:
                text = heading(row, today)
                if text != last:
                    self._items.append(text)
                    last = text
                if isinstance(text, Folder) and text in self.closed:
                    continue
            self._items.append(row)
        self._n_shown = min(max(self._n_shown, N_STEP), len(self._items))
        self.endResetModel()

    def canFetchMore(self, parent: Index) -> bool:  # noqa: D102
        return not parent.isValid() and self._n_shown < len(self._items)

    def fetchMore(self, parent: Index) -> None:  # noqa: D102
        last = min(self._n_shown + N_STEP, len(self._items))
        self.beginInsertRows(QModelIndex(), self._n_shown, last - 1)
        self._n_shown = last
        self.endInsertRows()

    def chat(self, index: Index) -> ChatRow | None:
        """Return the chat of a row; None for a heading."""
        item = self._items[index.row()] if index.isValid() else None
        return item if isinstance(item, ChatRow) else None

    def folder(self, index: Index) -> str:
        """Return the folder of a heading; "" for other rows."""
        item = self._items[index.row()] if index.isValid() else None
        return str(item) if isinstance(item, Folder) else ""

    def row_of(self, chat_id: int) -> int:
        """Return the row of a chat, or -1."""
        for row, item in enumerate(self._items[: self._n_shown]):
            if isinstance(item, ChatRow) and item.id == chat_id:
                return row
        return -1

    def rowCount(self, parent: Index | None = None) -> int:  # noqa: D102
        return 0 if parent is not None and parent.isValid() else self._n_shown

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: D102
        item = self._items[index.row()]
        roles = Qt.ItemDataRole
        if isinstance(item, Folder) and role == roles.DisplayRole:
            return f"{item} \u25b8" if item in self.closed else f"{item} \u25be"
        if isinstance(item, str):
            return str(item) if role in (roles.DisplayRole, roles.AccessibleTextRole) else None
        if role in (roles.DisplayRole, roles.EditRole, roles.ToolTipRole):
            return item.title
        if role == roles.AccessibleTextRole:
            return (
                self.tr("{chat}, pinned").format(chat=item.title) if item.is_pinned else item.title
            )
        if role == roles.AccessibleDescriptionRole and item.id in self.busy:
            return translate("chats", "An answer is being written")
        if role == roles.AccessibleDescriptionRole:
            return item.snippet
        return None

    def setData(  # noqa: D102
        self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole
    ) -> bool:
        item = self.chat(index)
        if item is None or role != Qt.ItemDataRole.EditRole or not str(value).strip():
            return False
        self.renamed.emit(item.id, str(value))
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:  # noqa: D102
        flag = Qt.ItemFlag
        if self.chat(index) is None:
            return flag.ItemIsEnabled
        return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable


class Folder(str):
    """The name of a folder, as the heading of its chats."""


def heading(row: ChatRow, today: datetime.date) -> str | Folder:
    """Return the heading of a chat."""
    if row.is_pinned:
        return translate("chats", "Pinned")
    if row.folder:
        return Folder(row.folder)
    day = datetime.date.fromtimestamp(row.changed_s)
    n_day = (today - day).days
    if n_day <= 0:
        return translate("chats", "Today")
    if n_day == 1:
        return translate("chats", "Yesterday")
    if n_day < 7:
        return translate("chats", "This week")
    if n_day < 31:
        return translate("chats", "This month")
    return QLocale().toString(QDate(day.year, day.month, 1), "MMMM yyyy")
