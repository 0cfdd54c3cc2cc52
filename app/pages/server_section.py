"""The section of the settings about the local server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QPushButton

from app.session.local_server import (
    MINUTES_MAX,
    LocalServer,
    ServerChoice,
    ServerFacts,
)
from app.text.messages import localized
from app.widgets import files
from app.widgets.fields import Number, Tick, WholeLine
from app.widgets.page import Section, beside, small
from app.widgets.parts import dress


class ServerSection(Section):
    """Switch, port, key, models on demand and state of the server."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(self.tr("Local server"))
        self._server = server
        self.wide(
            small(
                self.tr(
                    "Programs on this machine can use the loaded model through the protocols of "
                    "OpenAI, Anthropic and Ollama. Nothing outside this machine can connect unless "
                    "you allow it below, and a key is needed. Programs share the model's time with "
                    "the chat, which keeps most of its speed."
                )
            )
        )
        self.on = Tick(self.tr("Serve the loaded model"))
        self.on.setAccessibleName(self.tr("Serve the loaded model to programs on this machine"))
        self.port = Number(0, 65535)
        self.port.setMinimumWidth(110)
        self.port.setToolTip(self.tr("0: any free port"))
        self.key = WholeLine()
        self._show_key()
        self.key.setAccessibleName(self.tr("Key"))
        self.copy = QPushButton(self.tr("Copy"))
        self.copy.setAccessibleName(self.tr("Copy the key"))
        self.renew = QPushButton(self.tr("Renew"))
        self.renew.setAccessibleName(self.tr("Make another key"))
        self.loads_models = Tick(self.tr("Load the model that a program names"))
        self.loads_models.setToolTip(
            self.tr(
                "Any model of the page Models. It takes the place of the chat's, which is loaded "
                "again for the next message."
            )
        )
        self.loads_models.setAccessibleName(self.loads_models.text())
        self.unload_min = Number(0, MINUTES_MAX)
        self.unload_min.setMinimumWidth(110)
        self.unload_min.setSpecialValueText(self.tr("never"))
        self.unload_min.setSuffix(self.tr(" min"))
        self.unload_min.setToolTip(
            self.tr("Time without a request or message; the next one loads the model again.")
        )
        self.embedding_model = QLabel()
        self.choose_embedding_model = QPushButton(self.tr("Choose…"))
        self.choose_embedding_model.setAccessibleName(self.tr("Choose a model for embeddings"))
        self.choose_embedding_model.setToolTip(
            self.tr(
                "A small model that turns texts into numbers or ranks documents for programs. It "
                "is loaded when it is asked, beside the other one."
            )
        )
        self.no_embedding_model = QPushButton(self.tr("None"))
        self.no_embedding_model.setAccessibleName(self.tr("Use no model for embeddings"))
        self.is_open = Tick(self.tr("Let other machines connect"))
        self.is_open.setToolTip(
            self.tr("They call this machine by its address in the network, and need the key.")
        )
        self.is_open.setAccessibleName(self.is_open.text())
        self.origins = QLineEdit()
        self.origins.setMinimumWidth(240)
        self.origins.setPlaceholderText("https://chat.example")
        self.origins.setAccessibleName(self.tr("Web pages that may use it (CORS)"))
        self.origins.setToolTip(
            self.tr(
                "Origins of pages in a browser that may ask with the key, with spaces between "
                "them; localhost: all pages of this machine."
            )
        )
        self.status = small("")
        self._show_choice(server.choice)
        self.wide(self.on)
        self.row(self.tr("Port"), self.port)
        self.row(self.tr("Key"), beside(self.key, self.copy, self.renew))
        self.wide(self.loads_models)
        self.row(self.tr("Unload an unused model after"), self.unload_min)
        self.row(
            self.tr("Embeddings"),
            beside(self.embedding_model, self.choose_embedding_model, self.no_embedding_model),
        )
        self.row(self.tr("Web pages (CORS)"), self.origins)  # short: the key needs the room
        self.wide(self.is_open)
        self.wide(self.status)
        self.on.toggled.connect(self._choose)
        self.loads_models.toggled.connect(self._choose)
        self.is_open.toggled.connect(self._choose)
        for field in (self.port, self.unload_min, self.origins):
            field.editingFinished.connect(self._choose)
        self.copy.clicked.connect(self._copy)
        self.renew.clicked.connect(self._renew)
        self.choose_embedding_model.clicked.connect(self._browse)
        self.no_embedding_model.clicked.connect(lambda: self.use_for_embeddings(""))
        server.changed.connect(self._show)
        self._show(server.facts)

    def switch_off(self) -> None:
        """Switch the server off and restore its default settings, except the key."""
        self._show_choice(ServerChoice())
        self._choose()

    def _show_choice(self, choice: ServerChoice) -> None:
        shown = (self.on, self.port, self.loads_models, self.unload_min, self.is_open, self.origins)
        for field in shown:
            field.blockSignals(True)
        self.on.setChecked(choice.on)
        self.port.setValue(choice.port)
        self.loads_models.setChecked(choice.loads_models)
        self.unload_min.setValue(choice.unload_min)
        self._show_embedding_model(choice.embedding_model)
        self.is_open.setChecked(choice.is_open)
        self.origins.setText(choice.origins)
        for field in shown:
            field.blockSignals(False)

    def _choose(self) -> None:
        choice = replace(
            self._server.choice,
            on=self.on.isChecked(),
            port=self.port.value(),
            loads_models=self.loads_models.isChecked(),
            unload_min=self.unload_min.value(),
            embedding_model=self._embedding_file,
            is_open=self.is_open.isChecked(),
            origins=" ".join(self.origins.text().split()),
        )
        if choice != self._server.choice:
            self._server.choose(choice)

    def _browse(self) -> None:
        if name := files.browse_model(self, self.tr("Choose a small model for embeddings")):
            self.use_for_embeddings(name)

    def use_for_embeddings(self, path: str) -> None:
        """Let programs use the small model of a file; "": none."""
        self._show_embedding_model(path)
        self._choose()

    def _show_embedding_model(self, path: str) -> None:
        self._embedding_file = path
        self.embedding_model.setText(Path(path).name if path else self.tr("none"))
        self.embedding_model.setToolTip(path)
        self.no_embedding_model.setEnabled(bool(path))

    def _copy(self) -> None:
        QApplication.clipboard().setText(self._server.choice.key)

    def _show_key(self) -> None:
        self.key.setText(self._server.choice.key)

    def _renew(self) -> None:
        self._server.renew_key()
        self._show_key()

    def _show(self, facts: ServerFacts) -> None:
        is_open = self._server.choice.is_open
        if facts.trouble:
            words = localized(facts.trouble)
        elif facts.on:
            words = self.tr("On, at {address}.").format(address=facts.address)
            words += " " + self.tr("%n request(s) so far.", "", facts.n_request)
            if facts.n_open:
                words += " " + self.tr("%n of them under way.", "", facts.n_open)
            if facts.model and not facts.is_own:
                words += " " + self.tr("A program has loaded {model}.").format(model=facts.model)
            elif not facts.model:
                words += " " + self.tr("No model is in memory.")
            if is_open:
                words += " " + self.tr(
                    "Other machines can connect. Nothing is encrypted: whoever can listen in the "
                    "network reads the key, the requests and the answers."
                )
        elif self._server.choice.on:
            words = self.tr("It starts with the engine.")
        else:
            words = self.tr("Off.")
        self.status.setText(words)
        dress(self.status, "warning" if facts.trouble or is_open else "small")
