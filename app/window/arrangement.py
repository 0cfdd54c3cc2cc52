"""Decide which of sidebar, chat and engine panel are visible at a window's width."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from app.controls.top_bar import TopBar
from app.panel.panel import EnginePanel
from app.settings.settings import Settings
from app.sidebar.sidebar import Sidebar

NARROW = 980  # below this width the panel takes the place of the chat
ROOMY = 1180  # from this width on the sidebar stands beside the others
BARE = 700  # below this width the sidebar takes the place of the chat
SIDEBAR_WIDTH = 252
PANEL_SHARE = 0.34
PANEL_WIDTH = (340, 470)
_ANY_WIDTH = 16_777_215  # Qt's QWIDGETSIZE_MAX


class Arrangement:
    """Show chat and panel side by side in a wide window, one of them in a narrow one.

    A roomy window has the sidebar at the left. In others the user opens it: it takes the place of
    the panel or, in a bare window, of the chat.
    """

    def __init__(
        self, sidebar: Sidebar, chat: QWidget, panel: EnginePanel, bar: TopBar, settings: Settings
    ) -> None:
        self._sidebar, self._chat, self._panel, self._bar = sidebar, chat, panel, bar
        self._settings = settings
        self._width = 0
        self._panel_instead = False  # of the chat, in a narrow window
        self._sidebar_instead = False  # of the panel or the chat, in a window that is not roomy

    def fit(self, width: int) -> None:
        """Show the panes that fit into a width."""
        self._width = width
        narrow, roomy = width < NARROW, width >= ROOMY
        chats_shown = self._settings.show_sidebar if roomy else self._sidebar_instead
        chats_alone = chats_shown and width < BARE
        self._sidebar.setVisible(chats_shown)
        self._sidebar.setMaximumWidth(_ANY_WIDTH if chats_alone else SIDEBAR_WIDTH)
        self._bar.sidebar.setChecked(chats_shown)
        self._bar.new_chat.setVisible(not chats_shown)
        self._bar.set_compact(narrow)
        shown = self._panel_instead if narrow else self._settings.show_panel
        shown = shown and not (chats_shown and not roomy)
        self._panel.setVisible(shown)
        self._chat.setVisible(not (narrow and shown) and not chats_alone)
        self._bar.panel.setChecked(shown)
        if narrow:
            self._panel.setMinimumWidth(0)
            self._panel.setMaximumWidth(_ANY_WIDTH)
        else:
            self._panel.setFixedWidth(
                int(min(max(width * PANEL_SHARE, PANEL_WIDTH[0]), PANEL_WIDTH[1]))
            )

    def toggle_sidebar(self) -> None:
        """Show or hide the sidebar."""
        if self._width < ROOMY:
            self._sidebar_instead = not self._sidebar_instead
        else:
            self._settings.show_sidebar = not self._settings.show_sidebar
        self.fit(self._width)

    def toggle_panel(self) -> None:
        """Show or hide the engine panel."""
        if self._width < NARROW:
            self._panel_instead = not self._panel_instead
            self._sidebar_instead = False
        else:
            self._settings.show_panel = not self._settings.show_panel
        self.fit(self._width)

    def chat_opened(self) -> None:
        """Make room for a chat that was just opened."""
        if self._width < BARE:
            self._sidebar_instead = False
        self.fit(self._width)
