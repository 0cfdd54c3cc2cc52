"""Two sections of the settings: graphics cards with llama.cpp's backends, and this version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QPushButton

from app.session.worker_link import EngineLink
from app.text.messages import localized
from app.widgets import files
from app.widgets.background import Errand
from app.widgets.page import Section, beside, small
from backend import __version__
from backend.downloads import newer
from backend.system.paths import backends_folder
from backend.text import text

Modules = Sequence[tuple[str, str, str]]


class CardsSection(Section):
    """The devices that can compute: graphics cards, and llama.cpp's backends with their errors.

    It asks the worker whenever it comes into view.
    """

    def __init__(self, link: EngineLink) -> None:
        super().__init__(self.tr("Graphics cards"))
        self._link = link
        self.cards = small(self.tr("They are known when a model is loaded."))
        self.backends = small("")
        self.backends.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.folder = QPushButton(self.tr("Open the folder for backends"))
        self.folder.setAccessibleName(self.folder.text())
        self.folder.clicked.connect(self._open_folder)
        self._hint = small(
            self.tr(
                "The libraries of another backend, such as CUDA, are used from the next start if "
                "they lie in this folder."
            )
        )
        for widget in (self.cards, self.backends, self._hint, beside(self.folder)):
            self.wide(widget)
        self.show_modules([])
        link.devices.connect(self._show)

    def _open_folder(self) -> None:
        folder = backends_folder()
        folder.mkdir(parents=True, exist_ok=True)
        if said := files.show_folder(folder):
            self._hint.setText(said)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        if self._link.is_running:
            self._link.list_devices()

    def _show(self, devices: Sequence[tuple[str, str]], modules: Modules) -> None:
        lines = [f"{description} ({name})" for name, description in devices]
        self.cards.setText("\n".join(lines) or self.tr("None was found that can be used."))
        self.show_modules(modules)

    def show_modules(self, modules: Modules) -> None:
        """Show the backends. None: they are part of llama.cpp's library, and no others are used."""
        lines = []
        for file, backend, trouble in modules:
            name = PurePath(file).name
            if backend:
                lines.append(
                    self.tr("{backend}: loaded ({file})").format(backend=backend, file=name)
                )
            else:
                lines.append(
                    self.tr("{file}: not used, because {reason}").format(file=name, reason=trouble)
                )
        self.backends.setText("\n".join(lines))
        for widget in (self.backends, self._hint, self.folder):
            widget.setVisible(bool(lines))


class VersionSection(Section):
    """This version, and a button that looks for a newer one. Nothing is looked for without it."""

    def __init__(self) -> None:
        super().__init__(self.tr("Version"))
        self._page = ""
        self.look = QPushButton(self.tr("Look for a newer version"))
        self.look.setAccessibleName(self.look.text())
        self.look.clicked.connect(self._look)
        self.page = QPushButton(self.tr("Open its page\u2026"))
        self.page.setAccessibleName(self.tr("Open the page of the newer version"))
        self.page.clicked.connect(self._open)
        self.page.hide()
        self.answer = small("")
        self.wide(small(self.tr("This is version {version}.").format(version=__version__)))
        self.wide(beside(self.look, self.page))
        self.wide(self.answer)
        self._errand = Errand("newer version", self)
        self._errand.came.connect(self._show)
        if not newer.releases_url():
            self.look.setEnabled(False)
            self.answer.setText(localized(text("newer.no_address")))

    def _look(self) -> None:
        self.look.setEnabled(False)
        self.page.hide()
        self.answer.setText(self.tr("Looking\u2026"))
        self._errand.start(newer.latest)

    def _open(self) -> None:
        if said := files.open_page(QUrl(self._page)):
            self.answer.setText(said)

    def _show(self, answer: newer.Release | str) -> None:
        self.look.setEnabled(True)
        if isinstance(answer, str):
            self.answer.setText(localized(answer))
        elif answer.is_newer:
            self._page = answer.page
            self.page.show()
            self.answer.setText(self.tr("Version {version} is out.").format(version=answer.version))
        else:
            self.answer.setText(self.tr("This is the newest version."))
