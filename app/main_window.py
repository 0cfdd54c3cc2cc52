"""The window: puts the parts together and passes what happens between them."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QMainWindow,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import commands, models, settings, theme
from app.arrangement import Arrangement
from app.chat_exchange import ChatExchange
from app.chat_page import ChatPage
from app.chats import Chats
from app.drops import Drops
from app.engine.panel import EnginePanel
from app.engine_link import EngineLink
from app.facts import Residency, Statistics
from app.library.page import LibraryPage
from app.session import Session
from app.sidebar import Sidebar
from app.state import Notice, State
from app.top_bar import TopBar


class MainWindow(QMainWindow):
    """The window.

    `command` starts the worker; `settings_path` is where choices are remembered, `chats_path` where
    the chats are kept and `cache_folder` where what can be made again (by default beside the
    settings).
    """

    def __init__(
        self,
        command: list[str],
        settings_path: Path,
        chats_path: Path | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        super().__init__()
        self._settings_path = settings_path
        self.settings, trouble = settings.load(settings_path)
        self.set_theme(theme.Choice(self.settings.theme), remember=False)
        self.link = EngineLink(command, self)
        self.session = Session(self.link, self.settings.choice, self)
        # Before whatever shows messages: they are on disk when they appear.
        self.chats = Chats(self.session, chats_path or settings_path.with_name("chats.db"), self)
        self.sidebar = Sidebar(self.chats)
        self.exchange = ChatExchange(self.chats, self)
        self.library = LibraryPage(
            self.session,
            settings_path.with_name("library.json"),
            cache_folder or settings_path.with_name("cache"),
            self,
        )
        self.top_bar = TopBar()
        self.chat_page = ChatPage(self.session, self.chats, self)
        self.chat = self.chat_page.view
        self.panel = EnginePanel()
        self._save_failed = False
        self._lay_out()
        self._arrangement = Arrangement(
            self.sidebar, self.chat, self.panel, self.top_bar, self.settings
        )
        self._drops = Drops(self)
        self._make_actions()
        self._connect()
        self.resize(self.settings.width, self.settings.height)
        self._show_model()
        trouble = " ".join(text for text in (trouble, self.chats.store.trouble) if text)
        if trouble:
            self.chat.banner.show_notice(Notice(trouble, is_trouble=False))
        if self.settings.open_chat:
            self.chats.open(self.settings.open_chat)

    def open_first(self, path: Path | None = None) -> None:
        """Load a model at start: the one asked for, the last one, or the embedded one."""
        last = Path(self.settings.last_model) if self.settings.last_model else None
        if path is None and last is not None and last.is_file():
            path = last
        path = path or models.embedded_model()
        if path is not None:
            self.session.open_model(path)
        self.chat.composer.setFocus()

    def open_model(self, path: Path) -> None:
        """Load a model that the user picked."""
        self.session.open_model(path)
        self.show_chat()

    def browse(self) -> None:
        """Show the file dialog."""
        start = str(Path(self.settings.recent[0]).parent) if self.settings.recent else ""
        name, _ = QFileDialog.getOpenFileName(
            self,
            self.tr("Open a model"),
            start,
            self.tr("GGUF models (*.gguf);;All files (*)"),
        )
        if name:
            self.open_model(Path(name))

    # Building

    def _lay_out(self) -> None:
        self.setWindowTitle("Outrider")
        self.setMinimumSize(520, 460)
        central = QWidget()
        central.setObjectName("central")
        self._pages = QStackedWidget()
        chat_page = QWidget()
        below = QHBoxLayout(chat_page)
        below.setContentsMargins(0, 0, 0, 0)
        below.setSpacing(0)
        below.addWidget(self.sidebar)
        below.addWidget(self.chat, 1)
        below.addWidget(self.panel)
        layout = QVBoxLayout(central)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.top_bar)
        self._pages.addWidget(chat_page)
        self._pages.addWidget(self.library.pages)
        layout.addWidget(self._pages, 1)
        self.setCentralWidget(central)
        parts = (
            self.chat.composer.input, self.chat.composer.button, self.top_bar.model,
            self.top_bar.new_chat, self.top_bar.rate.slider, self.top_bar.panel,
            self.top_bar.more, self.top_bar.sidebar, self.sidebar.new, self.sidebar.search,
            self.sidebar.list, self.chat.transcript,
        )  # fmt: skip
        for before, after in zip(parts, parts[1:], strict=False):
            QWidget.setTabOrder(before, after)

    def _make_actions(self) -> None:
        self._menu = commands.add_actions(
            self,
            {
                "new_chat": self._new_chat, "search": self._search_chats,
                "sidebar": self._toggle_sidebar, "open": self.browse,
                "models": self._toggle_library, "get": self._get_models,
                "preset": self.chat_page.edit_preset,
                "panel": self._toggle_panel, "stop": self._escape, "write": self.show_chat,
                "quit": self.close,
            },
        )  # fmt: skip
        self.top_bar.more.clicked.connect(self._show_menu)

    def _show_menu(self) -> None:
        button, menu = self.top_bar.more, self._menu
        corner = button.rect().bottomRight() - QPoint(menu.sizeHint().width(), 0)
        menu.popup(button.mapToGlobal(corner))

    def _connect(self) -> None:
        session, bar = self.session, self.top_bar
        session.state_changed.connect(lambda _: self._show_rate())
        session.model_changed.connect(self._show_model)
        session.statistics_changed.connect(self._show_statistics)
        session.residency_changed.connect(self._show_residency)
        self.chats.trouble.connect(lambda text: session.notice.emit(Notice(text)))
        self.sidebar.new_chat.connect(self._new_chat)
        self.sidebar.import_file.connect(self.exchange.ask_import)
        self.sidebar.opened.connect(self._chat_opened)
        self.sidebar.list.exported.connect(self.exchange.ask_export)
        self.exchange.notice.connect(session.notice)
        self.chat.welcome.open_file.connect(self.browse)
        bar.model.picked.connect(self.open_model)
        bar.model.browse.connect(self.browse)
        bar.model.library.connect(self._show_library)
        self.library.picked.connect(self.open_model)
        self.library.closed.connect(self.show_chat)
        self.library.notice.connect(session.notice)
        bar.new_chat.clicked.connect(self._new_chat)
        bar.rate.chosen.connect(session.set_rate)
        bar.panel.clicked.connect(self._toggle_panel)
        bar.sidebar.clicked.connect(self._toggle_sidebar)
        self._drops.model.connect(self.open_model)
        self._drops.folders.connect(self._add_folders)
        self._drops.refused.connect(self._refuse)

    # What the user does

    def set_theme(self, choice: theme.Choice, remember: bool = True) -> None:
        """Change the colours, and remember the choice."""
        if remember:
            self.settings.theme = choice.value
            self._save_settings()
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, choice)

    def show_chat(self) -> None:
        """Go to the chat, ready to write."""
        self._pages.setCurrentIndex(0)
        self.chat.composer.setFocus()

    def _new_chat(self) -> None:
        self.session.new_chat()
        self.sidebar.list.mark(0)
        self._chat_opened()

    def _show_library(self) -> None:
        self.library.show_models()
        self._pages.setCurrentWidget(self.library.pages)

    def _get_models(self) -> None:
        self.library.show_get()
        self._pages.setCurrentWidget(self.library.pages)

    def _toggle_library(self) -> None:
        if self.library.view.isVisible():
            self.show_chat()
        else:
            self._show_library()

    def _escape(self) -> None:
        if self._pages.currentIndex() != 0:
            self.show_chat()
        else:
            self.session.stop()

    def _chat_opened(self) -> None:
        self._arrangement.chat_opened()
        self.show_chat()

    def _search_chats(self) -> None:
        self._pages.setCurrentIndex(0)
        if not self.sidebar.isVisible():
            self._toggle_sidebar()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def _toggle_sidebar(self) -> None:
        self._pages.setCurrentIndex(0)
        self._arrangement.toggle_sidebar()

    def _toggle_panel(self) -> None:
        self._pages.setCurrentIndex(0)
        self._arrangement.toggle_panel()

    def _add_folders(self, folders: list[Path]) -> None:
        for folder in folders:
            self.library.library.add_folder(folder)
        self._show_library()

    def _refuse(self, sentence: str) -> None:
        self.show_chat()
        self.session.notice.emit(Notice(sentence))

    # What the session says

    def _show_model(self) -> None:
        session = self.session
        self.top_bar.model.show_model(session.path, session.model)
        if session.model is not None and session.path is not None:
            self._remember(session.path)
        self.top_bar.model.show_recent(self.settings.recent, session.path)
        self.library.show_recent(self.settings.recent)
        self.panel.show_model(session.model, session.cache)
        self._show_rate()

    def _show_rate(self) -> None:
        session = self.session
        self.top_bar.rate.show_cache(
            session.slots, session.model, session.cache, session.asked_rate, session.change_waits
        )

    def _show_statistics(self, statistics: Statistics) -> None:
        is_live = self.session.state in (State.ANSWERING, State.STOPPING)
        self.panel.show_statistics(statistics, is_live)

    def _show_residency(self, residency: Residency) -> None:
        self.panel.show_residency(residency)

    def _remember(self, path: Path) -> None:
        if models.is_embedded(path):
            self.settings.last_model = ""
        else:
            self.settings.last_model = str(path)
            self.settings.remember(path)
        self._save_settings()

    def _save_settings(self) -> None:
        trouble = settings.save(self.settings, self._settings_path)
        if trouble and not self._save_failed:
            self._save_failed = True
            self.session.notice.emit(Notice(trouble, is_trouble=False))

    # The window's own events

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        self._arrangement.fit(self.width())

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: D102, N802
        self.settings.take_choice(self.session.asked)
        if not self.isMaximized() and not self.isFullScreen():
            self.settings.width, self.settings.height = self.width(), self.height()
        self.settings.open_chat = self.chats.open_id
        settings.save(self.settings, self._settings_path)
        self.session.stop_all()
        self.library.shut_down()
        self.link.shut_down()
        self.chats.close()
        super().closeEvent(event)
