"""Connects the library with the engine: the loaded model, its speed, the memory it frees."""

from __future__ import annotations

import functools
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, Signal
from PySide6.QtWidgets import QStackedWidget

from app.library.get_page import GetPage
from app.library.library import Library
from app.library.search import Search
from app.library.view import LibraryView
from app.session import known_models as models
from app.session.engine import EngineSession
from app.state.engine_state import Notice, State
from app.text.messages import localized
from backend.downloads.manager import Download, Downloads
from backend.downloads.manager import State as DownloadState
from backend.protocol.statistics import Statistics
from backend.system.paths import exists, models_folder

_BUSY = (State.LOADING, State.CHANGING, State.ANSWERING, State.STOPPING)


class LibraryPage(QObject):
    """The library, its views, and their connections with the engine.

    Signals:
        notice: (Notice) to show in the window.
        picked: (Path) the model that the user wants to load.
        arrived: (Path) a download that the user waits for is complete.
        closed: the user wants the chat.
    """

    notice = Signal(object)
    picked = Signal(object)
    arrived = Signal(object)
    closed = Signal()
    _moved = Signal()
    _changed = Signal()  # the loaded model, or the downloads

    def __init__(
        self, engine: EngineSession, history: Path, cache: Path, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self.library = Library(history, cache, self)
        self.library.may_measure = lambda: engine.state not in _BUSY
        self.library.rate_for = engine.rate_for
        # By default, downloads go into the data folder. No folder is created before a download.
        self.downloads = Downloads(
            history.with_name("downloads.json"), models_folder(), self._moved.emit
        )
        self.search = Search(self.library, self)
        self.pages = QStackedWidget()
        self._states = {item.number: item.state for item in self.downloads.all()}
        self._loaded_then: dict[int, Path | None] = {}  # when a download began, by its number
        self._watcher = QFileSystemWatcher(self)
        self._watcher.fileChanged.connect(self._file_changed)
        self._recent: list[str] = []
        self._used: Path | None = None
        self._moved.connect(self._download_moved, Qt.ConnectionType.QueuedConnection)
        self._download_moved()
        engine.model_changed.connect(self._model_changed)
        engine.state_changed.connect(self._state_changed)
        engine.link.done.connect(self._answered)
        self.library.failed.connect(lambda sentence: self.notice.emit(Notice(sentence)))

    @functools.cached_property
    def view(self) -> LibraryView:
        """Return the page with the models on this machine, which is made when first needed."""
        view = LibraryView(self.library)
        self._add(view)
        view.get.clicked.connect(self.show_get)

        def refresh() -> None:
            states = list(self._states.values())
            view.show_loaded(self._used)
            view.show_downloads(
                sum(state in (DownloadState.WAITING, DownloadState.RUNNING) for state in states),
                sum(state in (DownloadState.PAUSED, DownloadState.FAILED) for state in states),
            )

        self._changed.connect(refresh)
        refresh()
        return view

    @functools.cached_property
    def get(self) -> GetPage:
        """Return the page to download models, which is made when first needed."""
        get = GetPage(self.search, self.downloads)
        self._add(get)
        get.left.connect(self.show_models)
        self._changed.connect(get.show_downloads)
        return get

    def _add(self, page: LibraryView | GetPage) -> None:
        self.pages.addWidget(page)
        page.picked.connect(self.picked)
        page.closed.connect(self.closed)

    def first_pages(self) -> QStackedWidget:
        """Return `pages`, with the models on this machine if there is no page yet."""
        if not self.pages.count():
            self.show_models()
        return self.pages

    def shows(self, kind: type[LibraryView] | type[GetPage]) -> bool:
        """Return whether the user sees the page of this kind."""
        page = self.pages.currentWidget()
        return isinstance(page, kind) and page.isVisible()

    def show_recent(self, recent: list[str]) -> None:
        """Set the recent files; they belong to the library, wherever they are."""
        self._recent = recent
        self._gather()

    def show_models(self) -> None:
        """Show the models on this machine."""
        self.pages.setCurrentWidget(self.view)

    def show_get(self) -> None:
        """Show the page to download models."""
        self.pages.setCurrentWidget(self.get)

    def shut_down(self) -> None:
        """End all background work."""
        self.downloads.shut_down()
        self.search.shut_down()
        self.library.shut_down()

    def _download_moved(self) -> None:
        """Report downloads with a new state."""
        items = self.downloads.all()
        for item in items:
            if self._states.get(item.number) is item.state:
                continue
            name = item.job.name
            if item.state is DownloadState.RUNNING:
                self._loaded_then[item.number] = self._engine.path
            elif item.state is DownloadState.DONE:
                self._arrived(item.job.folder)
                self._open_or_offer(item)
            elif item.state is DownloadState.FAILED:
                self._notify(f"{name}: {localized(item.trouble)}")
        self._states = {item.number: item.state for item in items}
        self._changed.emit()

    def _open_or_offer(self, item: Download) -> None:
        """Open a model that has arrived, unless the user is busy or has opened another since."""
        engine, path = self._engine, item.job.target
        then = self._loaded_then.pop(item.number, engine.path)
        if engine.state in (State.IDLE, State.EMPTY) and then == engine.path:
            self.arrived.emit(path)
            return
        sentence = self.tr("{model} has arrived.").format(model=item.job.name)
        action = (self.tr("Open it"), lambda: self.picked.emit(path))
        self.notice.emit(Notice(sentence, (action,), is_trouble=False))

    def _arrived(self, folder: Path) -> None:
        """Add the folder of downloads to the folders of models."""
        into = self.downloads.folder
        folder = into if folder.is_relative_to(into) else folder
        watched = [place for _, place in self.library.folders]
        if any(folder.is_relative_to(place) for place in watched):
            self.library.rescan()
        else:
            self.library.add_folder(folder)

    def _notify(self, sentence: str) -> None:
        if not self.shows(GetPage):  # that page shows it
            self.notice.emit(Notice(sentence, is_trouble=False))

    def _gather(self) -> None:
        files = [models.embedded_model(), self._engine.path, *map(Path, self._recent)]
        loose = list(dict.fromkeys(path for path in files if path is not None))
        if loose != self.library.loose:
            self.library.loose = loose
            self.library.rescan()

    def _model_changed(self) -> None:
        engine, library = self._engine, self.library
        model, cache = engine.model, engine.cache
        cached = model is not None and cache is not None and cache.mode == "cached"
        # Pages that stock llama.cpp maps from the file already count as available.
        library.returned_bytes = model.dense_bytes + cache.bytes if cached else 0  # type: ignore[union-attr]
        if model is not None and engine.path is not None and engine.path != self._used:
            library.history.remember_use(engine.path)
        loaded = engine.path if model is not None else None
        if loaded != self._used:
            library.look_at(loaded)
        self._used = loaded
        if watched := self._watcher.files():
            self._watcher.removePaths(watched)
        if self._used is not None:
            self._watcher.addPath(str(self._used))
        self._gather()
        self._changed.emit()
        if self.shows(LibraryView):
            library.judge()

    def _state_changed(self, state: State) -> None:
        if state is State.IDLE and self.shows(LibraryView):
            self.library.measure()

    def _answered(self, _reason: str, statistics: Statistics) -> None:
        engine = self._engine
        if engine.model is None or engine.cache is None or engine.path is None:
            return
        plain = engine.cache.mode == "plain"
        n_slot = engine.model.n_expert if plain else engine.cache.n_slot
        self.library.remember_answer(
            engine.path, n_slot, statistics.n_token, statistics.tokens_per_s
        )

    def _file_changed(self, name: str) -> None:
        path = Path(name)
        if path == self._used and not exists(path):
            self.library.rescan()
            self.notice.emit(
                Notice(
                    self.tr(
                        "{file} was deleted or moved. You can go on with it now, but it cannot be "
                        "loaded again."
                    ).format(file=path.name),
                    is_trouble=False,
                )
            )
