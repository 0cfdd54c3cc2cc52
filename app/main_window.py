"""The window: puts the parts together and passes what happens between them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint
from PySide6.QtGui import (
    QAction,
    QActionGroup,
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QKeySequence,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QMainWindow,
    QMenu,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import models, settings, theme
from app.chat_exchange import ChatExchange
from app.chat_view import ChatView
from app.chats import Chats
from app.drop_hint import DropHint
from app.engine.panel import EnginePanel
from app.engine_link import EngineLink
from app.facts import Residency, Statistics
from app.library.page import LibraryPage
from app.preset_dialog import PresetDialog, name_of
from app.session import Notice, Session, State
from app.sidebar import Sidebar
from app.store.presets import Preset
from app.top_bar import TopBar

NARROW = 980  # below this width there is room for the chat or the panel, not for both
ROOMY = 1180  # from this width on there is room for the chats, too
BARE = 700  # below this width the chats take the place of the chat
SIDEBAR_WIDTH = 252
PANEL_SHARE = 0.34
PANEL_WIDTH = (340, 470)


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
        self.session = Session(self.link, self.settings.cache_rate, self)
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
        self.chat = ChatView()
        self.panel = EnginePanel()
        self._drop_hint = DropHint(self)
        self._save_failed = False
        self._panel_instead = False  # of the chat, in a narrow window
        self._sidebar_instead = False  # of the panel or the chat, where there is little room
        self._lay_out()
        self._make_actions()
        self._connect()
        self.setAcceptDrops(True)
        self.resize(self.settings.width, self.settings.height)
        self._show_state(self.session.state)
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
        self._show_chat()

    def browse(self) -> None:
        """Show the file dialog."""
        start = str(Path(self.settings.recent[0]).parent) if self.settings.recent else ""
        name, _ = QFileDialog.getOpenFileName(
            self, "Open a model", start, "GGUF models (*.gguf);;All files (*)"
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
        self._pages.addWidget(self.library.view)
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
        self._action("New chat", "Ctrl+N", self._new_chat)
        self._action("Search chats", "Ctrl+F", self._search_chats)
        self._action("Chats", "Ctrl+B", self._toggle_sidebar)
        self._action("Open a GGUF file\u2026", "Ctrl+O", self.browse)
        self._action("Models", "Ctrl+M", self._toggle_library)
        self._action("System prompt and sampling\u2026", "Ctrl+P", self.edit_preset)
        self._action("Engine panel", "Ctrl+E", self._toggle_panel)
        self._action("Stop", "Esc", self._escape)
        self._action("Write", "Ctrl+L", self._show_chat)
        self._action("Quit", "Ctrl+Q", self.close)
        menu = QMenu(self.top_bar.more)
        for action in self.actions():
            menu.addAction(action)
        menu.addSeparator()
        group = QActionGroup(self)
        for choice, label in (
            (theme.Choice.SYSTEM, "Colours of the system"),
            (theme.Choice.LIGHT, "Light"),
            (theme.Choice.DARK, "Dark"),
        ):
            action = menu.addAction(label, functools.partial(self.set_theme, choice))
            action.setCheckable(True)
            action.setChecked(choice.value == self.settings.theme)
            group.addAction(action)
        self._more_menu = menu
        self.top_bar.more.clicked.connect(self._show_more)

    def _show_more(self) -> None:
        button, menu = self.top_bar.more, self._more_menu
        corner = button.rect().bottomRight() - QPoint(menu.sizeHint().width(), 0)
        menu.popup(button.mapToGlobal(corner))

    def _action(self, label: str, keys: str, run: Callable[[], object]) -> None:
        action = QAction(label, self)
        action.setShortcut(QKeySequence(keys))
        action.triggered.connect(lambda _=False: run())
        self.addAction(action)

    def _connect(self) -> None:
        session, chat, bar = self.session, self.chat, self.top_bar
        session.state_changed.connect(self._show_state)
        session.model_changed.connect(self._show_model)
        session.loading.connect(chat.loading.show_progress)
        session.message_added.connect(self._message_added)
        session.message_changed.connect(chat.transcript.refresh)
        session.conversation_replaced.connect(self._show_conversation)
        session.statistics_changed.connect(self._show_statistics)
        session.residency_changed.connect(self._show_residency)
        session.notice.connect(chat.banner.show_notice)
        session.draft.connect(chat.composer.set_text)
        self.chats.trouble.connect(lambda text: session.notice.emit(Notice(text)))
        self.sidebar.new_chat.connect(self._new_chat)
        self.sidebar.import_file.connect(self.exchange.ask_import)
        self.sidebar.opened.connect(self._chat_opened)
        self.sidebar.list.exported.connect(self.exchange.ask_export)
        self.exchange.notice.connect(session.notice)
        chat.composer.send.connect(self._send)
        chat.composer.stop.connect(session.stop)
        chat.composer.preset.clicked.connect(self.edit_preset)
        chat.transcript.go_on.connect(session.go_on)
        chat.transcript.regenerate.connect(session.regenerate)
        chat.transcript.edited.connect(session.edit)
        chat.transcript.stepped.connect(self.chats.switch)
        session.branch_begun.connect(chat.transcript.cut)
        chat.loading.cancel.connect(session.cancel_loading)
        chat.welcome.suggested.connect(self._send)
        chat.welcome.open_file.connect(self.browse)
        bar.model.picked.connect(self.open_model)
        bar.model.browse.connect(self.browse)
        bar.model.library.connect(self._show_library)
        self.library.view.picked.connect(self.open_model)
        self.library.view.closed.connect(self._show_chat)
        self.library.notice.connect(session.notice)
        bar.new_chat.clicked.connect(self._new_chat)
        bar.rate.chosen.connect(self._choose_rate)
        bar.panel.clicked.connect(self._toggle_panel)
        bar.sidebar.clicked.connect(self._toggle_sidebar)

    # What the user does

    def set_theme(self, choice: theme.Choice, remember: bool = True) -> None:
        """Change the colours, and remember the choice."""
        if remember:
            self.settings.theme = choice.value
            self._save_settings()
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, choice)

    def _send(self, text: str) -> None:
        if self.session.send(text):
            self.chat.composer.clear()
            self.chat.composer.setFocus()

    def _new_chat(self) -> None:
        self.session.new_chat()
        self.sidebar.list.mark(0)
        self._chat_opened()

    def _show_library(self) -> None:
        self._pages.setCurrentWidget(self.library.view)

    def _show_chat(self) -> None:
        self._pages.setCurrentIndex(0)
        self.chat.composer.setFocus()

    def _toggle_library(self) -> None:
        if self.library.view.isVisible():
            self._show_chat()
        else:
            self._show_library()

    def _escape(self) -> None:
        if self.library.view.isVisible():
            self._show_chat()
        else:
            self.session.stop()

    def _chat_opened(self) -> None:
        self._show_chat()
        if self.width() < BARE:
            self._sidebar_instead = False
        self._fit_panel()
        self.chat.composer.setFocus()

    def edit_preset(self) -> None:
        """Let the user change the system prompt and the sampling."""
        session = self.session
        model = models.title(session.path) if session.path is not None else ""
        for_model = session.conversation.preset is None and not session.conversation.messages
        dialog = PresetDialog(session.preset, model, for_model, self)
        if dialog.exec():
            self.take_preset(dialog.preset, dialog.for_model)
        dialog.deleteLater()
        self.chat.composer.setFocus()

    def take_preset(self, preset: Preset, for_model: bool) -> None:
        """Use a preset for the open chat, or for all chats with the model."""
        if for_model:
            self.chats.set_model_preset(preset)
            self.chats.set_preset(None)
        else:
            self.chats.set_preset(preset)
        self._show_composer()

    def _search_chats(self) -> None:
        self._pages.setCurrentIndex(0)
        if not self.sidebar.isVisible():
            self._toggle_sidebar()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def _toggle_sidebar(self) -> None:
        self._pages.setCurrentIndex(0)
        if self.width() < ROOMY:
            self._sidebar_instead = not self._sidebar_instead
        else:
            self.settings.show_sidebar = not self.settings.show_sidebar
        self._fit_panel()

    def _choose_rate(self, rate: float) -> None:
        self.settings.cache_rate = rate
        self.session.set_rate(rate)

    def _toggle_panel(self) -> None:
        self._pages.setCurrentIndex(0)
        if self._is_narrow:
            self._panel_instead = not self._panel_instead
            self._sidebar_instead = False
        else:
            self.settings.show_panel = not self.settings.show_panel
        self._fit_panel()

    # What the session says

    def _show_state(self, state: State) -> None:
        chat = self.chat
        chat.loading.setVisible(state is State.LOADING)
        if state is State.LOADING and self.session.path is not None:
            chat.loading.begin(models.title(self.session.path))
        self._show_composer()
        self._show_welcome()
        self._show_rate()

    def _show_model(self) -> None:
        session = self.session
        self.top_bar.model.show_model(session.path, session.model)
        if session.model is not None and session.path is not None:
            self._remember(session.path)
        self.top_bar.model.show_recent(self.settings.recent, session.path)
        self.library.show_recent(self.settings.recent)
        self.panel.show_model(session.model, session.cache)
        self._show_rate()
        self._show_welcome()
        self._show_composer()

    def _show_rate(self) -> None:
        session = self.session
        self.top_bar.rate.show_cache(
            session.slots, session.model, session.cache, session.asked_rate, session.rate_waits
        )

    def _show_welcome(self) -> None:
        session = self.session
        embedded = session.path is not None and models.is_embedded(session.path)
        self.chat.welcome.show_model(session.model, session.state is State.LOADING, embedded)

    def _show_composer(self) -> None:
        session = self.session
        hints = {
            State.EMPTY: "No model is loaded",
            State.LOADING: "The model is loading",
            State.CHANGING: "The cache is changing size",
            State.STOPPING: "Stopping",
            State.DEAD: "The engine is not running",
        }
        hint = hints.get(session.state, "")
        preset = session.preset
        words = "System prompt set" if preset.system else "System prompt"
        if preset.sampling:
            words += f" \u00b7 {name_of(preset)}"
        self.chat.composer.show_preset(words)
        self.chat.composer.show_state(
            session.can_send, session.is_answering, hint or self._context_words()
        )

    def _context_words(self) -> str:
        last = self.session.conversation.last
        if last is None or last.statistics is None or self.session.model is None:
            self.chat.composer.meter.show_use(0, 0)
            return ""
        used = last.statistics.n_prompt + last.statistics.n_token
        self.chat.composer.meter.show_use(used, self.session.n_context)
        return f"context {used:,} of {self.session.n_context:,} tokens"

    def _show_conversation(self) -> None:
        conversation = self.session.conversation
        self.chat.transcript.show_conversation(conversation)
        self.chat.show_messages(bool(conversation.messages))
        self._show_composer()

    def _message_added(self, index: int) -> None:
        self.chat.transcript.add(self.session.conversation.messages[index])
        self.chat.show_messages(True)

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

    @property
    def _is_narrow(self) -> bool:
        return self.width() < NARROW

    def _fit_panel(self) -> None:
        """Chat and panel side by side where there is room, one or the other where not.

        The chats have a place at the left in a roomy window; in others they come when asked for,
        in place of the panel or, in a bare one, of the chat.
        """
        narrow = self._is_narrow
        roomy = self.width() >= ROOMY
        chats_shown = self.settings.show_sidebar if roomy else self._sidebar_instead
        chats_alone = chats_shown and self.width() < BARE
        self.sidebar.setVisible(chats_shown)
        self.sidebar.setMaximumWidth(16_777_215 if chats_alone else SIDEBAR_WIDTH)
        self.top_bar.sidebar.setChecked(chats_shown)
        self.top_bar.new_chat.setVisible(not chats_shown)
        self.top_bar.set_compact(narrow)
        shown = self._panel_instead if narrow else self.settings.show_panel
        shown = shown and not (chats_shown and not roomy)
        self.panel.setVisible(shown)
        self.chat.setVisible(not (narrow and shown) and not chats_alone)
        self.top_bar.panel.setChecked(shown)
        if narrow:
            self.panel.setMinimumWidth(0)
            self.panel.setMaximumWidth(16_777_215)
        else:
            width = int(min(max(self.width() * PANEL_SHARE, PANEL_WIDTH[0]), PANEL_WIDTH[1]))
            self.panel.setFixedWidth(width)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102, N802
        super().resizeEvent(event)
        self._fit_panel()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:  # noqa: D102, N802
        if event.mimeData().hasUrls():
            model = models.model_in_drop(_paths(event.mimeData()))
            folders = [path for path in _paths(event.mimeData()) if path.is_dir()]
            self._drop_hint.show_for(
                model.name if model else None, folders[0].name if folders else None
            )
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:  # noqa: D102, N802
        self._drop_hint.hide()

    def dropEvent(self, event: QDropEvent) -> None:  # noqa: D102, N802
        self._drop_hint.hide()
        paths = _paths(event.mimeData())
        model = models.model_in_drop(paths)
        if model is not None:
            event.acceptProposedAction()
            self.open_model(model)
        elif folders := [path for path in paths if path.is_dir()]:
            event.acceptProposedAction()
            for folder in folders:
                self.library.library.add_folder(folder)
            self._show_library()
        elif paths:
            self._show_chat()
            self.session.notice.emit(Notice(f"{paths[0].name} is not a GGUF file."))

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: D102, N802
        self.settings.cache_rate = self.session.asked_rate
        if not self.isMaximized() and not self.isFullScreen():
            self.settings.width, self.settings.height = self.width(), self.height()
        self.settings.open_chat = self.chats.open_id
        settings.save(self.settings, self._settings_path)
        self.session.stop()
        self.library.shut_down()
        self.link.shut_down()
        self.chats.close()
        super().closeEvent(event)


def _paths(data: QMimeData) -> list[Path]:
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
