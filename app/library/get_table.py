"""The table of models that can be downloaded."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QBrush

from app import theme, units
from app.language import translate
from app.library import words
from app.library.search import Found
from app.library.table import Index, verdict_dot

HEADINGS = (
    QT_TRANSLATE_NOOP("library", "Name"),
    QT_TRANSLATE_NOOP("library", "Here"),
    QT_TRANSLATE_NOOP("library", "Type"),
    QT_TRANSLATE_NOOP("library", "Files"),
    QT_TRANSLATE_NOOP("library", "Size"),
)
WIDTHS = (300, 230, 100, 70, 100)
HERE, TYPE, FILES, SIZE = 1, 2, 3, 4


class GetTable(QAbstractTableModel):
    """The models of a listing as Qt wants them."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self.found: list[Found] = []

    def show_found(self, found: list[Found]) -> None:
        """Show models; where they are the same, only their contents are announced."""
        same = [item.offer for item in found] == [item.offer for item in self.found]
        if not same:
            self.beginResetModel()
        self.found = found
        if not same:
            self.endResetModel()
        elif found:
            last = self.index(len(found) - 1, len(HEADINGS) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102, N802
        return 0 if parent.isValid() else len(self.found)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102, N802
        return 0 if parent.isValid() else len(HEADINGS)

    def headerData(  # noqa: D102, N802
        self, section: int, orientation: Qt.Orientation, role: int = 0
    ) -> Any:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return translate("library", str(HEADINGS[section]))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        return None

    def data(self, index: Index, role: int = 0) -> Any:  # noqa: D102
        if not index.isValid() or index.row() >= len(self.found):
            return None
        item, column = self.found[index.row()], index.column()
        row = item.row
        known = row.verdict is not None or bool(row.entry.trouble)
        if role == Qt.ItemDataRole.DisplayRole:
            return (
                item.offer.name,
                words.short(row.entry, row.verdict) if known else "",
                row.entry.facts.quantisation if row.entry.facts else item.offer.quantisation,
                units.number(len(item.offer.files)),
                units.size(item.offer.size_bytes),
            )[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.DecorationRole and column == HERE and known:
            return verdict_dot(row)
        if role == Qt.ItemDataRole.ForegroundRole:
            if row.entry.trouble:
                return QBrush(theme.colour("faint"))
            return None if column <= HERE else QBrush(theme.colour("muted"))
        return None


def _alignment(column: int) -> Qt.AlignmentFlag:
    is_number = column in (FILES, SIZE)
    side = Qt.AlignmentFlag.AlignRight if is_number else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
