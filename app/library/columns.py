"""Tables of models: the definition of columns, and the look of such a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from app.text.language import translate
from app.widgets import theme

Index = QModelIndex | QPersistentModelIndex
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: heading (English), width in pixels, text, and sort key."""

    title: object
    width: int
    text: Callable[[T], str]
    key: Callable[[T], Any] = lambda _: None
    is_number: bool = False

    @property
    def alignment(self) -> Qt.AlignmentFlag:
        """Return the alignment of its cells and its heading."""
        side = Qt.AlignmentFlag.AlignRight if self.is_number else Qt.AlignmentFlag.AlignLeft
        return side | Qt.AlignmentFlag.AlignVCenter


class ColumnTable(QAbstractTableModel, Generic[T]):
    """A table model. The columns after `strong` have a quieter colour."""

    def __init__(
        self, columns: Sequence[Column[T]], strong: int, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.columns = columns
        self.rows: list[T] = []
        self._strong = strong

    def take_rows(self, rows: list[T], *, same: bool) -> None:
        """Replace the rows. `same`: they are the same models, so only report changed contents."""
        if not same:
            self.beginResetModel()
        self.rows = rows
        if not same:
            self.endResetModel()
        elif rows:
            last = self.index(len(rows) - 1, len(self.columns) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def is_faint(self, row: T) -> bool:
        """Return whether a row cannot be used."""
        return False

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102
        return 0 if parent.isValid() else len(self.columns)

    def headerData(  # noqa: D102
        self, section: int, orientation: Qt.Orientation, role: int = 0
    ) -> Any:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return translate("library", str(self.columns[section].title))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.columns[section].alignment
        return None

    def data(self, index: Index, role: int = 0) -> Any:  # noqa: D102
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        row, column = self.rows[index.row()], self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return column.alignment
        if role == Qt.ItemDataRole.ForegroundRole:
            if self.is_faint(row):
                return QBrush(theme.colour("faint"))
            return None if index.column() <= self._strong else QBrush(theme.colour("muted"))
        return None


def dress(table: QTableView, columns: Sequence[Column[Any]]) -> None:
    """Set the look and behaviour of a table of models. REQUIRES: its model is set."""
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setTabKeyNavigation(False)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 18)
    header = table.horizontalHeader()
    header.setHighlightSections(False)
    header.setMinimumSectionSize(60)
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
    for i, column in enumerate(columns[1:], 1):
        header.resizeSection(i, column.width)
