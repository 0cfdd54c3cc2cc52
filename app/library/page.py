"""Joins the library with the session: what is loaded, how fast it was, what it would give back."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, Signal

from app import models
from app.facts import Statistics
from app.library.library import Library
from app.library.view import LibraryView
from app.session import Session
from app.state import Notice, State

_BUSY = (State.LOADING, State.CHANGING, State.ANSWERING, State.STOPPING)


class LibraryPage(QObject):
    """The library, its view, and what they need from the session.

    Signals:
        notice: (Notice) something to say in the window.
    """

    notice = Signal(object)

    def __init__(
        self, session: Session, history: Path, cache: Path, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self.library = Library(history, cache, self)
        self.library.may_measure = lambda: session.state not in _BUSY
        self.view = LibraryView(self.library)
        self._watcher = QFileSystemWatcher(self)
        self._watcher.fileChanged.connect(self._file_changed)
        self._recent: list[str] = []
        self._used: Path | None = None
        session.model_changed.connect(self._model_changed)
        session.state_changed.connect(self._state_changed)
        session.link.done.connect(self._answered)

    def show_recent(self, recent: list[str]) -> None:
        """Count these files as part of the library, wherever they are."""
        self._recent = recent
        self._gather()

    def shut_down(self) -> None:
        """End what runs in the background."""
        self.library.shut_down()

    def _gather(self) -> None:
        files = [models.embedded_model(), self._session.path, *map(Path, self._recent)]
        loose = list(dict.fromkeys(path for path in files if path is not None))
        if loose != self.library.loose:
            self.library.loose = loose
            self.library.rescan()

    def _model_changed(self) -> None:
        session, library = self._session, self.library
        model, cache = session.model, session.cache
        cached = model is not None and cache is not None and cache.mode == "cached"
        # What stock llama.cpp maps from the file counts as available already.
        library.returned_bytes = model.dense_bytes + cache.bytes if cached else 0  # type: ignore[union-attr]
        library.asked_rate = session.asked_rate
        if model is not None and session.path is not None and session.path != self._used:
            library.history.remember_use(session.path)
        self._used = session.path if model is not None else None
        if watched := self._watcher.files():
            self._watcher.removePaths(watched)
        if self._used is not None:
            self._watcher.addPath(str(self._used))
        self._gather()
        self.view.show_loaded(self._used)
        if self.view.isVisible():
            library.judge()

    def _state_changed(self, state: State) -> None:
        if state is State.IDLE and self.view.isVisible():
            self.library.measure()

    def _answered(self, _reason: str, statistics: Statistics) -> None:
        session = self._session
        if session.model is None or session.cache is None or session.path is None:
            return
        plain = session.cache.mode == "plain"
        n_slot = session.model.n_expert if plain else session.cache.n_slot
        self.library.remember_answer(
            session.path, n_slot, statistics.n_token, statistics.tokens_per_s
        )

    def _file_changed(self, name: str) -> None:
        path = Path(name)
        if path == self._used and not path.exists():
            self.library.rescan()
            self.notice.emit(
                Notice(
                    f"{path.name} was deleted or moved. You can go on with it now, but it cannot "
                    "be loaded again.",
                    is_trouble=False,
                )
            )
