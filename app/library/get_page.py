"""The page to find models on Hugging Face and to download them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.library import words
from app.library.columns import dress
from app.library.download_row import DownloadRow
from app.library.get_table import COLUMNS, FILES, TYPE, GetTable
from app.library.search import Found, Search
from app.text.messages import localized
from app.widgets.icon_button import IconButton
from backend.downloads.address import endpoint
from backend.downloads.job import Job
from backend.downloads.manager import Download, Downloads

_REFRESH_MS = 400
_ROWS_HEIGHT_MAX = 260
_NARROW = 780  # below this width the less important columns are hidden


class GetPage(QWidget):
    """A field for an address, the models found there, and the downloads.

    Signals:
        picked: (Path) the user wants to load a downloaded model.
        left: the user wants the list of models.
        closed: the user wants the chat.
    """

    picked = Signal(object)
    left = Signal()
    closed = Signal()

    def __init__(self, search: Search, downloads: Downloads, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.search = search
        self.downloads = downloads
        self.is_busy = False
        self._refusal = ""
        self.address = QLineEdit()
        self.address.setPlaceholderText(self.tr("owner/name, or the address of a GGUF file"))
        self.address.setAccessibleName(self.tr("Repository or address"))
        self.look_up = QPushButton(self.tr("Look up"))
        self.look_up.setProperty("role", "primary")
        self.back = QPushButton(self.tr("My models"))
        self.close_button = IconButton("close", self.tr("Back to the chat (Esc)"))
        self.table = QTableView()
        self._model = GetTable(self)
        self._words_label = QLabel()  # on the selected model
        self._hint = QLabel()  # in place of an empty table
        self._hint.setProperty("role", "muted")
        self._hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._progress = QProgressBar()
        self._progress.setTextVisible(False)
        self._progress.setRange(0, 0)
        self._progress.setAccessibleName(self.tr("Asking the server"))
        self._folder = QLabel()
        self.change = QPushButton(self.tr("Change\u2026"))
        self.change.setAccessibleName(self.tr("Change the folder that downloads go to"))
        self.download = QPushButton(self.tr("Download"))
        self.download.setProperty("role", "primary")
        self._privacy = QLabel(
            self.tr(
                "{host}, or the server of an address, is contacted only for your searches and "
                "downloads."
            ).format(host=urlsplit(endpoint()).hostname or endpoint())
        )
        for label in (self._words_label, self._hint, self._folder, self._privacy):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setMinimumWidth(10)
        for label in (self._words_label, self._hint, self._privacy):
            label.setWordWrap(True)
        for label in (self._folder, self._privacy):
            label.setProperty("role", "small")
        self._rows: dict[int, DownloadRow] = {}
        self._column = QVBoxLayout()
        self._scroll = QScrollArea()
        self._refresh = QTimer(self, interval=_REFRESH_MS)
        self._dress_table()
        self._lay_out()
        self._connect()
        self._show_found()
        self.show_downloads()

    @property
    def rows(self) -> list[DownloadRow]:
        """Return the rows of the downloads."""
        return list(self._rows.values())

    @property
    def sentence(self) -> str:
        """Return the sentence below the table, or in its place."""
        return self._words_label.text() or self._hint.text()

    @property
    def chosen(self) -> Found | None:
        """Return the model that is selected in the table."""
        row = self.table.currentIndex().row()
        return self._model.rows[row] if 0 <= row < len(self._model.rows) else None

    def show_downloads(self) -> None:
        """Show the present state of the downloads."""
        items = {item.number: item for item in self.downloads.all()}
        for number in list(self._rows):
            if number not in items:
                row = self._rows.pop(number)
                row.hide()
                row.deleteLater()
        for number, item in items.items():
            if number in self._rows:
                self._rows[number].show_download(item)
            else:
                self._add_row(item)
        self._scroll.setVisible(bool(items))
        room = max(self._scroll.viewport().width() - 6, 200)
        height = sum(row.heightForWidth(room) + 6 for row in self._rows.values())
        self._scroll.setFixedHeight(min(height, _ROWS_HEIGHT_MAX))
        self._show_folder()

    # Construction

    def _dress_table(self) -> None:
        table = self.table
        table.setModel(self._model)
        table.setAccessibleName(self.tr("Models that can be downloaded"))
        dress(table, COLUMNS)

    def _lay_out(self) -> None:
        title = QLabel(self.tr("Get models"))
        title.setProperty("role", "title")
        head = QHBoxLayout()
        head.setSpacing(10)
        head.addWidget(title)
        head.addStretch(1)
        head.addWidget(self.back)
        head.addWidget(self.close_button)
        asked = QHBoxLayout()
        asked.setSpacing(10)
        asked.addWidget(self.address, 1)
        asked.addWidget(self.look_up)
        into = QHBoxLayout()
        into.setSpacing(10)
        into.addWidget(self._folder, 1)
        into.addWidget(self.change)
        into.addWidget(self.download)
        inside = QWidget()
        inside.setObjectName("transcriptColumn")
        self._column.setContentsMargins(0, 0, 6, 0)
        self._column.setSpacing(6)
        self._column.addStretch(1)
        inside.setLayout(self._column)
        self._scroll.setWidget(inside)
        self._scroll.setWidgetResizable(True)
        self._scroll.setAccessibleName(self.tr("Downloads"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 18, 24, 14)
        layout.setSpacing(12)
        layout.addLayout(head)
        layout.addLayout(asked)
        layout.addWidget(self._progress)
        layout.addWidget(self.table, 1)
        layout.addWidget(self._hint, 1)
        layout.addWidget(self._words_label)
        layout.addLayout(into)
        layout.addWidget(self._scroll)
        layout.addWidget(self._privacy)
        order = (self.address, self.look_up, self.table, self.change, self.download, self._scroll,
                 self.back, self.close_button)  # fmt: skip
        for before, after in zip(order, order[1:], strict=False):
            QWidget.setTabOrder(before, after)

    def _connect(self) -> None:
        self.address.returnPressed.connect(self._look_up)
        self.address.installEventFilter(self)
        self.table.installEventFilter(self)
        self.look_up.clicked.connect(self._look_up)
        self.back.clicked.connect(self.left)
        self.close_button.clicked.connect(self.closed)
        self.change.clicked.connect(self._change_folder)
        self.download.clicked.connect(self._download)
        self.table.doubleClicked.connect(self._download)
        self.table.selectionModel().currentRowChanged.connect(self._picked)
        self.search.changed.connect(self._show_found)
        self.search.refused.connect(self._show_refusal)
        self.search.busy.connect(self._show_busy)
        self._refresh.timeout.connect(self.show_downloads)

    def _add_row(self, item: Download) -> None:
        row = DownloadRow(item)
        row.paused.connect(self.downloads.pause)
        row.resumed.connect(self.downloads.resume)
        row.removed.connect(self.downloads.remove)
        row.picked.connect(self.picked)
        self._rows[item.number] = row
        self._column.insertWidget(self._column.count() - 1, row)

    # Content

    def _show_found(self) -> None:
        found = self.search.found
        self._model.show_found(found)
        if found and not self.table.currentIndex().isValid():
            self.table.selectRow(0)
        self._show_words()

    def _show_refusal(self, sentence: str) -> None:
        self._refusal = localized(sentence)
        self._show_words()

    def _show_busy(self, busy: bool) -> None:
        self.is_busy = busy
        if busy:
            self._refusal = ""
        self._show_words()

    def _show_words(self) -> None:
        self._progress.setVisible(self.is_busy)
        chosen = self.chosen
        sentence = self._words()
        self._words_label.setText(sentence if chosen is not None else "")
        self._words_label.setVisible(chosen is not None)
        self._hint.setText("" if chosen is not None else sentence)
        self._hint.setVisible(chosen is None)
        self.table.setVisible(chosen is not None)
        self.download.setEnabled(chosen is not None and not chosen.row.entry.trouble)
        self._show_folder()

    def _words(self) -> str:
        listing, chosen = self.search.listing, self.chosen
        if self._refusal:
            return self._refusal
        if listing is None or chosen is None:
            if self.is_busy:
                return self.tr("Asking\u2026")
            return self.tr(
                "Name a repository, such as unsloth/Qwen3-30B-A3B-GGUF, to see its models and what "
                "each would do here. Nothing is fetched before you say so."
            )
        row = chosen.row
        parts = []
        if row.verdict is not None or row.entry.trouble:
            parts.append(words.sentence(row.entry, row.verdict))
        if not chosen.is_exact and self.is_busy:
            parts.append(self.tr("Reading the header of the file to know more\u2026"))
        elif not chosen.is_exact:
            parts.append(self.tr("Judged by its size and by another file of this repository."))
        if listing.is_gated:
            parts.append(
                self.tr(
                    "The repository is gated: accept its conditions on its page in a browser, and "
                    "set HF_TOKEN to a token of the same account."
                )
            )
        return " ".join(parts)

    def _show_folder(self) -> None:
        text = self.tr("Into {folder}").format(folder=self.downloads.folder)
        elided = self._folder.fontMetrics().elidedText(
            text, Qt.TextElideMode.ElideMiddle, max(self._folder.width(), 200)
        )
        trouble = localized(self.downloads.trouble)
        self._folder.setText(f"{elided}. {trouble}" if trouble else elided)
        self._folder.setToolTip(str(self.downloads.folder))

    # Actions of the user

    def _look_up(self) -> None:
        if text := self.address.text().strip():
            self._refusal = ""
            self.search.look_up(text)

    def _picked(self, *_: object) -> None:
        row = self.table.currentIndex().row()
        if self._model.rows and row >= 0:
            self.search.read(row)
        self._show_words()

    def _download(self, *_: object) -> None:
        chosen, listing = self.chosen, self.search.listing
        if chosen is not None and listing is not None and not chosen.row.entry.trouble:
            self.downloads.add(Job.of(chosen.offer, listing.source, self.downloads.folder))
            self.show_downloads()

    def _change_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(
            self, self.tr("Folder that downloads go to"), str(self.downloads.folder)
        )
        if name:
            self.downloads.set_folder(Path(name))
            self._show_folder()

    # Events

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102, N802
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if watched is self.table and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._download()
                return True
            if watched is self.address and event.key() == Qt.Key.Key_Down:
                self.table.setFocus()
                return True
        return super().eventFilter(watched, event)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102, N802
        super().showEvent(event)
        self._refresh.start()
        self.show_downloads()
        self.address.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        for column in (TYPE, FILES):
            self.table.setColumnHidden(column, self.width() < _NARROW)
        self._show_folder()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102, N802
        super().hideEvent(event)
        self._refresh.stop()
