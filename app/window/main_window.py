"""The main window: creates the parts and connects their signals."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QByteArray, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QMainWindow,
    QMessageBox,
    QVBoxLayout,
    QWidget,
)

from app.chat.page import ChatPage
from app.chat.plain_text import plain_text
from app.controls.controller import Controls
from app.controls.top_bar import TopBar
from app.library.page import LibraryPage
from app.library.view import LibraryView
from app.pages.settings_page import SettingsPage
from app.panel.page import EnginePage
from app.session import known_models as models
from app.session.chats import Chats
from app.session.engine import EngineSession
from app.session.event_log import EventLog, follow
from app.session.local_server import LocalServer
from app.session.session import Session
from app.session.titles import Titles
from app.session.tools import make_tools
from app.session.worker_link import EngineLink
from app.settings.preferences import Preferences
from app.sidebar.import_export import ChatExchange
from app.sidebar.sidebar import Sidebar
from app.state.engine_state import Notice
from app.state.preset import NamedPreset
from app.store.chats import ChatStore
from app.widgets import commands, files
from app.widgets.on_screen import OnScreen
from app.widgets.page import Page
from app.widgets.page_stack import CHAT, Pages
from app.widgets.parts import spaced
from app.window.arrangement import Arrangement
from app.window.drops import Drops
from app.window.presence import Presence
from backend.library.scan import by_name
from backend.protocol.statistics import Statistics
from backend.system.paths import is_file
from backend.text import joined
from backend.tools.settings import FILE_NAME as TOOLS_FILE

SMALL_SCREEN = 1440  # pixels; on narrower ones the panel takes the chat's room


class MainWindow(QMainWindow):
    """The main window.

    link: of this window alone; settings_path: the file of settings; store: the chats, by default
    beside the settings; cache_folder: files that can be recreated, by default beside the settings.
    Raises ChatsTaken if another window has the default store open.

    Signals:
        closing: the window is closed for good; the chats are released next.
        failed: (str) one sentence about an unexpected error, from any thread.
    """

    closing = Signal()
    failed = Signal(object)

    def __init__(
        self,
        link: EngineLink,
        settings_path: Path,
        store: ChatStore | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.preferences = Preferences(settings_path, self)
        self.settings = self.preferences.values
        self.preferences.choose_theme()
        self.link = link
        link.setParent(self)
        own = {path: dict(choice) for path, choice in self.settings.models.items()}
        self.engine = EngineSession(self.link, self.settings.engine, self, own)
        self.session = Session(self.engine, self)
        self.log = EventLog()
        follow(self.log, self.engine)
        self.server = LocalServer(self.link, self.settings.server, self)
        # Before any widget that shows messages, so that they are on disk when they appear.
        store = store or ChatStore.open(settings_path.with_name("chats.db"))
        self.chats = Chats(self.session, store, self)
        self.calls = make_tools(
            self.session, (store.path or settings_path).with_name(TOOLS_FILE), self
        )
        self.sidebar = Sidebar(self.chats)
        self.chats.plain = plain_text
        self.exchange = ChatExchange(self.chats, self._is_at_leisure, self)
        self.library = LibraryPage(
            self.engine,
            settings_path.with_name("library.json"),
            cache_folder or settings_path.with_name("cache"),
            self,
        )
        self.top_bar = TopBar()
        self.chat_page = ChatPage(self.session, self.chats, self.calls, self)
        self.chat = self.chat_page.view
        self.chat_page.own_presets = [
            NamedPreset.from_json(preset) for preset in self.settings.presets
        ]
        self.chat_page.presets_changed.connect(self.preferences.take_presets)
        self.engine_page = EnginePage(self.engine, self._link_gb_per_s, self)
        self.panel = self.engine_page.panel
        self.controls = Controls(
            self.engine, self.top_bar, self.library.library, self.settings, self
        )
        self._statistics: Statistics | None = None  # of the last answer
        self._is_quitting = False
        self._arrangement = Arrangement(
            self.sidebar, self.chat, self.panel, self.top_bar, self.settings
        )
        self._lay_out()
        self._drops = Drops(self)
        self._make_actions()
        self._connect()
        self._connect_settings()
        self.preferences.dress()
        self._on_screen = OnScreen(self)
        self.pages.went.connect(self._page_changed)
        self._restore_place()
        self._show_model()
        if self.settings.open_chat:
            self.chats.open(self.settings.open_chat)
        self.pages.go(CHAT)
        self._show_remarks()
        self._show_cut_off()

    def _restore_place(self) -> None:
        """Restore the window's last position and size, never larger than the screen."""
        kept = QByteArray.fromBase64(self.settings.geometry.encode("ascii", "replace"))
        if kept.isEmpty() or not self.restoreGeometry(kept):
            size = QSize(self.settings.width, self.settings.height)
            self.resize(size.boundedTo(self.screen().availableSize()))

    def suit_screen(self) -> None:
        """At a first start, leave the chat the room of the panel on a small screen."""
        if self.screen().availableSize().width() < SMALL_SCREEN:
            self.settings.show_panel = False
            self._arrangement.fit(self.width())

    def open_first(self, path: Path | None = None) -> None:
        """Load the first model: the given one, the last one, or the embedded one."""
        self.calls.servers.start()
        last = Path(self.settings.last_model) if self.settings.last_model else None
        if path is None and last is not None and is_file(last):
            path = last
        path = path or models.embedded_model()
        if path is not None:
            self.engine.open_model(path)
            self._show_remarks()  # loading has removed the notice
            self._show_cut_off()
        self.chat.composer.setFocus()

    def _show_remarks(self) -> None:
        """Report trouble with the files of settings and chats."""
        remarks = self.preferences.remark or "", self.chats.store.trouble, self.calls.servers.remark
        if trouble := joined(*remarks):
            self.chat.banner.show_notice(Notice(trouble, is_trouble=False))

    def open_model(self, path: Path) -> None:
        """Load a model and show the chat."""
        self.engine.open_model(path)
        self.show_chat()

    def _open_arrived(self, path: Path) -> None:
        """Load a model that was downloaded, in a new chat unless something is being written."""
        if not self.chat.composer.input.whole_text:
            self._new_chat()
        self.open_model(path)

    def come_forward(self, model: str = "") -> None:
        """Raise the window above all others, also if minimised. Load a model if one is named."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if model:
            self.open_model(Path(model))

    def browse(self) -> None:
        """Let the user choose a model file."""
        recent = str(Path(self.settings.recent[0]).parent) if self.settings.recent else ""
        if name := files.browse_model(self, self.tr("Open a model"), recent):
            self.open_model(Path(name))

    # Building

    def _lay_out(self) -> None:
        self.setWindowTitle("Outrider")
        self.setMinimumSize(520, 460)
        central = QWidget()
        central.setObjectName("central")
        layout = spaced(QVBoxLayout(central), 0)
        layout.addWidget(self.top_bar)
        layout.addWidget(self.controls.strip)
        self.pages = Pages(self._arrangement.splitter)
        self.pages.add_later("models", self.library.first_pages)
        self.pages.add_later("settings", lambda: self.settings_page)
        self.pages.add_later("server", lambda: self.settings_page.server_page)
        for name in ("diagnostics", "shortcuts", "about"):
            self.pages.add_later(name, functools.partial(self._make_page, name))
        layout.addWidget(self.pages, 1)
        self.setCentralWidget(central)
        parts = (
            *self.chat.composer.tab_order, self.top_bar.model,
            self.top_bar.new_chat, self.top_bar.mode.automatic, self.top_bar.mode.manual,
            self.top_bar.rate.slider, self.top_bar.controls, self.top_bar.panel,
            self.top_bar.more, self.top_bar.sidebar, self.sidebar.new, self.sidebar.search,
            self.sidebar.list, self.chat.transcript,
        )  # fmt: skip
        for before, after in itertools.pairwise(parts):
            QWidget.setTabOrder(before, after)

    @functools.cached_property
    def settings_page(self) -> SettingsPage:
        """Return the page of the settings, which is made when it is first needed."""
        page = SettingsPage(self.settings, self.library, self.server, self.link, self.calls.servers)
        preferences, engine = self.preferences, self.engine
        page.chosen.connect(preferences.set)
        page.chosen.connect(lambda *_: self.presence.show_choice())
        page.server_wanted.connect(lambda: self.pages.go("server"))
        page.mode.chosen.connect(self.controls.choose_automatic)
        page.controls_wanted.connect(lambda: self._show_controls(True))
        page.preset.clicked.connect(self.chat_page.edit_any_preset)
        page.reset.clicked.connect(self._reset)
        page.closed.connect(self.show_chat)
        page.server_page.closed.connect(self.show_chat)
        engine.model_changed.connect(lambda: page.mode.show_choice(engine.asked.automatic))
        page.mode.show_choice(engine.asked.automatic)
        return page

    def _make_page(self, name: str) -> Page:
        # Imported when they are shown: a start needs none of them.
        from app.pages.about_page import AboutPage
        from app.pages.diagnostics_page import DiagnosticsPage
        from app.pages.shortcuts_page import ShortcutsPage

        pages: dict[str, Callable[[], Page]] = {
            "diagnostics": lambda: DiagnosticsPage(self._report, self.engine),
            "shortcuts": ShortcutsPage,
            "about": AboutPage,
        }
        page = pages[name]()
        page.closed.connect(self.show_chat)
        return page

    def _make_actions(self) -> None:
        self._menu = commands.add_actions(
            self,
            {
                "new_chat": self._new_chat, "rename": self._rename_chat,
                "search": self._search_chats,
                "next": functools.partial(self._step, 1),
                "previous": functools.partial(self._step, -1),
                "retry": self._on_chat(self.chat_page.retry),
                "copy_last": self._on_chat(self.chat_page.copy_last),
                "find": self._find, "sidebar": self._toggle_sidebar, "open": self.browse,
                "models": self._toggle_library, "get": self.show_get_models,
                "preset": self.chat_page.edit_preset, "attach": self.chat_page.choose_files,
                "controls": self._toggle_controls,
                "settings": functools.partial(self.pages.toggle, "settings"),
                "server": functools.partial(self.pages.toggle, "server"),
                "diagnostics": functools.partial(self.pages.toggle, "diagnostics"),
                "shortcuts": functools.partial(self.pages.toggle, "shortcuts"),
                "about": functools.partial(self.pages.toggle, "about"),
                "panel": self._toggle_panel, "wide": self._toggle_wide,
                "stop": self._escape, "write": self.show_chat, "quit": self.quit,
            },
        )  # fmt: skip
        self.top_bar.more.clicked.connect(self._show_menu)

    def _show_menu(self) -> None:
        button, menu = self.top_bar.more, self._menu
        corner = button.rect().bottomRight() - QPoint(menu.sizeHint().width(), 0)
        menu.popup(button.mapToGlobal(corner))

    def _connect(self) -> None:
        session, bar = self.session, self.top_bar
        self.engine.model_changed.connect(self._show_model)
        session.statistics_changed.connect(self._note_statistics)
        self.failed.connect(self._show_fault, Qt.ConnectionType.QueuedConnection)
        self.engine_page.notice.connect(session.notice)
        parts = self.panel.parts
        parts.show_counters(self.settings.show_counters)
        choose = self.preferences.set
        parts.counters.clicked.connect(lambda shown: choose("show_counters", shown))
        parts.hint_read.connect(lambda: choose("hint_read", True))
        if not self.settings.hint_read:
            self.panel.want_hint()
        self.calls.servers.trouble.connect(lambda text: session.notice.emit(Notice(text)))
        self.chats.trouble.connect(lambda text: session.notice.emit(Notice(text)))
        self.sidebar.new.clicked.connect(self._new_chat)
        self.sidebar.import_file.connect(self.exchange.ask_import)
        self.sidebar.opened.connect(self._chat_picked)
        self.sidebar.passage.connect(self.chat.find_bar.lead)
        self.sidebar.left.connect(self.show_chat)
        self.sidebar.list.typed.connect(self._type)
        session.conversation_replaced.connect(self._remember_chat)
        session.busy_changed.connect(self._remember_chat)
        self.sidebar.list.exported.connect(self.exchange.ask_export)
        self.exchange.notice.connect(session.notice)
        self.exchange.begun.connect(self.chat.exchange.begin)
        self.exchange.progressed.connect(self.chat.exchange.show_progress)
        self.exchange.ended.connect(self.chat.exchange.hide)
        self.chat.exchange.cancel.connect(self.exchange.stop)
        self.chat.find_bar.closed.connect(self.chat.composer.setFocus)
        session.conversation_replaced.connect(self.chat.find_bar.hide)
        self.titles = Titles(session, self.chats, lambda: self.settings.titles, self)
        self.presence = Presence(self, session, self.settings)
        self.presence.wanted.connect(self.come_forward)
        self.presence.quit_wanted.connect(self.quit)
        self.chat.welcome.open_file.connect(self.browse)
        bar.model.picked.connect(self.open_model)
        bar.model.browse.connect(self.browse)
        bar.model.library.connect(self.show_library)
        self.chat.welcome.get_model.connect(self.show_get_models)
        bar.model.get.connect(self.show_get_models)
        self.library.picked.connect(self.open_model)
        self.library.arrived.connect(self._open_arrived)
        self.library.closed.connect(self.show_chat)
        self.library.notice.connect(session.notice)
        bar.rate.apply.clicked.connect(session.apply_now)
        bar.new_chat.clicked.connect(self._new_chat)
        bar.controls.clicked.connect(self._toggle_controls)
        self.controls.strip.closed.connect(lambda: self._show_controls(False))
        bar.panel.clicked.connect(self._toggle_panel)
        bar.sidebar.clicked.connect(self._toggle_sidebar)
        self._drops.model.connect(self.open_model)
        self._drops.folders.connect(self._add_folders)
        self._drops.servers.connect(self._import_servers)
        self._drops.chats.connect(self.exchange.import_file)
        self._drops.files.connect(self._attach)
        self._drops.picture.connect(self._attach_picture)
        self._drops.remote.connect(self.chat_page.say_remote)
        self.chat.composer.chips.context_wanted.connect(lambda: self._show_controls(True))

    def _connect_settings(self) -> None:
        preferences, session = self.preferences, self.session
        preferences.restyling.connect(self.chat.transcript.make_again)
        self.top_bar.server.clicked.connect(lambda: self.pages.go("server"))
        self.server.changed.connect(self.top_bar.show_server)
        preferences.trouble.connect(
            lambda text: session.notice.emit(Notice(text, is_trouble=False))
        )
        server, library = self.server, self.library.library
        server.models = lambda: by_name(library.scan.entries)
        server.settings = lambda: self.engine.asked.to_message()
        server.changed.connect(lambda _: preferences.take_server(server))
        server.models_wanted.connect(library.begin_once)
        library.changed.connect(server.refresh)
        self.engine.model_changed.connect(server.refresh)
        self.controls.trusted_changed.connect(preferences.save)

    # Actions of the user

    def show_chat(self) -> None:
        """Show the chat and focus the composer."""
        self.pages.go(CHAT)
        self.chat.composer.setFocus()

    def _new_chat(self) -> None:
        self.session.new_chat()
        self.sidebar.list.mark(0)
        self._chat_opened()

    def show_library(self) -> None:
        """Show the models on this machine."""
        self.library.show_models()
        self.pages.go("models")

    def show_get_models(self) -> None:
        """Show the page to download models."""
        self.library.show_get()
        self.pages.go("models")

    def _toggle_library(self) -> None:
        if self.library.shows(LibraryView):
            self.show_chat()
        else:
            self.show_library()

    def _escape(self) -> None:
        if self.pages.present != CHAT:
            self.show_chat()
        else:
            self.session.stop()

    def _chat_opened(self) -> None:
        self._arrangement.chat_opened()
        self.show_chat()

    def _chat_picked(self) -> None:
        """Show the chat that was picked in the list. The list keeps the focus, for its keys."""
        self.pages.go(CHAT)
        self._arrangement.chat_opened()
        if not self.sidebar.list.isVisible():
            self.chat.composer.setFocus()

    def _type(self, text: str) -> None:
        """Write the text typed over the list of chats into the search."""
        self.show_chat()
        self.chat.composer.input.insertPlainText(text)

    def _rename_chat(self) -> None:
        in_list = self.sidebar.list.hasFocus()
        if chat_id := self.sidebar.list.current_id if in_list else self.chats.open_id:
            self.pages.go(CHAT)
            if not self.sidebar.isVisible():
                self._toggle_sidebar()
            self.sidebar.list.setFocus()
            self.sidebar.list.edit_name(chat_id)

    def _remember_chat(self) -> None:
        """Keep the open chat for the next start, also if this one ends with a crash."""
        if self.settings.open_chat != self.chats.open_id:
            self.settings.open_chat = self.chats.open_id
            self.preferences.save()

    def _show_cut_off(self) -> None:
        """Tell which answers the end of the last window has cut off."""
        cut = self.chats.store.cut_off
        titles = {row.id: row.title for row in self.chats.rows()}
        if not cut or cut[-1] not in titles:
            return
        self.chats.open(cut[-1])
        sentence = self.tr(
            "The last window ended while \u201c{chat}\u201d was being answered. What was "
            "written until then is here."
        ).format(chat=titles[cut[-1]])
        actions = ((self.tr("Continue"), self.session.go_on),)
        self.session.notice.emit(Notice(sentence, actions, is_trouble=False))

    def _step(self, step: int) -> None:
        """Show the next chat of the list, or the previous one."""
        self.chats.step(step)
        self._chat_opened()

    def _on_chat(self, act: Callable[[], None]) -> Callable[[], None]:
        """Return an action that is for the chat only; another page is left before."""

        def run() -> None:
            self.pages.go(CHAT)
            act()

        return run

    def _find(self) -> None:
        self.pages.go(CHAT)
        if self.session.conversation.messages:
            self.chat.find_bar.begin()

    def _search_chats(self) -> None:
        self.pages.go(CHAT)
        if not self.sidebar.isVisible():
            self._toggle_sidebar()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def _toggle_sidebar(self) -> None:
        self.pages.go(CHAT)
        self._arrangement.toggle_sidebar()

    def _toggle_panel(self) -> None:
        self.pages.go(CHAT)
        self._arrangement.toggle_panel()
        self._focus_shown()

    def _toggle_wide(self) -> None:
        self.pages.go(CHAT)
        self._arrangement.toggle_wide()
        self._focus_shown()

    def _focus_shown(self) -> None:
        """Keep the focus out of the bar at the top where the panel has replaced the chat."""
        if self.chat.isHidden():
            self.panel.map.setFocus()
        elif not self.chat.composer.input.hasFocus():
            self.chat.composer.setFocus()

    def _show_controls(self, shown: bool) -> None:
        self.settings.show_controls = shown
        self.pages.go(CHAT)
        if shown:
            self.controls.strip.mode.automatic.setFocus()

    def _toggle_controls(self) -> None:
        self._show_controls(not self.controls.strip.isVisible())

    def _page_changed(self, name: str) -> None:
        """Show the strip of controls only with the chat."""
        shown = self.settings.show_controls and name == CHAT
        self.controls.strip.setVisible(shown)
        self.top_bar.controls.setChecked(shown)

    def _reset(self) -> None:
        box = QMessageBox(self)
        box.setText(self.tr("Reset all settings?"))
        box.setInformativeText(self.tr("Chats, models and measurements are kept."))
        yes = box.addButton(self.tr("Reset"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(self.tr("Keep them"), QMessageBox.ButtonRole.RejectRole)
        box.exec()
        if box.clickedButton() is yes:
            self.reset_settings()

    def reset_settings(self) -> None:
        """Reset all settings to their defaults."""
        self.preferences.reset()
        self.settings_page.show_settings(self.settings)
        self.settings_page.server.switch_off()
        self.engine.forget_settings(self.settings.engine)
        self.controls.show_trusted()
        self._show_controls(self.settings.show_controls)
        self._arrangement.fit(self.width())

    def _show_fault(self, sentence: str) -> None:
        actions = ((self.tr("Show the report"), functools.partial(self.pages.go, "diagnostics")),)
        self.session.notice.emit(Notice(sentence, actions))

    def _report(self) -> str:
        from app.pages.report import report  # the list of packages is slow to import

        return report(
            self.engine, self.settings, self.library.library.machine, self._statistics, self.log
        )

    def _add_folders(self, folders: list[Path]) -> None:
        for folder in folders:
            self.library.library.add_folder(folder)
        self.show_library()

    def _import_servers(self, path: Path) -> None:
        self.pages.go("settings")
        self.settings_page.tools.take_file(path)

    def _attach_picture(self, data: bytes) -> None:
        self.show_chat()
        self.chat_page.attach_picture(data)

    def _attach(self, paths: list[Path]) -> None:
        self.show_chat()
        self.chat_page.attach(paths)

    # Reactions to the engine

    def _show_model(self) -> None:
        engine = self.engine
        self.top_bar.model.show_model(engine.path, engine.model)
        self.preferences.take_choices(engine.usual, engine.own)
        if engine.model is not None and engine.path is not None:
            self.preferences.remember_model(engine.path)
        self.top_bar.model.show_recent(self.settings.recent, engine.path)
        self.library.show_recent(self.settings.recent)

    def _note_statistics(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def _link_gb_per_s(self) -> float | None:
        machine = self.library.library.machine
        return None if machine is None else machine.link_gb_per_s

    # The window's own events

    def focusNextPrevChild(self, next: bool) -> bool:
        """Move the focus; from a hidden widget it goes to the composer.

        Qt would move it to the next widget in the tab order, and Space would press that one.
        """
        focused, composer = QApplication.focusWidget(), self.chat.composer
        if focused is not None and not focused.isVisible() and composer.isVisible():
            composer.setFocus()
            return True
        transcript = self.chat.transcript
        if focused is not None and transcript.isAncestorOf(focused):  # or the same
            if transcript.focus_next(next):
                return True
            transcript.setFocus()  # from here on, in Qt's order
        moved = super().focusNextPrevChild(next)
        landed = QApplication.focusWidget()
        # Qt has the buttons of messages at the end of its order, as they were created last.
        while moved and landed is not transcript and transcript.isAncestorOf(landed or self):
            moved = super().focusNextPrevChild(next)
            landed = QApplication.focusWidget()
        if not next and landed is transcript:
            transcript.focus_last()
        return moved

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102
        super().resizeEvent(event)
        self._arrangement.fit(self.width())

    def _is_at_leisure(self) -> bool:
        """Return whether another chat may be shown: nothing is typed or answered in this one."""
        return not (self.chat.composer.input.toPlainText() or self.session.is_answering)

    def quit(self) -> None:
        """Close the window, also one that would stay in the tray."""
        self._is_quitting = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: D102
        if self.presence.stays and not self._is_quitting:
            self.hide()  # the answer goes on; the tray brings the window back
            event.ignore()
            return
        self.closing.emit()
        self.presence.leave()
        is_own = not self._on_screen.was_shrunk  # or a larger screen may come back
        if is_own and not self.isMaximized() and not self.isFullScreen():
            self.settings.width, self.settings.height = self.width(), self.height()
        self._arrangement.close_window()
        self.chat_page.keep_draft()
        if is_own:
            self.settings.geometry = bytes(self.saveGeometry().toBase64().data()).decode("ascii")
        self.settings.open_chat = self.chats.open_id
        self.preferences.take_server(self.server)
        self.preferences.save()
        self.calls.stop_all()
        self.calls.servers.shut_down()
        self.session.stop_all()
        self.controls.packs.stop()
        self.library.shut_down()
        self.link.shut_down()
        self.exchange.shut_down()
        self.chats.close()
        super().closeEvent(event)
