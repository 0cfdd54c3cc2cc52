"""The details of the model that is selected in the table."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
)

from app.library import words
from app.library.library import FileCheck, Row
from app.library.plan_bar import PlanBar
from app.library.table import title
from app.text import units
from app.text.messages import localized
from app.widgets import files
from app.widgets.elided_label import ElidedLabel
from app.widgets.parts import filled, progress_bar, spaced, text_label


class Details(QFrame):
    """Name, place, verdict, the memory plan, and buttons that load the model and check its file.

    Signals:
        picked: (Path) the user wants this model.
        check_asked: (Path) the user wants its file checked.
        check_stopped: the user does not want that any more.
    """

    picked = Signal(object)
    check_asked = Signal(object)
    check_stopped = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("libraryDetails")
        self._row: Row | None = None
        self._title = ElidedLabel()
        self._title.setProperty("role", "strong")
        self._place = ElidedLabel(Qt.TextElideMode.ElideMiddle)
        self._place.setProperty("role", "small")
        self._verdict = QLabel()
        self._basis = text_label("small")
        self._plan_title = text_label("small")
        self._checked = text_label("small")
        for label in (self._verdict, self._basis, self._checked):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setMinimumWidth(10)
            label.setWordWrap(True)
        for label in (self._verdict, self._checked):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._read = progress_bar(self.tr("Check of the file"))
        self.bar = PlanBar()
        self.load = QPushButton(self.tr("Load"))
        self.load.setProperty("role", "primary")
        self.load.clicked.connect(self._load)
        self.folder = QPushButton(self.tr("Show folder"))
        self.folder.setAccessibleName(self.tr("Show the folder of the model"))
        self.folder.clicked.connect(self._show_folder)
        self.check = QPushButton()
        self.check.clicked.connect(self._check)
        self._is_checked_now = False
        named = filled(spaced(QVBoxLayout(), 2), self._title, self._place)
        head = filled(QHBoxLayout(), (named, 1), self.check, self.folder, self.load)
        layout = spaced(QVBoxLayout(self), 8, 20, 14, 20, 16)
        filled(layout, head, self._verdict, self._basis, self._read, self._checked)
        filled(layout, self._plan_title, self.bar)
        self.show_row(None, None)

    @property
    def sentence(self) -> str:
        """Return the verdict in words."""
        return self._verdict.text()

    @property
    def checked(self) -> str:
        """Return the sentence about the check of the file."""
        return self._checked.text()

    def show_row(self, row: Row | None, loaded: Path | None) -> None:
        """Show a model; None hides the details."""
        self._row = row
        self.setVisible(row is not None)
        if row is None:
            return
        entry, facts, verdict = row.entry, row.entry.facts, row.verdict
        self._title.setText(title(row))
        folder = str(entry.path.parent).encode("utf-8", "replace").decode("utf-8")
        size = units.size(entry.size_bytes)
        if entry.n_part > 1:
            text = self.tr("{size} in {parts} in {folder}").format(
                size=size, parts=units.count(entry.n_part, "part"), folder=folder
            )
        else:
            text = self.tr("{size} in {folder}").format(size=size, folder=folder)
        place = f"{facts.name}, {text}" if facts is not None else text
        self._place.setText(place)
        self._place.setToolTip(place)
        self._verdict.setText(words.sentence(entry, verdict))
        basis = words.basis(verdict)
        self._basis.setText(basis)
        self._basis.setVisible(bool(basis))
        plan = verdict.best if verdict is not None else None
        self.bar.setVisible(plan is not None)
        self._plan_title.setVisible(plan is not None)
        self.bar.show_plan(plan)
        if plan is not None:
            plan_words = (
                self.tr("Memory plan with {share} of the experts; {free} are free for it")
                if plan.n_expert
                else self.tr("Memory plan; {free} are free for it")
            )
            self._plan_title.setText(
                plan_words.format(
                    share=units.percent(plan.rate), free=units.size(plan.available_bytes)
                )
            )
        is_loaded = loaded is not None and entry.path == loaded
        self.load.setText(self.tr("Loaded") if is_loaded else self.tr("Load"))
        self.load.setAccessibleName(self.tr("Load {model}").format(model=title(row)))
        self.load.setEnabled(facts is not None and not is_loaded)

    def show_check(self, check: FileCheck | None) -> None:
        """Show the check of the model's file: its progress, or its result."""
        if self._row is None:
            return
        runs = check is not None and check.share is not None
        is_mine = check is not None and check.path == self._row.entry.path
        self._is_checked_now = runs and is_mine
        self._read.setVisible(self._is_checked_now)
        self.check.setEnabled(is_mine or not runs)
        tip = self.tr("Read the whole file and compare its SHA-256 with what its repository states")
        if not self.check.isEnabled():
            tip = self.tr("Another file is being checked.")
        self.check.setToolTip(tip)
        self.check.setText(self.tr("Cancel") if self._is_checked_now else self.tr("Check the file"))
        said = words.checked(self._row.checksum) if self._row.checksum is not None else ""
        if check is not None and is_mine and check.share is not None:
            self._read.setValue(round(1000 * check.share))
            said = self.tr("The file is read: {share}.").format(share=units.percent(check.share))
        elif check is not None and is_mine and check.trouble:
            said = localized(check.trouble)
        self._checked.setText(said)
        self._checked.setVisible(bool(said))

    def _check(self) -> None:
        if self._is_checked_now:
            self.check_stopped.emit()
        elif self._row is not None:
            self.check_asked.emit(self._row.entry.path)

    def _load(self) -> None:
        if self._row is not None:
            self.picked.emit(self._row.entry.path)

    def _show_folder(self) -> None:
        if self._row is not None:
            said = files.show_folder(self._row.entry.path.parent)
            if said:
                self._checked.setText(said)
                self._checked.show()
