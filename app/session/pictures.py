"""Pictures to show: decoded by the process that reads files, never by the window's."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.session.worker_link import EngineLink
from backend.protocol.attachments import Picture

N_KEPT = 64  # previews


class Pictures(QObject):
    """Asks the worker for pictures, and keeps the last ones.

    Signals:
        decoded: (str, int, Picture or None) what was asked for; None: it cannot be shown.
    """

    decoded = Signal(object, int, object)

    def __init__(self, link: EngineLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._kept: dict[tuple[str, int], Picture] = {}
        self._asked: dict[int, tuple[str, int]] = {}  # by the number of the request
        link.picture.connect(self._on_picture)
        link.died.connect(self._on_died)

    def ask(self, data: str, side: int) -> Picture | None:
        """Return a picture that is kept; otherwise `decoded` emits it later.

        data: an image file in Base64. side: longest side in pixels.
        """
        key = data, side
        if key not in self._kept and key not in self._asked.values():
            self._asked[self._link.ask_picture(data, side)] = key
        return self._kept.get(key)

    def _on_picture(self, number: int, picture: Picture | None) -> None:
        key = self._asked.pop(number, None)
        if key is None:
            return
        if picture is not None:
            self._kept[key] = picture
            while len(self._kept) > N_KEPT:
                del self._kept[next(iter(self._kept))]
        self.decoded.emit(*key, picture)

    def _on_died(self, _: object) -> None:
        for number in list(self._asked):
            self._on_picture(number, None)
