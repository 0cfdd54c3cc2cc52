"""Files dropped on the window: a model, folders of models, or files to attach."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from app.chat.composer import has_picture, local_files, picture_of
from app.session import known_models as models
from app.store.foreign import is_export
from app.window.drop_hint import DropHint
from backend.system.paths import is_folder
from backend.tools.settings import is_foreign


class Drops(QObject):
    """Accepts drops anywhere on a window.

    Signals:
        model: (Path) a GGUF file.
        folders: (list of Path) folders of models.
        servers: (Path) a file with servers of tools.
        chats: (Path) the chats that another program exported.
        files: (list of Path) other files.
        picture: (bytes) an image file, of a program.
        remote: only addresses of other machines.
    """

    model = Signal(object)
    folders = Signal(object)
    servers = Signal(object)
    chats = Signal(object)
    files = Signal(object)
    picture = Signal(bytes)
    remote = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._hint = DropHint(window)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102
        if isinstance(event, QDropEvent) and event.type() == QEvent.Type.DragEnter:
            assert isinstance(event, QDragEnterEvent)
            self._enter(event)
        elif event.type() == QEvent.Type.DragLeave:
            self._hint.hide()
        elif isinstance(event, QDropEvent) and event.type() == QEvent.Type.Drop:
            self._drop(event)
        return super().eventFilter(watched, event)

    def _enter(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls() or has_picture(event.mimeData()):
            paths = local_files(event.mimeData())
            model = models.model_in_drop(paths)
            folders = [path for path in paths if is_folder(path)]
            servers = [path for path in paths if is_foreign(path)]
            self._hint.show_for(
                model.name if model else None,
                folders[0].name if folders else None,
                servers[0].name if servers else None,
                len(paths) or 1,
            )
            event.acceptProposedAction()

    def _drop(self, event: QDropEvent) -> None:
        self._hint.hide()
        paths = local_files(event.mimeData())
        model = models.model_in_drop(paths)
        if model is not None:
            self.model.emit(model)
        elif chats := [path for path in paths if is_export(path)]:
            for path in chats:
                self.chats.emit(path)
        elif folders := [path for path in paths if is_folder(path)]:
            self.folders.emit(folders)
        elif servers := [path for path in paths if is_foreign(path)]:
            self.servers.emit(servers[0])
        elif paths:
            self.files.emit(paths)
        elif data := picture_of(event.mimeData()):
            self.picture.emit(data)
        elif event.mimeData().hasUrls():
            self.remote.emit()
        else:
            return
        event.acceptProposedAction()
