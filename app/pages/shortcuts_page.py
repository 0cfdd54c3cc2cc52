"""The page of keyboard shortcuts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
)

from app.widgets.commands import COMMANDS, LOCAL, key_words, words
from app.widgets.page import Page


class ShortcutsPage(Page):
    """Lists the keys, from the table of commands."""

    def __init__(self) -> None:
        super().__init__(self.tr("Keyboard shortcuts"), scrolls=False)
        rows = [
            (key_words(*command.keys), words(command.label).rstrip("\u2026"))
            for command in COMMANDS
            if command.keys
        ]
        rows += [(key_words(keys), words(text)) for keys, text in LOCAL]
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

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self.table.setFocus()
