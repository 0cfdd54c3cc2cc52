"""The settings: appearance, engine, models, chats, local server and privacy."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFileDialog,
    QListWidget,
    QListWidgetItem,
    QPushButton,
)

from app.library.page import LibraryPage
from app.pages.learning_section import LearningGroup
from app.pages.server_page import ServerPage
from app.pages.system_sections import CardsSection, VersionSection
from app.pages.tools_section import ToolsSection
from app.session.local_server import LocalServer
from app.session.tools import ToolServers
from app.session.worker_link import EngineLink
from app.settings.settings import Settings
from app.text import language, units
from app.widgets import files
from app.widgets.elided_label import ElidedLabel
from app.widgets.fields import DropDown, Tick
from app.widgets.mode_switch import ModeSwitch
from app.widgets.page import Page, Section, beside, small
from app.widgets.parts import filled
from app.widgets.theme import TEXT_SIZES, Choice

FIELD_WIDTH = 220
FOLDER_WIDTH = 280
_FOLDER = Qt.ItemDataRole.UserRole


class SettingsPage(Page):
    """Shows Settings; the main window applies the user's choices.

    Signals:
        chosen: (str, value) another value for the setting of this name.
        server_wanted: the user wants the page of the local server.
        controls_wanted: the user wants to see the engine's controls.
    """

    chosen = Signal(str, object)
    server_wanted = Signal()
    controls_wanted = Signal()

    def __init__(
        self, settings: Settings, library: LibraryPage, server: LocalServer, link: EngineLink,
        tools: ToolServers,
    ) -> None:  # fmt: skip
        super().__init__(self.tr("Settings"))
        self._library = library
        self.server_page = ServerPage(server)
        self.server = self.server_page.section
        self._ticks: dict[str, Tick] = {}  # by the names of their settings
        self.tools = ToolsSection(tools)
        self.cards = CardsSection(link)
        self.version = VersionSection()
        filled(
            self.column, self._appearance(), self._engine(), self.cards, self._models(),
            self._chats(), self.tools, self._server(), self._privacy(link), self.version,
            self._reset(), 1,
        )  # fmt: skip
        self.show_settings(settings)
        library.library.changed.connect(self._show_folders)

    def show_settings(self, settings: Settings) -> None:
        """Show the present settings."""
        self.theme.setCurrentIndex(self.theme.findData(settings.theme))
        self.language.setCurrentIndex(self.language.findData(settings.language))
        self.mode.show_choice(settings.engine.automatic)
        if self.text_size.findData(settings.text_percent) < 0:
            self.text_size.addItem(
                units.percent(settings.text_percent / 100), settings.text_percent
            )
        self.text_size.setCurrentIndex(self.text_size.findData(settings.text_percent))
        for name, tick in self._ticks.items():
            tick.setChecked(getattr(settings, name))

    def _appearance(self) -> Section:
        section = Section(self.tr("Appearance"))
        self.theme = DropDown()
        for choice, words in (
            (Choice.SYSTEM, self.tr("System")),
            (Choice.LIGHT, self.tr("Light")),
            (Choice.DARK, self.tr("Dark")),
        ):
            self.theme.addItem(words, choice.value)
        self.theme.activated.connect(lambda _: self.chosen.emit("theme", self.theme.currentData()))
        self.language = DropDown()
        for code in language.CHOICES:
            self.language.addItem(language.title(code), code)
        self.language.activated.connect(self._language_picked)
        self._language_hint = small("")
        self._language_hint.hide()
        self.contrast = self._tick("high_contrast", self.tr("High contrast"))
        self.text_size = DropDown()
        for percent in TEXT_SIZES:
            self.text_size.addItem(units.percent(percent / 100), percent)
        self.text_size.activated.connect(
            lambda _: self.chosen.emit("text_percent", int(self.text_size.currentData()))
        )
        for field in (self.theme, self.language, self.text_size):
            field.setFixedWidth(FIELD_WIDTH)
        section.row(self.tr("Colours"), self.theme)
        section.row("", self.contrast)
        section.row(self.tr("Size of text"), self.text_size)
        section.row(self.tr("Language"), self.language)
        section.wide(self._language_hint)
        for name, words in (
            ("notify", self.tr("Tell when an answer is ready and the window is not active")),
            ("tray", self.tr("Keep a closed window in the tray")),
        ):
            section.wide(self._tick(name, words))
        return section

    def _tick(self, name: str, words: str) -> Tick:
        """Return a switch for the setting of this name."""
        tick = self._ticks[name] = Tick(words)
        tick.setAccessibleName(words)
        tick.toggled.connect(lambda is_on: self.chosen.emit(name, is_on))
        return tick

    def _language_picked(self) -> None:
        self._language_hint.setText(self.tr("The language changes at the next start."))
        self._language_hint.show()
        self.chosen.emit("language", self.language.currentData())

    def _engine(self) -> Section:
        section = Section(self.tr("Engine"))
        self.mode = ModeSwitch()
        self.mode.setAccessibleName(self.tr("Engine settings"))
        controls = QPushButton(self.tr("Engine controls\u2026"))
        controls.setAccessibleName(self.tr("Show the engine controls"))
        controls.clicked.connect(self.controls_wanted)
        section.row(self.tr("Settings"), beside(self.mode, controls))
        section.wide(
            small(
                self.tr(
                    "The next model starts with the settings made here, in the bar at the top and "
                    "in the engine controls."
                )
            )
        )
        return section

    def _models(self) -> Section:
        section = Section(self.tr("Models"))
        self.folders = QListWidget()
        self.folders.setAccessibleName(self.tr("Folders of models"))
        self.folders.setFixedHeight(92)
        self.folders.setMinimumWidth(300)
        self.add_folder = QPushButton(self.tr("Add\u2026"))
        self.add_folder.setAccessibleName(self.tr("Add a folder of models"))
        self.add_folder.clicked.connect(self._add_folder)
        self.remove_folder = QPushButton(self.tr("Remove"))
        self.remove_folder.setAccessibleName(self.tr("Remove the folder from the list"))
        self.remove_folder.setToolTip(self.tr("The files stay where they are."))
        self.remove_folder.clicked.connect(self._remove_folder)
        self.folders.currentRowChanged.connect(self._folder_picked)
        self.downloads = QPushButton(self.tr("Change\u2026"))
        self.downloads.setAccessibleName(self.tr("Change the folder that downloads go to"))
        self.downloads.clicked.connect(self._change_downloads)
        self._downloads_folder = ElidedLabel(Qt.TextElideMode.ElideMiddle)
        self._downloads_folder.setProperty("role", "small")
        self._downloads_folder.setFixedWidth(FOLDER_WIDTH)
        section.wide(small(self.tr("Folders that are looked through for models:")))
        section.wide(self.folders)
        section.wide(beside(self.add_folder, self.remove_folder))
        section.row(self.tr("Downloads go to"), beside(self._downloads_folder, self.downloads))
        self._show_folders()
        return section

    def _show_folders(self) -> None:
        picked = self.folders.currentRow()
        self.folders.clear()
        for program, folder in self._library.library.folders:
            words = f"{program}: {folder}" if program else str(folder)
            item = QListWidgetItem(words)
            item.setData(_FOLDER, "" if program else str(folder))
            self.folders.addItem(item)
        if not self.folders.count():
            none = QListWidgetItem(self.tr("None yet. A model that was opened is listed anyway."))
            none.setFlags(Qt.ItemFlag.NoItemFlags)
            self.folders.addItem(none)
        self.folders.setCurrentRow(min(picked, self.folders.count() - 1))
        goes_to = str(self._library.downloads.folder)
        self._downloads_folder.setText(goes_to)
        self._downloads_folder.setToolTip(goes_to)
        self._folder_picked()

    def _folder_picked(self, *_: object) -> None:
        item = self.folders.currentItem()
        self.remove_folder.setEnabled(item is not None and bool(item.data(_FOLDER)))

    def _add_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(
            self, self.tr("Add a folder of models"), files.start("models")
        )
        if name:
            self._library.library.add_folder(Path(name))
            self._show_folders()

    def _remove_folder(self) -> None:
        item = self.folders.currentItem()
        if item is not None and item.data(_FOLDER):
            self._library.library.remove_folder(Path(item.data(_FOLDER)))
            self._show_folders()

    def _change_downloads(self) -> None:
        downloads = self._library.downloads
        name = QFileDialog.getExistingDirectory(
            self, self.tr("Folder that downloads go to"), str(downloads.folder)
        )
        if name:
            downloads.set_folder(Path(name))
            self._show_folders()

    def _chats(self) -> Section:
        section = Section(self.tr("New chats"))
        self.preset = QPushButton(self.tr("System prompt and sampling\u2026"))
        self.preset.setAccessibleName(self.tr("What new chats begin with"))
        section.wide(small(self.tr("For chats with models that have no settings of their own.")))
        section.wide(beside(self.preset))
        words = self.tr("Let the model write the titles of new chats when it is idle")
        section.wide(self._tick("titles", words))
        return section

    def _server(self) -> Section:
        section = Section(self.tr("Local server"))
        button = QPushButton(self.tr("Address, examples and requests\u2026"))
        button.setAccessibleName(self.tr("Show the page of the local server"))
        button.clicked.connect(self.server_wanted)
        section.wide(
            small(self.tr("Programs on this machine can use the loaded model. Off by default."))
        )
        section.wide(beside(button))
        return section

    def _privacy(self, link: EngineLink) -> Section:
        section = Section(self.tr("Privacy"))
        section.wide(
            small(
                self.tr(
                    "Nothing is sent anywhere: no figures, no reports. Chats and settings stay in "
                    "files on this machine; so does what the model has read of chats and of the "
                    "local server's requests (\u201cKeep chats ready\u201d, Ctrl+K). The network "
                    "is used only for what you start yourself: downloads, and the look for a newer "
                    "version."
                )
            )
        )
        self.learning = LearningGroup(link)
        section.wide(self.learning)
        return section

    def _reset(self) -> Section:
        section = Section(self.tr("Reset"))
        self.reset = QPushButton(self.tr("Reset all settings\u2026"))
        self.reset.setAccessibleName(self.tr("Reset all settings"))
        section.wide(small(self.tr("Chats, models and measurements are kept.")))
        section.wide(beside(self.reset))
        return section
