"""The window beside other programs: an answer is ready, and the tray."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

from PySide6.QtCore import QObject, QProcess, Signal
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon, QWidget

from app.session.session import Session
from app.settings.settings import Settings
from app.state.conversation import Conversation, Ending, Message
from app.widgets import icons

MESSAGE_MS = 8000
WORDS_CHARS = 160  # of the answer in a message
_READY = (Ending.FINISHED, Ending.LENGTH, Ending.CONTEXT, Ending.CUT_OFF)


class Presence(QObject):
    """Tells that an answer is ready while the window is not active, and owns the tray icon.

    Signals:
        wanted: the user wants the window.
        quit_wanted: the user wants to quit, in the tray's menu.
    """

    wanted = Signal()
    quit_wanted = Signal()

    def __init__(self, window: QWidget, session: Session, settings: Settings) -> None:
        super().__init__(window)
        self._window, self._settings = window, settings
        self.tell: Callable[[str, str], None] = self._tell
        """Shows a message of the system: title, text."""
        self._live: set[int] = set()  # message ids that were live
        self._tray: QSystemTrayIcon | None = None
        self._menu = QMenu(window)
        self._menu.addAction(self.tr("Open Outrider"), self.wanted.emit)
        self._menu.addAction(self.tr("Quit"), self.quit_wanted.emit)
        session.changed.connect(self._answer_changed)
        self.show_choice()

    @property
    def stays(self) -> bool:
        """Return whether a closed window stays in the tray."""
        return self._settings.tray and self._tray is not None and self._tray.isVisible()

    def show_choice(self) -> None:
        """Show or hide the tray icon as the settings say."""
        wanted = self._settings.tray and QSystemTrayIcon.isSystemTrayAvailable()
        if wanted and self._tray is None:
            self._tray = QSystemTrayIcon(icons.application_icon(), self)
            self._tray.setToolTip("Outrider")
            self._tray.setContextMenu(self._menu)
            self._tray.activated.connect(self._activated)
            self._tray.messageClicked.connect(self.wanted)
            self._tray.show()
        elif not wanted:
            self.leave()

    def leave(self) -> None:
        """Remove the tray icon."""
        tray, self._tray = self._tray, None
        if tray is not None:
            tray.hide()
            tray.deleteLater()

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason is not QSystemTrayIcon.ActivationReason.Context:
            self.wanted.emit()

    def _answer_changed(self, conversation: Conversation, message: Message) -> None:
        key = id(message)
        if message.is_live:
            self._live.add(key)
        elif key in self._live:
            self._live.discard(key)
            is_ready = message.ending in _READY and not message.tool_calls
            if is_ready and self._settings.notify and not self._window.isActiveWindow():
                QApplication.alert(self._window)
                words = " ".join(message.content.split())
                cut = words[:WORDS_CHARS].rstrip() + "\u2026" if len(words) > WORDS_CHARS else words
                self.tell(
                    self.tr("The answer is ready: {chat}").format(chat=conversation.title), cut
                )

    def _tell(self, title: str, words: str) -> None:
        if self._tray is not None:
            self._tray.showMessage(title, words, icons.application_icon(), MESSAGE_MS)
        elif sys.platform == "linux" and (program := shutil.which("notify-send")):
            options = ["--app-name=Outrider", f"--expire-time={MESSAGE_MS}", "--", title, words]
            QProcess.startDetached(program, options)
