"""The section of the settings about the local server."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication, QLineEdit, QPushButton

from app.session.local_server import DEFAULT_PORT, LocalServer, ServerFacts
from app.text.messages import localized
from app.widgets.fields import Number, Tick
from app.widgets.page import Section, beside, small


class ServerSection(Section):
    """Switch, port, key and state of the server."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(self.tr("Local server"))
        self._server = server
        self.wide(
            small(
                self.tr(
                    "Programs on this machine can use the loaded model through the protocols of "
                    "OpenAI and Anthropic. Nothing outside this machine can connect, and a key is "
                    "needed. Requests and the chat take turns."
                )
            )
        )
        self.on = Tick(self.tr("Serve the loaded model"))
        self.on.setAccessibleName(self.tr("Serve the loaded model to programs on this machine"))
        self.port = Number(0, 65535)
        self.port.setMinimumWidth(110)
        self.port.setToolTip(self.tr("0: any free port"))
        self.key = QLineEdit()
        self._show_key()
        self.key.setReadOnly(True)
        self.key.setMinimumWidth(240)
        self.key.setAccessibleName(self.tr("Key"))
        self.copy = QPushButton(self.tr("Copy"))
        self.copy.setAccessibleName(self.tr("Copy the key"))
        self.renew = QPushButton(self.tr("Renew"))
        self.renew.setAccessibleName(self.tr("Make another key"))
        self.status = small("")
        self.on.setChecked(server.wanted)
        self.port.setValue(server.port)
        self.wide(self.on)
        self.row(self.tr("Port"), self.port)
        self.row(self.tr("Key"), beside(self.key, self.copy, self.renew))
        self.wide(self.status)
        self.on.toggled.connect(self._want)
        self.port.editingFinished.connect(self._port_chosen)
        self.copy.clicked.connect(self._copy)
        self.renew.clicked.connect(self._renew)
        server.changed.connect(self._show)
        self._show(server.facts)

    def switch_off(self) -> None:
        """Switch the server off and restore the default port."""
        self.port.setValue(DEFAULT_PORT)
        self.on.setChecked(False)
        self._want()

    def _want(self) -> None:
        self._server.want(self.on.isChecked(), self.port.value())

    def _port_chosen(self) -> None:
        if self.port.value() != self._server.port:
            self._want()

    def _copy(self) -> None:
        QApplication.clipboard().setText(self._server.key)

    def _show_key(self) -> None:
        self.key.setText(self._server.key)
        self.key.setCursorPosition(0)

    def _renew(self) -> None:
        self._server.renew_key()
        self._show_key()

    def _show(self, facts: ServerFacts) -> None:
        if facts.trouble:
            words = localized(facts.trouble)
        elif facts.on:
            words = self.tr("On, at {address}.").format(address=facts.address)
            words += " " + self.tr("%n request(s) so far.", "", facts.n_request)
            if facts.n_open:
                words += " " + self.tr("%n of them under way.", "", facts.n_open)
        elif self._server.wanted:
            words = self.tr("It starts with the engine.")
        else:
            words = self.tr("Off.")
        self.status.setText(words)
        self.status.setProperty("role", "warning" if facts.trouble else "small")
        self.status.style().unpolish(self.status)
        self.status.style().polish(self.status)
