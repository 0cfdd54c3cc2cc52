"""The page of keyboard shortcuts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.widgets.commands import COMMANDS, LOCAL, words
from app.widgets.page import Page


class ShortcutsPage(Page):
    """Lists the keys, from the table of commands."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("Keyboard shortcuts"), scrolls=False, parent=parent)
        rows = [
            (self._keys(command.keys), words(command.label).rstrip("\u2026"))
            for command in COMMANDS
            if command.keys
        ]
        rows += [(self._keys((keys,)), words(text)) for keys, text in LOCAL]
        self.table = table = QTableWidget(len(rows), 2)
        table.setAccessibleName(self.tr("Keyboard shortcuts"))
        table.setHorizontalHeaderLabels([self.tr("Keys"), self.tr("What they do")])
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setTabKeyNavigation(False)
        table.setShowGrid(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 14)
        table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setAccessibleName(self.tr("Columns"))
        table.horizontalHeader().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        table.setColumnWidth(0, 190)
        for row, texts in enumerate(rows):
            for column, text in enumerate(texts):
                table.setItem(row, column, QTableWidgetItem(text))
        self.column.addWidget(table, 1)

    def _keys(self, keys: tuple[str, ...]) -> str:
        native = QKeySequence.SequenceFormat.NativeText
        return "   ".join(QKeySequence(key).toString(native) for key in keys)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self.table.setFocus()
