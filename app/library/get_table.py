"""The tables of models that can be downloaded, and of repositories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, QObject, Qt
from PySide6.QtGui import QFont

from app.library import words
from app.library.columns import Column, ColumnTable, Index
from app.library.search import Found
from app.library.table import verdict_dot
from app.text import units
from app.text.language import translate
from backend.downloads.offers import Repository

GOOD_FOR = {
    "general": QT_TRANSLATE_NOOP("library", "everything"),
    "code": QT_TRANSLATE_NOOP("library", "programming"),
    "images": QT_TRANSLATE_NOOP("library", "images and text"),
    "thinking": QT_TRANSLATE_NOOP("library", "thinking first"),
    "small": QT_TRANSLATE_NOOP("library", "small machines"),
}


def _verdict(item: Found) -> str:
    if item.there is not None:
        return translate("library", "on this computer")
    return words.short(item.row.entry, item.row.verdict) if _is_known(item) else ""


def _is_known(item: Found) -> bool:
    return item.row.verdict is not None or bool(item.row.entry.trouble)


def _quantisation(item: Found) -> str:
    facts = item.row.entry.facts
    return facts.quantisation if facts else item.offer.quantisation


def _good_for(item: Found) -> str:
    return translate("library", str(GOOD_FOR[item.curated.good_for])) if item.curated else ""


def _parameters(item: Found) -> str:
    facts = item.row.entry.facts
    return words.total_and_active(facts) if facts else ""


def _context(item: Found) -> str:
    facts = item.row.entry.facts
    return units.number(facts.context_length) if facts else ""


_NAME = Column[Found](QT_TRANSLATE_NOOP("library", "Name"), lambda item: item.offer.name)
_HERE = Column[Found](QT_TRANSLATE_NOOP("library", "On this computer"), _verdict)
_SIZE = Column[Found](
    QT_TRANSLATE_NOOP("library", "Size"),
    lambda item: units.size(item.offer.size_bytes),
    is_number=True,
)
CURATED = (
    _NAME,
    _HERE,
    Column[Found](QT_TRANSLATE_NOOP("library", "Good for"), _good_for),
    Column[Found](QT_TRANSLATE_NOOP("library", "Parameters"), _parameters),
    _SIZE,
    Column[Found](QT_TRANSLATE_NOOP("library", "Context"), _context, is_number=True),
)
FILES = (
    _NAME,
    _HERE,
    Column[Found](QT_TRANSLATE_NOOP("library", "Type"), _quantisation),
    Column[Found](
        QT_TRANSLATE_NOOP("library", "Files"),
        lambda item: units.number(len(item.offer.files)),
        is_number=True,
    ),
    _SIZE,
)
REPOSITORIES = (
    Column[Repository](QT_TRANSLATE_NOOP("library", "Repository"), lambda item: item.name),
    Column[Repository](QT_TRANSLATE_NOOP("library", "Licence"), lambda item: item.licence),
    Column[Repository](
        QT_TRANSLATE_NOOP("library", "Downloads in a month"),
        lambda item: units.number(item.n_download),
        is_number=True,
    ),
)
HERE = 1


class GetTable(ColumnTable[Found]):
    """The models of a listing, or of the curated list."""

    def __init__(self, columns: Sequence[Column[Found]], parent: QObject | None = None) -> None:
        super().__init__(columns, HERE, parent)
        self._suggested = ""

    def show_found(self, found: list[Found], suggested: Found | None) -> None:
        """Replace the models, and mark the suggested one."""
        self._suggested = suggested.offer.name if suggested is not None else ""
        same = [item.offer for item in found] == [item.offer for item in self.rows]
        self.take_rows(found, same=same)

    def is_faint(self, row: Found) -> bool:
        """Return whether a model cannot be downloaded."""
        return bool(row.row.entry.trouble)

    def data(self, index: Index, role: int = 0) -> Any:  # noqa: D102
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        item = self.rows[index.row()]
        if role == Qt.ItemDataRole.DecorationRole and index.column() == HERE:
            return verdict_dot(item.row) if _is_known(item) else None
        if role == Qt.ItemDataRole.FontRole and item.offer.name == self._suggested:
            font = QFont()
            font.setBold(True)
            return font if index.column() == 0 else None
        return super().data(index, role)
