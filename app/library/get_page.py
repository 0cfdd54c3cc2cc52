"""The page to find models on Hugging Face and to download them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.library import words
from app.library.columns import ColumnTable, dress, fit
from app.library.download_row import DownloadRow
from app.library.get_table import CURATED, FILES, REPOSITORIES, GetTable
from app.library.search import Found, Search, Shown
from app.library.token_line import TokenLine
from app.session import known_models as models
from app.text import units
from app.text.messages import localized
from app.widgets.fields import SearchField
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, filled, progress_bar, spaced, text_label
from app.widgets.scroll_column import ScrollColumn
from backend.downloads import token
from backend.downloads.address import endpoint
from backend.downloads.cards import Card
from backend.downloads.curated import curated
from backend.downloads.job import Job
from backend.downloads.manager import Download, Downloads, State
from backend.downloads.offers import Offer, Repository

_REFRESH_MS = 400
_DESCRIBE_MS = 300  # a row that is selected for this time is described
_ROWS_HEIGHT_MAX = 260
# Columns that a narrow page hides, the first first, of each table.
_LEAVES = {Shown.CURATED: (5, 3, 2, 4), Shown.REPOSITORIES: (1,), Shown.FILES: (2, 3)}


class GetPage(QWidget):
    """A field to search, the models found, and the downloads. It begins with the curated list.

    Signals:
        picked: (Path) the user wants to load a downloaded model.
        left: the user wants the list of models.
        closed: the user wants the chat.
    """

    picked = Signal(object)
    left = Signal()
    closed = Signal()

    def __init__(self, search: Search, downloads: Downloads) -> None:
        super().__init__()
        self.search = search
        self.downloads = downloads
        self.is_busy = False
        self._refusal = ""
        self._asks_for_token = False  # the last refusal
        self._guessed = ""  # the model suggested before this computer was measured
        self._shown_words = ""  # of the list, when a row was selected last
        self.address = SearchField()
        self.address.setPlaceholderText(self.tr("Words, owner/name, or the address of a GGUF file"))
        self.address.setAccessibleName(self.tr("Search models to download"))
        self.look_up = QPushButton(self.tr("Search"))
        self.list = QPushButton(self.tr("Back to the list"))
        self.back = QPushButton(self.tr("My models"))
        self.close_button = IconButton("close", self.tr("Back to the chat (Esc)"))
        self.table = QTableView()
        self._tables: dict[Shown, ColumnTable[Any]] = {
            Shown.CURATED: GetTable(CURATED, self),
            Shown.REPOSITORIES: ColumnTable(REPOSITORIES, 0, self),
            Shown.FILES: GetTable(FILES, self),
        }
        self.about = QLabel()  # the listed rows
        self.there = QLabel()  # the models that other programs have
        self.show_there = QPushButton(self.tr("Show them"))
        self.show_there.setAccessibleName(self.tr("Show the models on this computer"))
        self.measure = QPushButton(self.tr("Measure this computer"))
        self.measure.setToolTip(
            self.tr("Measures drive and memory for two seconds, to forecast the speeds.")
        )
        self._words_label = QLabel()  # on the selected model
        self.card = QLabel()  # what the hub says of it
        self._card_timer = QTimer(self, singleShot=True, interval=_DESCRIBE_MS)
        self.describe = QPushButton(self.tr("Description"))
        self.describe.setToolTip(self.tr("Asks the hub what this model is and can do."))
        self._hint = QLabel()  # in place of an empty table
        self._hint.setProperty("role", "muted")
        self._hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._progress = progress_bar(self.tr("Asking the server"), 0)
        self._folder = QLabel()
        self.change = QPushButton(self.tr("Change\u2026"))
        self.change.setAccessibleName(self.tr("Change the folder that downloads go to"))
        self.download = QPushButton()
        self.download.setProperty("role", "primary")
        self._privacy = QLabel(
            self.tr(
                "{host}, or the server of an address, is contacted only for your searches and "
                "downloads."
            ).format(host=urlsplit(endpoint()).hostname or endpoint())
        )
        wrapped = (
            self._words_label, self.card, self._hint, self._privacy, self.about, self.there,
        )  # fmt: skip
        for label in (*wrapped, self._folder):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setMinimumWidth(10)
        for label in wrapped:
            label.setWordWrap(True)
        for label in (self.card, self._folder, self._privacy, self.about, self.there):
            label.setProperty("role", "small")
        self.token = TokenLine()
        self._rows: dict[int, DownloadRow] = {}
        self._column = QVBoxLayout()
        self._scroll = ScrollColumn()
        self._refresh = QTimer(self, interval=_REFRESH_MS)
        self.table.setAccessibleName(self.tr("Models that can be downloaded"))
        self._lay_out()
        self._connect()
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
        item = self._selected()
        return item if isinstance(item, Found) else None

    def _selected(self) -> Found | Repository | None:
        rows, row = self._tables[self.search.shown].rows, self.table.currentIndex().row()
        return rows[row] if 0 <= row < len(rows) else None

    def show_downloads(self) -> None:
        """Show the present state of the downloads."""
        items = {item.number: item for item in self.downloads.all()}
        for number in list(self._rows):
            if number not in items:
                discard(None, self._rows.pop(number))
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

    def _lay_out(self) -> None:
        title = text_label("title", self.tr("Get models"))
        head = filled(spaced(QHBoxLayout(), 10), title, 1, self.back, self.close_button)
        asked = filled(spaced(QHBoxLayout(), 10), (self.address, 1), self.look_up, self.list)
        there = filled(spaced(QHBoxLayout(), 10), (self.there, 1), self.show_there)
        about = filled(spaced(QHBoxLayout(), 10), (self.about, 1), self.measure)
        into = spaced(QHBoxLayout(), 10)
        filled(into, (self._folder, 1), self.describe, self.change, self.download)
        inside = QWidget()
        inside.setObjectName("transcriptColumn")
        self._column.setContentsMargins(0, 0, 6, 0)
        self._column.setSpacing(6)
        self._column.addStretch(1)
        inside.setLayout(self._column)
        self._scroll.setWidget(inside)
        self._scroll.setAccessibleName(self.tr("Downloads"))
        filled(
            spaced(QVBoxLayout(self), 12, 24, 18, 24, 14), head, asked, there, about,
            self._progress, (self.table, 1), (self._hint, 1), self._words_label, self.card, into,
            self._scroll, self.token, self._privacy,
        )  # fmt: skip
        order = (
            self.address, self.look_up, self.list, self.show_there, self.measure, self.table,
            self.describe, self.change, self.download, self._scroll, self.token.again,
            self.token.forget, self.token.enter, self.token.field, self.token.check,
            self.token.cancel, self.back, self.close_button,
        )  # fmt: skip
        for before, after in itertools.pairwise(order):
            QWidget.setTabOrder(before, after)

    def _connect(self) -> None:
        self.address.returnPressed.connect(self._look_up)
        self.address.textChanged.connect(self._typed)
        self.list.clicked.connect(self._show_list)
        self.show_there.clicked.connect(self.left)
        self.measure.clicked.connect(lambda: self.search.library.measure(again=True))
        self.address.installEventFilter(self)
        self.table.installEventFilter(self)
        self.look_up.clicked.connect(self._look_up)
        self.back.clicked.connect(self.left)
        self.close_button.clicked.connect(self.closed)
        self.change.clicked.connect(self._change_folder)
        self.download.clicked.connect(self._act)
        self.describe.clicked.connect(self._describe)
        self._card_timer.timeout.connect(self._describe)
        self.search.described.connect(self._show_words)
        self.table.doubleClicked.connect(self._act)
        self.search.changed.connect(self._show_found)
        self.search.offered.connect(self._fetch)
        self.search.library.changed.connect(self._show_judged)
        self.search.refused.connect(self._show_refusal)
        self.search.busy.connect(self._show_busy)
        self._refresh.timeout.connect(self.show_downloads)
        self.token.entered.connect(self._try_again)

    def _add_row(self, item: Download) -> None:
        row = DownloadRow(item)
        row.paused.connect(self.downloads.pause)
        row.resumed.connect(self.downloads.resume)
        row.removed.connect(self.downloads.remove)
        row.picked.connect(self.picked)
        row.enter_token.clicked.connect(self.token.open)
        self._rows[item.number] = row
        self._column.insertWidget(self._column.count() - 1, row)

    # Content

    def _show_found(self) -> None:
        shown, table = self.search.shown, self._tables[self.search.shown]
        kept = ""  # the selected model stays selected where its row moves
        if self.table.model() is not table:
            self.table.setModel(table)
            dress(self.table)
            self.table.selectionModel().currentRowChanged.connect(self._picked)
        elif self.chosen is not None and self._shown_words == self.search.words:
            kept = self.chosen.offer.name
        self._shown_words = self.search.words
        suggested = self.search.suggested() if shown is Shown.CURATED else None
        names: list[str] = []
        if isinstance(table, GetTable):
            found = self.search.found
            table.show_found(found, suggested)
            names = [item.offer.name for item in found]
        else:
            table.take_rows(self.search.repositories, same=False)
        self._show_columns()
        is_measured = self.search.library.machine is not None
        if is_measured and self._guessed:
            kept = "" if kept == self._guessed else kept  # the user picked no other
            self._guessed = ""
        row = names.index(kept) if kept in names else 0
        if not kept and suggested is not None and suggested.offer.name in names:
            row = names.index(suggested.offer.name)
            self._guessed = "" if is_measured else suggested.offer.name
        if table.rows and (not kept or self.table.currentIndex().row() != row):
            self.table.selectRow(row)
            self.table.scrollTo(table.index(row, 0))
        self._show_words()

    def _show_judged(self) -> None:
        """Judge the models again, because the memory or the models on this computer changed."""
        if self.isVisible():
            self._show_found()

    def _show_refusal(self, sentence: str) -> None:
        self._refusal = localized(sentence)
        if self.search.goes_on:
            self._refusal += " " + self.tr("Then it is asked again by itself.")
        self._asks_for_token = token.is_asked_for(sentence)
        self._show_words()

    def _show_busy(self, busy: bool) -> None:
        self.is_busy = busy
        if busy:
            self._refusal = ""
        self._show_words()

    def _show_words(self) -> None:
        search, chosen, selected = self.search, self.chosen, self._selected()
        self._progress.setVisible(self.is_busy)
        self.list.setVisible(search.shown is not Shown.CURATED)
        self.about.setText(self._about_words())
        self.about.setVisible(bool(self.about.text()))
        library = search.library
        self.measure.setVisible(library.machine is None and search.shown is Shown.CURATED)
        self.measure.setEnabled(not library.is_measuring)
        n_there = sum(
            row.entry.facts is not None and not models.is_embedded(row.entry.path)
            for row in library.rows
        )
        self.there.setText(self._there_words(n_there))
        for widget in (self.there, self.show_there):
            widget.setVisible(bool(self.there.text()))
        sentence = self._words()
        self._words_label.setText(sentence if selected is not None else "")
        self._words_label.setVisible(selected is not None)
        self._hint.setText("" if selected is not None else sentence)
        self._hint.setVisible(selected is None)
        self.table.setVisible(selected is not None)
        card = search.cards.get(self._repository())
        self.card.setText(self._card_words(card) if card is not None else "")
        self.card.setVisible(card is not None)
        is_unasked = search.shown is Shown.CURATED and card is None
        self.describe.setVisible(is_unasked and chosen is not None)
        action, can_act = self.tr("Download"), not self.is_busy
        if isinstance(selected, Repository):
            action = self.tr("Show files")
        elif chosen is None or chosen.row.entry.trouble:
            can_act = False
        elif chosen.there is not None:
            action, can_act = self.tr("Open"), True
        elif search.shown is Shown.FILES:
            can_act = True
        self.download.setText(action)
        if not can_act and self.download.hasFocus():
            self.table.setFocus()  # Qt would move it to the bar at the top
        self.download.setEnabled(can_act)
        self._show_folder()

    def _about_words(self) -> str:
        search = self.search
        if search.shown is Shown.REPOSITORIES and search.repositories:
            return self.tr("Repositories with \u201c{words}\u201d, the most used first.").format(
                words=search.words
            )
        if search.shown is Shown.FILES and search.listing is not None:
            return search.listing.source
        if search.shown is not Shown.CURATED:
            return ""
        return self.tr(
            "Models that run well through the cache. The list is of {date}; what each would do "
            "here is computed on this computer."
        ).format(date=units.day(curated()[0]))

    def _there_words(self, n_there: int) -> str:
        if self.search.shown is not Shown.CURATED or not n_there:
            return ""
        library = self.search.library
        programs = [
            program
            for program, folder in library.folders
            if program and any(row.entry.path.is_relative_to(folder) for row in library.rows)
        ]
        counted = units.count(n_there, "model")
        if not programs:
            return self.tr("{models} on this computer already.").format(models=counted)
        return self.tr("{models} on this computer already ({programs}).").format(
            models=counted, programs=", ".join(dict.fromkeys(programs))
        )

    def _words(self) -> str:
        search, chosen, selected = self.search, self.chosen, self._selected()
        if self._refusal:
            if search.shown is Shown.REPOSITORIES:
                return self.tr(
                    "{trouble} The list of models needs no network, but a search and a download do."
                ).format(trouble=self._refusal)
            return self._refusal
        if selected is None and self.is_busy:
            return self.tr("Asking\u2026")
        if isinstance(selected, Repository):
            return self._repository_words(selected)
        if chosen is None:
            return self._nothing_words()
        if chosen.curated is not None:
            return self._curated_words(chosen)
        row, listing = chosen.row, search.listing
        parts = []
        if row.verdict is not None or row.entry.trouble:
            parts.append(words.sentence(row.entry, row.verdict))
        if not chosen.is_exact and self.is_busy:
            parts.append(self.tr("Reading the header of the file to know more\u2026"))
        elif not chosen.is_exact:
            parts.append(self.tr("Judged by its size and by another file of this repository."))
        if chosen.offer.vision is not None:
            parts.append(
                self.tr("It sees images: a second file of {size} comes with it.").format(
                    size=units.size(chosen.offer.vision.size_bytes)
                )
            )
        is_let_in = chosen.is_exact or chosen.there is not None
        if listing is not None and listing.is_gated and not is_let_in:
            parts.append(self._gated_words())
        return " ".join(parts)

    def _nothing_words(self) -> str:
        search, host = self.search, urlsplit(endpoint()).hostname or endpoint()
        if search.shown is Shown.REPOSITORIES:
            return self.tr("{host} has no GGUF model with \u201c{words}\u201d in its name.").format(
                host=host, words=search.words
            )
        return self.tr(
            "The list has no model with these words. Press Enter to search {host}."
        ).format(host=host)

    def _repository_words(self, repository: Repository) -> str:
        text = self.tr("Show its files, and what each would do here, before anything is fetched.")
        return f"{text} {self._gated_words()}" if repository.is_gated else text

    def _gated_words(self) -> str:
        return self.tr(
            "The repository is gated: accept its conditions on its page in a browser, and enter a "
            "token of the same account below."
        )

    def _curated_words(self, chosen: Found) -> str:
        model = chosen.curated
        assert model is not None
        facts, parts = model.facts, []
        suggested = self.search.suggested()
        if suggested is not None and suggested.offer.name == chosen.offer.name:
            parts.append(self._reason())
        #: A model and the size of its download, as in "Qwen3 30B: 17.3 GiB."
        parts.append(
            self.tr("{model}: {size}.").format(
                model=chosen.offer.name, size=units.size(facts.file_bytes)
            )
        )
        parts.append(words.sentence(chosen.row.entry, chosen.row.verdict))
        if chosen.there is None:
            parts.append(words.basis(chosen.row.verdict))
        parts.append(
            self.tr(
                "{layers} layers of {experts} experts, {used} used: a token reads {size}."
            ).format(
                layers=facts.n_layer,
                experts=facts.n_expert,
                used=facts.n_expert_used,
                size=units.size(facts.token_dense_bytes + facts.token_expert_bytes),
            )
        )
        if model.sees_images:
            parts.append(self.tr("It sees images, with a second file that comes with it."))
        parts.append(
            self.tr("{repository}, licence {licence}.").format(
                repository=model.repository, licence=model.licence
            )
        )
        checked = units.day(model.checked) if model.checked else ""
        if checked:
            parts.append(self.tr("Compared with the file on {date}.").format(date=checked))
        else:
            parts.append(self.tr("Its numbers are estimated, the file was not read."))
        return " ".join(part for part in parts if part)

    def _repository(self) -> str:
        """Return the repository of the selected row; "" if it has none."""
        selected, listing = self._selected(), self.search.listing
        if isinstance(selected, Repository):
            return selected.name
        if selected is None or selected.curated is not None:
            return selected.curated.repository if selected and selected.curated else ""
        return listing.source if listing is not None and "://" not in listing.source else ""

    def _card_words(self, card: Card) -> str:
        made_of = self.tr("Made of {model}.").format(model=card.base)
        licence = self.tr("Licence {licence}.").format(licence=card.licence)
        page = self.tr("Its page says: \u201c{text}\u201d").format(text=card.text)
        is_curated = self.search.shown is Shown.CURATED  # its licence is told already
        parts = [
            made_of if card.base else "",
            licence if card.licence and not is_curated else "",
            self.tr("It sees pictures.") if card.sees and not is_curated else "",
            self.tr("It can think before it answers.") if card.thinks else "",
            self.tr("It can call tools.") if card.calls_tools else "",
            page if card.text else "",
        ]
        if not card.is_read:
            parts.append(self.tr("Its page could not be read."))
        return " ".join(filter(None, parts)) or self.tr("Its page says nothing of it.")

    def _describe(self) -> None:
        if self.isVisible():
            self.search.describe(self._repository())

    def _describe_again(self) -> None:
        """Ask for the shown card again, if its page could not be read."""
        if not self.card.isHidden():
            self._describe()

    def _reason(self) -> str:
        return {
            "usable": self.tr(
                "Suggested for this computer: the largest of the list that writes faster than "
                "people read."
            ),
            "fits": self.tr(
                "Suggested for this computer: the largest of the list that fits in its memory."
            ),
            "fastest": self.tr("Suggested for this computer: the fastest of the list here."),
        }[self.search.why_suggested()]

    def _show_folder(self) -> None:
        text = self.tr("Into {folder}").format(folder=self.downloads.folder)
        elided = self._folder.fontMetrics().elidedText(
            text, Qt.TextElideMode.ElideMiddle, max(self._folder.width(), 200)
        )
        trouble = localized(self.downloads.trouble)
        self._folder.setText(f"{elided}. {trouble}" if trouble else elided)
        self._folder.setToolTip(str(self.downloads.folder))
        self.token.show_token()

    # Actions of the user

    def _look_up(self) -> None:
        if text := self.address.text().strip():
            self._refusal = ""
            self.search.look_up(text)
        else:
            self._show_list()

    def _typed(self, text: str) -> None:
        """Filter the curated list while the user types."""
        self._refusal = ""
        if self.search.shown is Shown.CURATED:
            self.search.filter(text)
        elif not text:
            self._show_list()

    def _show_list(self) -> None:
        self._refusal = ""
        self.address.clear()
        self.search.filter("")

    def _picked(self, *_: object) -> None:
        row = self.table.currentIndex().row()
        if self.search.shown is Shown.FILES and row >= 0:
            self.search.read(row)
        self.search.describe("")  # the wish for another row
        if self.search.shown is not Shown.CURATED:  # there a server is asked by the button alone
            self._card_timer.start()
        self._show_words()

    def _act(self, *_: object) -> None:
        """Open, show or download the selected row."""
        chosen, selected, listing = self.chosen, self._selected(), self.search.listing
        if not self.download.isEnabled():
            return
        if isinstance(selected, Repository):
            self.address.setText(selected.name)
            self._look_up()
        elif chosen is not None and chosen.there is not None:
            self.picked.emit(chosen.there)
        elif chosen is not None and chosen.curated is not None:
            self._refusal = ""
            self.search.fetch(chosen.curated)
        elif chosen is not None and listing is not None:
            self._fetch(chosen.offer, listing.source)

    def _fetch(self, offer: Offer, source: str) -> None:
        self.downloads.add(Job.of(offer, source, self.downloads.folder))
        self.show_downloads()

    def _try_again(self) -> None:
        """Ask again for what was refused, with the token that was entered."""
        for item in self.downloads.all():
            if item.state is State.FAILED and token.is_asked_for(item.trouble):
                self.downloads.resume(item.number)
        if self._asks_for_token and self.search.shown is not Shown.CURATED:
            self._look_up()
        self._describe_again()

    def _change_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(
            self, self.tr("Folder that downloads go to"), str(self.downloads.folder)
        )
        if name:
            self.downloads.set_folder(Path(name))
            self._show_folder()

    # Events

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if watched is self.table and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._act()
                return True
            if watched is self.address and event.key() == Qt.Key.Key_Down:
                self.table.setFocus()
                return True
        return super().eventFilter(watched, event)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        self._refresh.start()
        self.search.library.begin()
        self._show_found()
        self.show_downloads()
        self._describe_again()
        self.address.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._show_columns()
        self._show_folder()

    def _show_columns(self) -> None:
        """Hide the less important columns of a narrow page."""
        fit(self.table, _LEAVES[self.search.shown])

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: D102
        super().hideEvent(event)
        self._refresh.stop()
