"""Tables of models: the definition of columns, and the look of such a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import (
    QT_TRANSLATE_NOOP,
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
)
from PySide6.QtGui import QBrush
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from app.text.language import translate
from app.widgets import theme
from app.widgets.scroll_column import BAR_WIDTH

_COLUMNS = str(QT_TRANSLATE_NOOP("library", "Columns"))
_N_MEASURED = 100  # rows whose cells decide on the width of a column
_NAME_WIDTH = 230  # pixels with the usual text; a name may be longer

Index = QModelIndex | QPersistentModelIndex
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: heading (English), text, and sort key."""

    title: object
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
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return column.text(row)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return column.alignment
        if role == Qt.ItemDataRole.ForegroundRole:
            if self.is_faint(row):
                return QBrush(theme.colour("faint"))
            return None if index.column() <= self._strong else QBrush(theme.colour("muted"))
        return None


def dress(table: QTableView) -> None:
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
    header.setAccessibleName(translate("library", _COLUMNS))
    header.setResizeContentsPrecision(_N_MEASURED)
    header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)


def fit(table: QTableView, leaves: Sequence[int]) -> None:
    """Hide columns until the others have room for what is in them, the first of `leaves` first."""
    header = table.horizontalHeader()
    for column in leaves:
        table.setColumnHidden(column, False)
    wanted = [
        max(header.sectionSizeHint(i), table.sizeHintForColumn(i)) for i in range(header.count())
    ]
    page = table.parentWidget()
    layout = page.layout() if page is not None else None
    if page is None or layout is None:
        return
    edges = layout.contentsMargins()  # a table that is not shown yet has no width
    room = page.width() - edges.left() - edges.right() - BAR_WIDTH
    over = theme.wide(_NAME_WIDTH) + sum(wanted[1:]) - room
    for column in leaves:
        if over > 0:
            table.setColumnHidden(column, True)
            over -= wanted[column]
