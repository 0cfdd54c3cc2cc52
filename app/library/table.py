"""The table of models: the text and the sort key of each column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, QObject, QSortFilterProxyModel, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPixmap

from app.library import words
from app.library.columns import Column, ColumnTable, Index, T
from app.library.library import Row
from app.session import known_models as models
from app.text import units
from app.text.language import translate
from app.widgets import theme
from backend.library.estimate import Kind
from backend.library.facts import Facts

_SORT = Qt.ItemDataRole.UserRole
_COLOURS = {Kind.FITS: "resident", Kind.CACHE: "arriving", Kind.LARGE: "stall"}


def _of_facts(read: Callable[[Facts], T], otherwise: T) -> Callable[[Row], T]:
    return lambda row: read(row.entry.facts) if row.entry.facts else otherwise


def title(row: Row) -> str:
    """Return a model's title in the table: its file name, because model names may be equal."""
    return (
        translate("library", "Embedded model")
        if models.is_embedded(row.entry.path)
        else row.entry.name
    )


def kind(row: Row) -> Kind:
    """Return the kind of a row's verdict."""
    return row.verdict.kind if row.verdict is not None else Kind.BROKEN


def _verdict_key(row: Row) -> tuple[int, float]:
    speed = row.verdict.best_speed if row.verdict is not None else None
    return kind(row).value, -speed.tokens_per_s if speed else 0.0


COLUMNS = (
    Column[Row](QT_TRANSLATE_NOOP("library", "Name"), title, lambda row: title(row).casefold()),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "On this computer"),
        lambda row: words.short(row.entry, row.verdict),
        _verdict_key,
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Parameters"),
        _of_facts(words.total_and_active, ""),
        _of_facts(lambda f: f.n_parameter, 0),
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Type"),
        _of_facts(lambda f: f.quantisation, ""),
        _of_facts(lambda f: f.quantisation, ""),
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Size"),
        lambda row: units.size(row.entry.size_bytes),
        lambda row: row.entry.size_bytes,
        is_number=True,
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Architecture"),
        _of_facts(lambda f: f.architecture, ""),
        _of_facts(lambda f: f.architecture, ""),
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Layers × experts × used"),
        _of_facts(words.shape, ""),
        _of_facts(lambda f: f.n_layer * max(f.n_expert, 1), 0),
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Context"),
        _of_facts(lambda f: units.number(f.context_length), ""),
        _of_facts(lambda f: f.context_length, 0),
        is_number=True,
    ),
    Column[Row](
        QT_TRANSLATE_NOOP("library", "Last used"),
        lambda row: words.ago(row.used_s),
        lambda row: -row.used_s,
    ),
)
HERE = 1


class Table(ColumnTable[Row]):
    """The models of the library."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(COLUMNS, HERE, parent)
        self._loaded: Path | None = None

    def show_rows(self, rows: list[Row], loaded: Path | None) -> None:
        """Replace the models, and mark the loaded one."""
        self._loaded = loaded
        same = [row.entry.path for row in rows] == [row.entry.path for row in self.rows]
        self.take_rows(rows, same=same)

    def is_faint(self, row: Row) -> bool:
        """Return whether a model cannot be loaded."""
        return row.entry.facts is None

    def data(self, index: Index, role: int = 0) -> Any:  # noqa: D102
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        row, column = self.rows[index.row()], COLUMNS[index.column()]
        if role == _SORT:
            return column.key(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            path = str(row.entry.path).encode("utf-8", "replace").decode("utf-8")
            return f"{words.sentence(row.entry, row.verdict)}\n{path}"
        if role == Qt.ItemDataRole.DecorationRole and index.column() == HERE:
            return verdict_dot(row)
        if role == Qt.ItemDataRole.FontRole and row.entry.path == self._loaded:
            font = QFont()
            font.setBold(True)
            return font if index.column() == 0 else None
        return super().data(index, role)


class SortedTable(QSortFilterProxyModel):
    """Sorts by the columns' keys, and keeps the rows that match the search."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words: list[str] = []

    def search(self, text: str) -> None:
        """Keep the rows that contain all words of a text, in any case."""
        self.beginFilterChange()
        self._words = text.casefold().split()
        self.endFilterChange()

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:  # noqa: D102
        table = self.sourceModel()
        assert isinstance(table, Table)
        row = table.rows[source_row]
        cells = [column.text(row) for column in COLUMNS]
        text = " ".join((*cells, row.entry.facts.name if row.entry.facts else "")).casefold()
        return all(word in text for word in self._words)

    def lessThan(self, left: Index, right: Index) -> bool:  # noqa: D102
        table = self.sourceModel()
        assert isinstance(table, Table)
        key = COLUMNS[left.column()].key
        return bool(key(table.rows[left.row()]) < key(table.rows[right.row()]))


def verdict_dot(row: Row) -> QPixmap:
    """Draw a dot in the colour of a verdict."""
    return _dot(theme.colour(_COLOURS.get(kind(row), "faint")))


def _dot(colour: QColor) -> QPixmap:
    pixmap = QPixmap(40, 40)
    pixmap.setDevicePixelRatio(4)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawEllipse(1, 1, 8, 8)
    painter.end()
    return pixmap
