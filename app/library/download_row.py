"""A row for one download: its model, its progress and its buttons."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout

from app.text import units
from app.text.messages import localized
from app.widgets.elided_label import ElidedLabel
from app.widgets.page import small
from app.widgets.parts import dress, filled, progress_bar, spaced
from backend.downloads import token
from backend.downloads.manager import Download, State


class DownloadRow(QFrame):
    """Shows a download.

    Signals:
        paused, resumed, removed: (int) the download's number.
        picked: (Path) the user wants to load the model.
    """

    paused = Signal(int)
    resumed = Signal(int)
    removed = Signal(int)
    picked = Signal(object)

    def __init__(self, download: Download) -> None:
        super().__init__()
        self.setObjectName("downloadRow")
        self.download = download
        self._name = ElidedLabel()
        self._name.setProperty("role", "strong")
        self._state = small("")
        self._state.setMinimumWidth(10)
        self._bar = progress_bar()
        self.main = QPushButton()  # Pause, Resume, Try again or Load
        self.main.clicked.connect(self._act)
        self.enter_token = QPushButton(self.tr("Enter a token\u2026"))
        self.remove = QPushButton()
        self.remove.clicked.connect(lambda: self.removed.emit(self.download.number))
        words = filled(spaced(QVBoxLayout(), 4), self._name, self._bar, self._state)
        layout = spaced(QHBoxLayout(self), 10, 14, 10, 14, 10)
        filled(layout, (words, 1), self.enter_token, self.main, self.remove)
        self.show_download(download)

    @property
    def sentence(self) -> str:
        """Return the sentence on its state."""
        return self._state.text()

    def show_download(self, download: Download) -> None:
        """Show the present state of a download."""
        self.download = download
        name, state = download.job.name, download.state
        self._name.setText(name)
        share = download.n_byte / download.job.size_bytes
        self._bar.setValue(round(1000 * share))
        self._bar.setAccessibleName(self.tr("Download of {model}").format(model=name))
        self._bar.setVisible(state is not State.DONE)
        self._state.setText(self._words())
        self.enter_token.setVisible(state is State.FAILED and token.is_asked_for(download.trouble))
        dress(self._state, "warning" if state is State.FAILED else "small")
        main, remove = {
            State.WAITING: (self.tr("Pause"), self.tr("Cancel")),
            State.RUNNING: (self.tr("Pause"), self.tr("Cancel")),
            State.PAUSED: (self.tr("Resume"), self.tr("Cancel")),
            State.FAILED: (self.tr("Try again"), self.tr("Cancel")),
            State.DONE: (self.tr("Load"), self.tr("Dismiss")),
        }[state]
        for button, text in ((self.main, main), (self.remove, remove)):
            button.setText(text)
            button.setAccessibleName(
                #: The action of a button for a model, as in "Pause: Qwen3-30B".
                self.tr("{action}: {model}").format(action=text, model=name)
            )

    def _words(self) -> str:
        download = self.download
        got = self.tr("{got} of {all}").format(
            got=units.size(download.n_byte), all=units.size(download.job.size_bytes)
        )
        if download.state is State.FAILED:
            return f"{got}. {localized(download.trouble)}"
        if download.state is State.DONE:
            folder = str(download.job.folder)
            return (
                self.tr("{size} in {folder}, complete and checked.").format(
                    size=units.size(download.job.size_bytes), folder=folder
                )
                if all(file.sha256 for file in download.job.files)
                else self.tr("{size} in {folder}, complete. The server states no checksum.").format(
                    size=units.size(download.job.size_bytes), folder=folder
                )
            )
        if download.state is State.PAUSED:
            return self.tr("{progress}, paused.").format(progress=got)
        if download.state is State.WAITING:
            return self.tr("{progress}, waits for the others.").format(progress=got)
        if download.wait_s is not None:
            return self.tr("{progress}. {reason} Goes on by itself in {time}.").format(
                progress=got,
                reason=localized(download.trouble),
                time=units.whole_seconds(max(download.wait_s, 1.0)),
            )
        if download.left_s is None:
            return self.tr("{progress}, waits for the server.").format(progress=got)
        return self.tr("{progress}, {speed}/s, {time} left.").format(
            progress=got,
            speed=units.size(download.bytes_per_s),
            time=units.seconds(download.left_s),
        )

    def _act(self) -> None:
        state, number = self.download.state, self.download.number
        if state in (State.WAITING, State.RUNNING):
            self.paused.emit(number)
        elif state is State.DONE:
            self.picked.emit(Path(self.download.job.target))
        else:
            self.resumed.emit(number)
