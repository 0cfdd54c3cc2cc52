"""Decide where sidebar, chat and engine panel are, and how wide."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from app.chat.transcript import COLUMN_WIDTH
from app.controls.top_bar import TopBar
from app.panel.panel import EnginePanel
from app.settings.settings import Settings
from app.sidebar.sidebar import Sidebar
from app.widgets.on_screen import OnScreen

NARROW = 980  # below this width the panel takes the place of the chat
ROOMY = 1180  # from this width on the sidebar stands beside the others
BARE = 700  # below this width the sidebar takes the place of the chat
SIDEBAR_WIDTH = 252
SIDEBAR_LIMITS = (180, 480)
PANEL_SHARE = 0.34
PANEL_WIDTH = (340, 470)  # by itself, as long as the chat uses the rest
CHAT_LEAST = 360
CHAT_FULL = COLUMN_WIDTH + 120  # the chat uses no more
EMPTY_SHARE = 0.8  # of what the chat leaves empty that the panel takes
WINDOW_SIZE = 1180, 820
_ANY_WIDTH = 16_777_215  # Qt's QWIDGETSIZE_MAX


class PanelWindow(QWidget):
    """A window of its own around the engine panel.

    Signals:
        closed: the user closed it.
    """

    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle(self.tr("Engine \u2013 Outrider"))
        QVBoxLayout(self).setContentsMargins(0, 0, 0, 0)
        self.resize(*WINDOW_SIZE)
        OnScreen(self)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: D102
        super().closeEvent(event)
        self.closed.emit()


class Arrangement(QObject):
    """Show chat and panel side by side in a wide window, one of them in a narrow one.

    A roomy window has the sidebar at the left. In others the user opens it: it takes the place of
    the panel or, in a bare window, of the chat. The user can drag the borders, give the panel the
    whole window, or a window of its own.
    """

    def __init__(
        self, sidebar: Sidebar, chat: QWidget, panel: EnginePanel, bar: TopBar, settings: Settings
    ) -> None:
        super().__init__()
        self._sidebar, self._chat, self._panel, self._bar = sidebar, chat, panel, bar
        self._settings = settings
        self._width = 0
        self._panel_instead = False  # of the chat, in a narrow window
        self._sidebar_instead = False  # of the panel or the chat, in a window that is not roomy
        self._is_wide = False  # the panel has the whole window
        self._window: PanelWindow | None = None
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(5)
        for widget in (sidebar, chat, panel):
            self.splitter.addWidget(widget)
        self.splitter.setStretchFactor(1, 1)
        self.splitter.splitterMoved.connect(self._moved)
        chat.setMinimumWidth(CHAT_LEAST)
        panel.parts.wide.clicked.connect(self.toggle_wide)
        panel.parts.window.clicked.connect(self.toggle_window)

    def fit(self, width: int) -> None:
        """Show the panes that fit into a width."""
        self._width = width
        narrow, roomy = width < NARROW, width >= ROOMY
        chats_shown = self._settings.show_sidebar if roomy else self._sidebar_instead
        chats_alone = chats_shown and width < BARE
        shown = self._panel_instead if narrow else self._settings.show_panel
        shown = (shown and not (chats_shown and not roomy)) or self._is_wide
        alone = shown and (narrow or self._is_wide) and self._window is None
        chats_shown = chats_shown and not (self._is_wide and alone)
        self._sidebar.setVisible(chats_shown)
        self._sidebar.setMinimumWidth(0 if chats_alone else SIDEBAR_LIMITS[0])
        self._sidebar.setMaximumWidth(_ANY_WIDTH if chats_alone else SIDEBAR_LIMITS[1])
        self._bar.sidebar.setChecked(chats_shown)
        self._bar.new_chat.setVisible(not chats_shown)
        self._panel.setVisible(shown or self._window is not None)
        self._chat.setVisible(not alone and not chats_alone)
        self._bar.panel.setChecked(shown or self._window is not None)
        self._panel.setMinimumWidth(0 if narrow else PANEL_WIDTH[0])
        self._panel.parts.show_size(self._is_wide, self._window is not None)
        left = self._settings.sidebar_width or SIDEBAR_WIDTH
        left = left if chats_shown else 0
        right = 0
        if shown and not alone and self._window is None:
            right = self._settings.panel_width or self._panel_width(width - left)
            right = max(min(right, width - left - CHAT_LEAST), PANEL_WIDTH[0])
        if alone:
            left, right = 0 if not chats_shown else left, width
        self.splitter.setSizes([left, max(width - left - right, 0), right])

    @staticmethod
    def _panel_width(room: int) -> int:
        """Return the panel's width if the user has not chosen one."""
        least, most = PANEL_WIDTH
        usual = int(min(max((room + SIDEBAR_WIDTH) * PANEL_SHARE, least), most))
        return max(usual, int((room - CHAT_FULL) * EMPTY_SHARE))

    def _moved(self) -> None:
        """Remember the widths that the user has chosen."""
        left, middle, right = self.splitter.sizes()
        if left and middle:
            self._settings.sidebar_width = left
        if right and middle:
            self._settings.panel_width = right

    def toggle_sidebar(self) -> None:
        """Show or hide the sidebar."""
        self._is_wide = False
        if self._width < ROOMY:
            self._sidebar_instead = not self._sidebar_instead
        else:
            self._settings.show_sidebar = not self._settings.show_sidebar
        self.fit(self._width)

    def toggle_panel(self) -> None:
        """Show or hide the engine panel; from its own window it comes back."""
        if self._window is not None:
            self.close_window()
        elif self._is_wide:
            self.toggle_wide()
        else:
            if self._width < NARROW:
                self._panel_instead = not self._panel_instead
                self._sidebar_instead = False
            else:
                self._settings.show_panel = not self._settings.show_panel
            self.fit(self._width)

    def toggle_wide(self) -> None:
        """Give the panel the whole window, or its place beside the chat."""
        self.close_window()
        self._is_wide = not self._is_wide
        self.fit(self._width)

    def toggle_window(self) -> None:
        """Give the panel a window of its own, or bring it back."""
        if self._window is not None:
            self.close_window()
            return
        self._is_wide = False
        self._window = window = PanelWindow()
        window.closed.connect(self.close_window)
        layout = window.layout()
        assert layout is not None
        layout.addWidget(self._panel)
        self.fit(self._width)
        window.show()

    def close_window(self) -> None:
        """Bring the panel back from its own window, if it has one."""
        window, self._window = self._window, None
        if window is None:
            return
        self.splitter.addWidget(self._panel)
        window.close()
        window.deleteLater()
        self.fit(self._width)

    def chat_opened(self) -> None:
        """Make room for a chat that was just opened."""
        self._is_wide = False
        if self._width < BARE:
            self._sidebar_instead = False
        self.fit(self._width)
