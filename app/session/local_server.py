"""The local server as the window sees it: requested, running, and at which address."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.session.worker_link import EngineLink
from backend.protocol.status import Json

DEFAULT_PORT = 8088


MINUTES_MAX = 24 * 60


@dataclass(frozen=True)
class ServerChoice:
    """The user's settings of the server.

    key: programs need it; made when it is first needed. loads_models: a request may name any model
    of the library. unload_min: minutes without work after which the model is freed; 0: never.
    embedding_model: the file of a small model for embeddings, or "". is_open: other machines may
    connect. origins: of pages in a browser that may ask, with spaces between them.
    """

    on: bool = False
    port: int = DEFAULT_PORT
    key: str = ""
    loads_models: bool = False
    unload_min: int = 0
    embedding_model: str = ""
    is_open: bool = False
    origins: str = ""


@dataclass(frozen=True)
class ServerRequest:
    """A request that has ended. at_s: since 1970. refusal: one sentence, or ""."""

    at_s: float
    took_s: float
    model: str
    refusal: str

    @classmethod
    def from_json(cls, data: Json) -> ServerRequest:
        """Read a line of the log."""
        return cls(
            float(data["at_s"]), float(data["took_s"]), str(data["model"]), str(data["refusal"])
        )


@dataclass(frozen=True)
class ServerFacts:
    """The state of the worker's server.

    n_request: requests so far; n_open: requests in progress or in the queue. model: the name of the
    loaded model, or "". is_own: it is the window's, and not one that a program named. log: the last
    requests that have ended, oldest first.
    """

    on: bool = False
    address: str = ""
    port: int = 0
    n_request: int = 0
    n_open: int = 0
    trouble: str = ""
    model: str = ""
    is_own: bool = False
    log: tuple[ServerRequest, ...] = ()

    @classmethod
    def from_json(cls, data: Json) -> ServerFacts:
        """Read a message."""
        return cls(
            on=bool(data.get("on")),
            address=str(data.get("address") or ""),
            port=int(data.get("port") or 0),
            n_request=int(data.get("n_request") or 0),
            n_open=int(data.get("n_open") or 0),
            trouble=str(data.get("trouble") or ""),
            model=str(data.get("model") or ""),
            is_own=bool(data.get("is_own")),
            log=tuple(ServerRequest.from_json(line) for line in data.get("log") or ()),
        )


class LocalServer(QObject):
    """Switch the worker's server as the user wants, also after a restart of the worker.

    Signals:
        changed: (ServerFacts), also after a change of `choice`.
        models_wanted: the models that a request may name have to be found.
    """

    changed = Signal(object)
    models_wanted = Signal()

    def __init__(
        self, link: EngineLink, choice: ServerChoice, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._link = link
        self.choice = choice if choice.key else replace(choice, key=new_key())
        self.facts = ServerFacts()
        self.models: Callable[[], dict[str, Path]] = dict
        """Return the models that a request may name, by name."""
        self.settings: Callable[[], dict[str, Any]] = dict
        """Return the settings of the engine for them."""
        self._sent: dict[str, Any] = {}
        link.hello.connect(self._on_hello)
        link.server.connect(self._on_state)
        link.died.connect(lambda _: self._on_state({}))

    def choose(self, choice: ServerChoice) -> None:
        """Change the settings, also while the server runs."""
        self.choice = choice
        self._send()

    def renew_key(self) -> None:
        """Create another key. Programs with the old key are refused from now on."""
        self.choose(replace(self.choice, key=new_key()))

    def refresh(self) -> None:
        """Tell the worker if the models or the settings have changed."""
        if self.choice.on and self.choice.loads_models and self._fields() != self._sent:
            self._send()

    def _on_hello(self) -> None:
        if self.choice.on:
            self._send()

    def _send(self) -> None:
        if self._link.is_running:
            self._sent = self._fields()
            self._link.serve(**self._sent)
            if self.choice.on and self.choice.loads_models:
                self.models_wanted.emit()
        else:
            self.changed.emit(self.facts)

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the message "serve"."""
        choice = self.choice
        if not choice.on:
            return {"on": False, "port": choice.port, "key": ""}
        fields: dict[str, Any] = {"on": True, "port": choice.port, "key": choice.key}
        if choice.loads_models:
            fields["models"] = {name: str(path) for name, path in self.models().items()}
            fields["settings"] = self.settings()
        if choice.embedding_model:
            fields["embedding_model"] = choice.embedding_model
        fields |= {"is_open": choice.is_open, "origins": choice.origins}
        return {**fields, "unload_after_s": 60 * choice.unload_min}

    def _on_state(self, data: Json) -> None:
        self.facts = ServerFacts.from_json(data)
        self.changed.emit(self.facts)


def new_key() -> str:
    """Return a random key."""
    return secrets.token_urlsafe(24)
