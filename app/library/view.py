"""The page of the models on this machine."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.library import words
from app.library.columns import dress, fit
from app.library.details import Details
from app.library.library import Library, Row
from app.library.table import HERE, SortedTable, Table
from app.text import units
from app.text.messages import localized
from app.widgets.icon_button import IconButton
from app.widgets.page import small
from app.widgets.parts import filled, spaced, text_label

REFRESH_MS = 4000  # the free memory changes while the page is visible
_LEAVES = (5, 7, 8, 6, 2, 3)  # columns that a narrow page hides, the first first


class LibraryView(QWidget):
    """Search, table, details and folders of a Library.

    Signals:
        picked: (Path) the model that the user wants to load.
        closed: the user wants the chat.
    """

    picked = Signal(object)
    closed = Signal()

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.setObjectName("library")
        self.library = library
        self._loaded: Path | None = None
        self._picked: Path | None = None  # the model with its details shown
        self._busy = False
        self.search = QLineEdit()
        self.search.setPlaceholderText(self.tr("Search models"))
        self.search.setAccessibleName(self.tr("Search models"))
        self.search.setMaximumWidth(320)
        self.folders = QPushButton(self.tr("Folders\u2026"))
        self.folders.setAccessibleName(self.tr("Folders of models"))
        self._menu = QMenu(self.folders)
        self._menu.aboutToShow.connect(self._fill_menu)
        self.folders.clicked.connect(
            lambda: self._menu.popup(self.folders.mapToGlobal(self.folders.rect().bottomLeft()))
        )
        self.get = QPushButton()
        self.show_downloads(0, 0)
        self.close_button = IconButton("close", self.tr("Back to the chat (Esc)"))
        self.close_button.clicked.connect(self.closed)
        self.table = QTableView()
        self.details = Details()
        self.details.picked.connect(self.picked)
        self.details.check_asked.connect(library.check_file)
        self.details.check_stopped.connect(library.stop_check)
        library.check_moved.connect(lambda: self.details.show_check(library.check))
        self._empty = text_label("muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setWordWrap(True)
        self.foot = small("")
        self._machine = QPushButton()
        self._machine.setProperty("role", "quiet")
        self._machine.setAccessibleName(self.tr("Measure this machine"))
        self._machine.setToolTip(self.tr("Measure this machine again; it takes about two seconds."))
        self._machine.clicked.connect(lambda: library.measure(again=True))
        self._rows = Table(self)
        self._sorted = SortedTable(self)
        self._sorted.setSourceModel(self._rows)
        self._refresh = QTimer(self, interval=REFRESH_MS)
        self._refresh.timeout.connect(library.judge)
        self._refresh.timeout.connect(library.measure)  # measures once, when the machine is idle
        self._dress_table()
        self._lay_out()
        self.search.textChanged.connect(self._search)
        self.search.installEventFilter(self)
        library.changed.connect(self._show_rows)
        library.busy.connect(self._show_busy)

    @property
    def shown(self) -> list[Row]:
        """Return the rows in the order of the table."""
        return [self._row(self._sorted.index(i, 0)) for i in range(self._sorted.rowCount())]

    def show_loaded(self, path: Path | None) -> None:
        """Mark the loaded model."""
        if path != self._loaded:
            self._loaded = path
            self._show_rows()

    def show_downloads(self, n_running: int, n_stopped: int) -> None:
        """Show the number of running or stopped downloads on the button."""
        text = self.tr("Get models\u2026")
        if n_running:
            text = self.tr("Getting %n model(s)\u2026", "", n_running)
        elif n_stopped:
            text = self.tr("%n download(s) stopped\u2026", "", n_stopped)
        self.get.setText(text)
        self.get.setAccessibleName(text)

    def pick(self, path: Path) -> None:
        """Show the details of a model."""
        for i, row in enumerate(self.shown):
            if row.entry.path == path:
                self.table.selectRow(i)

    # Construction

    def _dress_table(self) -> None:
        table = self.table
        table.setModel(self._sorted)
        table.setAccessibleName(self.tr("Models"))
        dress(table)
        table.setSortingEnabled(True)
        table.sortByColumn(HERE, Qt.SortOrder.AscendingOrder)
        table.selectionModel().currentRowChanged.connect(self._show_details)
        table.doubleClicked.connect(self._load)
        table.installEventFilter(self)

    def _lay_out(self) -> None:
        head = filled(spaced(QHBoxLayout(), 10), text_label("title", self.tr("Models")))
        head.addSpacing(14)
        filled(head, (self.search, 1), self.folders, self.get, 1, self.close_button)
        foot = filled(QHBoxLayout(), (self.foot, 1), self._machine)
        layout = spaced(QVBoxLayout(self), 12, 24, 18, 24, 14)
        filled(layout, head, (self.table, 1), (self._empty, 1), self.details, foot)
        order = (self.search, self.folders, self.get, self.close_button, self.table,
                 self.details.check, self.details.folder, self.details.load,
                 self._machine)  # fmt: skip
        for before, after in itertools.pairwise(order):
            QWidget.setTabOrder(before, after)

    def _fill_menu(self) -> None:
        menu = self._menu
        menu.clear()
        menu.addAction(self.tr("Add a folder\u2026"), self._add_folder)
        for program, folder in self.library.folders:
            if program:
                menu.addSeparator()
                action = menu.addAction(f"{program}: {folder}")
                action.setEnabled(False)
        if self.library.history.folders:
            menu.addSeparator()
        for folder in self.library.history.folders:
            below = menu.addMenu(str(folder))
            below.addAction(
                self.tr("Remove from the list"),
                functools.partial(self.library.remove_folder, folder),
            )

    # Content

    def _show_rows(self) -> None:
        if not self.isVisible():
            return
        picked = self._picked
        self._rows.show_rows(self.library.rows, self._loaded)
        self._sorted.invalidate()
        entries = [row.entry for row in self.library.rows]
        shown = self._sorted.rowCount()
        self._empty.setText(self._why_empty())
        self._empty.setVisible(not shown)
        self.table.setVisible(bool(shown))
        fit(self.table, _LEAVES)
        if picked is not None:
            self.pick(picked)
        current = self.table.currentIndex()
        if not current.isValid() and shown:
            self.table.selectRow(0)
        self._show_details()
        places = self.library.scan.places
        n_bytes = sum(entry.size_bytes for entry in entries)
        foot = self.tr("Looking through the folders\u2026") if self._busy and not entries else ""
        trouble = localized(self.library.history.trouble)
        foot = foot or words.places(places, len(entries), n_bytes)
        self.foot.setText(f"{foot} {trouble}".strip())
        self._machine.setText(self._machine_words())
        self._machine.setEnabled(not self.library.is_measuring)

    def _why_empty(self) -> str:
        if self.library.rows:
            return self.tr("No model has these words.")
        if self._busy:
            return self.tr("Looking through the folders\u2026")
        return self.tr(
            "There are no models yet. Add a folder, or drop one or a GGUF file on the window."
        )

    def _machine_words(self) -> str:
        machine = self.library.machine
        if self.library.is_measuring:
            return self.tr("Measuring this machine\u2026")
        if machine is None:
            return self.tr("Measure this machine")
        return self.tr("drive {drive} GB/s, memory {memory} GB/s").format(
            drive=units.decimal(machine.link_gb_per_s, 2),
            memory=units.decimal(machine.memory_gb_per_s, 1),
        )

    def _show_details(self, *_: object) -> None:
        index = self.table.currentIndex()
        row = self._row(index) if index.isValid() else None
        self._picked = row.entry.path if row is not None else None
        self.details.show_row(row, self._loaded)
        self.details.show_check(self.library.check)

    def _show_busy(self, busy: bool) -> None:
        self._busy = busy
        if not busy or not self.library.rows:
            self._show_rows()

    def _row(self, index: QModelIndex) -> Row:
        return self._rows.rows[self._sorted.mapToSource(index).row()]

    # Actions of the user

    def _search(self, text: str) -> None:
        self._sorted.search(text)
        self._show_rows()

    def _load(self, *_: object) -> None:
        if self.details.load.isEnabled() and self.details.isVisible():
            self.details.load.click()

    def _add_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(self, self.tr("Add a folder of models"))
        if name:
            self.library.add_folder(Path(name))

    # Events

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            if enter:
                self._load()
                return True
            if watched is self.search and event.key() == Qt.Key.Key_Down:
                self.table.setFocus()
                return True
        return super().eventFilter(watched, event)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self._refresh.start()
        self.library.begin()
        self._show_rows()
        self.search.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102
        super().hideEvent(event)
        self._refresh.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        fit(self.table, _LEAVES)
