"""The table of models that can be downloaded."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, QObject, Qt

from app.library import words
from app.library.columns import Column, ColumnTable, Index
from app.library.search import Found
from app.library.table import verdict_dot
from app.text import units


def _verdict(item: Found) -> str:
    return words.short(item.row.entry, item.row.verdict) if _is_known(item) else ""


def _is_known(item: Found) -> bool:
    return item.row.verdict is not None or bool(item.row.entry.trouble)


def _quantisation(item: Found) -> str:
    facts = item.row.entry.facts
    return facts.quantisation if facts else item.offer.quantisation


COLUMNS = (
    Column[Found](QT_TRANSLATE_NOOP("library", "Name"), 300, lambda item: item.offer.name),
    Column[Found](QT_TRANSLATE_NOOP("library", "On this computer"), 230, _verdict),
    Column[Found](QT_TRANSLATE_NOOP("library", "Type"), 100, _quantisation),
    Column[Found](
        QT_TRANSLATE_NOOP("library", "Files"),
        70,
        lambda item: units.number(len(item.offer.files)),
        is_number=True,
    ),
    Column[Found](
        QT_TRANSLATE_NOOP("library", "Size"),
        100,
        lambda item: units.size(item.offer.size_bytes),
        is_number=True,
    ),
)
HERE, TYPE, FILES = 1, 2, 3


class GetTable(ColumnTable[Found]):
    """The models of a listing."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(COLUMNS, HERE, parent)

    def show_found(self, found: list[Found]) -> None:
        """Replace the models."""
        same = [item.offer for item in found] == [item.offer for item in self.rows]
        self.take_rows(found, same=same)

    def is_faint(self, row: Found) -> bool:
        """Return whether a model cannot be downloaded."""
        return bool(row.row.entry.trouble)

    def data(self, index: Index, role: int = 0) -> Any:  # noqa: D102
        is_dot = role == Qt.ItemDataRole.DecorationRole and index.column() == HERE
        if is_dot and index.isValid() and index.row() < len(self.rows):
            item = self.rows[index.row()]
            return verdict_dot(item.row) if _is_known(item) else None
        return super().data(index, role)
