"""The button that names the model, and the menu to pick another."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu, QPushButton

from app.session import known_models as models
from app.text import units
from app.widgets import icons, theme
from app.widgets.commands import key_words
from backend.protocol.status import ModelFacts
from backend.system.paths import is_file

WIDEST = 300


class ModelButton(QPushButton):
    """Shows the present model; its menu has the embedded one, the recent ones, and the dialog.

    Signals:
        picked: (Path) the user wants this model.
        browse: the user wants the file dialog.
        library: the user wants the page with all models.
        get: the user wants the page to download models.
    """

    picked = Signal(object)
    browse = Signal()
    library = Signal()
    get = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("modelButton")
        self._menu = QMenu(self)
        self._menu.setToolTipsVisible(True)
        self._full = self._name = ""  # with and without the size
        self.setMenu(self._menu)
        self.setMaximumWidth(WIDEST)
        self.show_model(None, None)

    def show_model(self, path: Path | None, model: ModelFacts | None) -> None:
        """Name the model that is loaded or being loaded."""
        if path is None:
            self._full = self._name = self.tr("Choose a model")
        else:
            self._full = self._name = models.title(path)
            if model is not None:
                self._full += f"   {units.size(model.file_bytes)}"
        self.setToolTip(str(path) if path else "")
        self.setAccessibleName(self.tr("Model: {model}").format(model=self._full))
        self.updateGeometry()
        self.update()

    def show_recent(self, recent: list[str], present: Path | None) -> None:
        """Fill the menu."""
        menu = self._menu
        menu.clear()
        embedded = models.embedded_model()
        if embedded is not None:
            self._add(embedded, present)
        files = [Path(item) for item in recent if Path(item) != embedded]
        if files:
            menu.addSeparator()
        for path in files:
            self._add(path, present)
        menu.addSeparator()
        for text, keys, chosen in (
            (self.tr("All models"), "Ctrl+M", self.library),
            (self.tr("Get models\u2026"), "Ctrl+G", self.get),
            (self.tr("Open a GGUF file\u2026"), "Ctrl+O", self.browse),
        ):
            menu.addAction(f"{text}\t{key_words(keys)}", chosen.emit)

    def sizeHint(self) -> QSize:  # noqa: D102
        width = self.fontMetrics().horizontalAdvance(self._full) + 56
        return QSize(min(width, WIDEST), self.fontMetrics().height() + 20)

    def minimumSizeHint(self) -> QSize:  # noqa: D102
        return QSize(130, self.fontMetrics().height() + 20)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102
        super().paintEvent(event)
        painter = QPainter(self)
        room = self.rect().adjusted(14, 0, -34, 0)
        metrics, middle = self.fontMetrics(), Qt.TextElideMode.ElideMiddle
        text = self._full
        if metrics.horizontalAdvance(text) > room.width():
            text = metrics.elidedText(self._name, middle, room.width())
        where = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.setPen(theme.colour("text"))
        painter.drawText(room, where, text)
        place = QRectF(self.width() - 27, self.height() / 2 - 6, 13, 13)
        icons.paint(painter, "chevron", place, theme.colour("muted"))
        painter.end()

    def _add(self, path: Path, present: Path | None) -> None:
        action = self._menu.addAction(models.title(path), lambda: self.picked.emit(path))
        action.setToolTip(str(path))
        action.setCheckable(True)
        action.setChecked(path == present)
        action.setEnabled(is_file(path))
