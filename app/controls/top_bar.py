"""The bar at the top: name, model, the engine's one switch, cache rate, and a few buttons."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.controls.model_button import ModelButton
from app.controls.rate_control import RateControl
from app.session.local_server import ServerFacts
from app.widgets.icon_button import IconButton
from app.widgets.mode_switch import ModeSwitch
from app.widgets.parts import filled, spaced

_GAP = 6  # pixels, beside the spacing
_LESS = (
    (True, True, False),
    (False, True, False),
    (False, True, True),
    (True, False, True),
    (False, False, True),
)
"""With less and less room: whether name and mode are shown, and the rate is compact."""


class TopBar(QWidget):
    """Holds its parts as attributes; the window connects them."""

    def __init__(self) -> None:
        super().__init__()
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
        self._buttons = self.controls, self.panel, self.more
        layout = self._layout = spaced(QHBoxLayout(self), 10, 14, 0, 14)
        filled(layout, self.sidebar, self._brand).addSpacing(_GAP)
        filled(layout, self.model, self.new_chat, 0, self.mode, self.rate).addSpacing(_GAP)
        filled(layout, self.server, *self._buttons)

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

    def event(self, event: QEvent) -> bool:  # noqa: D102
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self._fit()
        return super().event(event)

    def _fit(self) -> None:
        """Hide the parts that have no room, so that no word of the others is cut."""
        layout = self._layout
        kept = (self.sidebar, self.model, self.new_chat, self.server, *self._buttons)
        shown = [widget for widget in kept if not widget.isHidden()]
        base = sum(widget.sizeHint().width() for widget in shown)
        base += layout.contentsMargins().left() + layout.contentsMargins().right()
        base += 2 * _GAP + layout.spacing() * (len(shown) + 2)
        for brand, mode, compact in _LESS:
            extra = self.rate.needed(compact)
            for widget, is_kept in ((self._brand, brand), (self.mode, mode)):
                extra += (widget.sizeHint().width() + layout.spacing()) * is_kept
            if base + extra <= self.width():
                break
        self._brand.setVisible(brand)
        self.mode.setVisible(mode)
        self.rate.set_compact(compact)
