"""The local server as the window sees it: requested, running, and at which address."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.session.worker_link import EngineLink
from backend.protocol.status import Json

DEFAULT_PORT = 8088


@dataclass(frozen=True)
class ServerFacts:
    """The state of the worker's server.

    n_request: requests so far; n_open: requests in progress or in the queue.
    """

    on: bool = False
    address: str = ""
    port: int = 0
    n_request: int = 0
    n_open: int = 0
    trouble: str = ""

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
        )


class LocalServer(QObject):
    """Switch the worker's server as the user wants, also after a restart of the worker.

    Signals:
        changed: (ServerFacts).
    """

    changed = Signal(object)

    def __init__(
        self, link: EngineLink, wanted: bool, port: int, key: str, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._link = link
        self.wanted = wanted
        self.port = port
        self.key = key or new_key()
        self.facts = ServerFacts()
        link.hello.connect(self._on_hello)
        link.server.connect(self._on_state)
        link.died.connect(lambda _: self._on_state({}))

    def want(self, wanted: bool, port: int) -> None:
        """Switch the server on or off."""
        self.wanted, self.port = wanted, port
        self._send()

    def renew_key(self) -> None:
        """Create another key. Programs with the old key are refused from now on."""
        self.key = new_key()
        self._send()

    def _on_hello(self) -> None:
        if self.wanted:
            self._send()

    def _send(self) -> None:
        if self._link.is_running:
            self._link.serve(self.wanted, self.port, self.key if self.wanted else "")
        else:
            self.changed.emit(self.facts)

    def _on_state(self, data: Json) -> None:
        self.facts = ServerFacts.from_json(data)
        self.changed.emit(self.facts)


def new_key() -> str:
    """Return a random key."""
    return secrets.token_urlsafe(24)
