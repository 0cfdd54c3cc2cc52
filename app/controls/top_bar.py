"""The bar at the top: name, model, the engine's one switch, cache rate, and a few buttons."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.controls.model_button import ModelButton
from app.controls.rate_control import RateControl
from app.session.local_server import ServerFacts
from app.widgets.icon_button import IconButton
from app.widgets.mode_switch import ModeSwitch


class TopBar(QWidget):
    """Holds its parts as attributes; the window connects them."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("topBar")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(62)
        self._brand = QLabel("Outrider")
        self._brand.setObjectName("brand")
        self.sidebar = IconButton("sidebar", self.tr("Show or hide the chats (Ctrl+B)"))
        self.sidebar.setCheckable(True)
        self.new_chat = IconButton("plus", self.tr("New chat (Ctrl+N)"))
        self.model = ModelButton()
        self.mode = ModeSwitch()
        self.rate = RateControl()
        self.controls = IconButton("controls", self.tr("Show or hide the engine controls (Ctrl+K)"))
        self.controls.setCheckable(True)
        self.panel = IconButton("panel", self.tr("Show or hide the engine panel (Ctrl+E)"))
        self.panel.setCheckable(True)
        self.server = QPushButton()
        self.server.setProperty("role", "toggle")
        self.server.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.server.hide()
        self.more = IconButton("more", self.tr("More"))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 0, 14, 0)
        layout.setSpacing(10)
        layout.addWidget(self.sidebar)
        layout.addWidget(self._brand)
        layout.addSpacing(6)
        layout.addWidget(self.model, 1)
        layout.addWidget(self.new_chat)
        layout.addStretch(1)
        layout.addWidget(self.mode)
        layout.addWidget(self.rate, 2)
        layout.addSpacing(6)
        layout.addWidget(self.server)
        layout.addWidget(self.controls)
        layout.addWidget(self.panel)
        layout.addWidget(self.more)

    def show_server(self, facts: ServerFacts) -> None:
        """Show that the local server is on, and how many requests are under way."""
        self.server.setVisible(facts.on)
        words = self.tr("Server")
        if facts.n_open:
            words = f"{words} \u00b7 {facts.n_open}"
        self.server.setText(words)
        self.server.setToolTip(
            self.tr("The local server is on, at {address}.").format(address=facts.address)
        )
        self.server.setAccessibleName(self.server.toolTip())

    def set_compact(self, compact: bool) -> None:
        """Leave out what a narrow window has no room for."""
        self._brand.setVisible(not compact)
        self.mode.setVisible(not compact)
        self.rate.set_compact(compact)
