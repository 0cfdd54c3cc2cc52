"""Files dropped on the window: a model, or folders of models."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from app.session import known_models as models
from app.window.drop_hint import DropHint
from backend.system.paths import is_folder


class Drops(QObject):
    """Accepts drops anywhere on a window.

    Signals:
        model: (Path) a GGUF file.
        folders: (list of Path) folders of models.
        refused: (str) one sentence about another file.
    """

    model = Signal(object)
    folders = Signal(object)
    refused = Signal(str)

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._hint = DropHint(window)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102, N802
        if isinstance(event, QDropEvent) and event.type() == QEvent.Type.DragEnter:
            assert isinstance(event, QDragEnterEvent)
            self._enter(event)
        elif event.type() == QEvent.Type.DragLeave:
            self._hint.hide()
        elif isinstance(event, QDropEvent) and event.type() == QEvent.Type.Drop:
            self._drop(event)
        return super().eventFilter(watched, event)

    def _enter(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            paths = _paths(event.mimeData())
            model = models.model_in_drop(paths)
            folders = [path for path in paths if is_folder(path)]
            self._hint.show_for(model.name if model else None, folders[0].name if folders else None)
            event.acceptProposedAction()

    def _drop(self, event: QDropEvent) -> None:
        self._hint.hide()
        paths = _paths(event.mimeData())
        model = models.model_in_drop(paths)
        if model is not None:
            event.acceptProposedAction()
            self.model.emit(model)
        elif folders := [path for path in paths if is_folder(path)]:
            event.acceptProposedAction()
            self.folders.emit(folders)
        elif paths:
            self.refused.emit(self.tr("{name} is not a GGUF file.").format(name=paths[0].name))


def _paths(data: QMimeData) -> list[Path]:
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
